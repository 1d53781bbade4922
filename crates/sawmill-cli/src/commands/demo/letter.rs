//! The letters of the demonstration, and the command that delivers one.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sawmill::engine::runtime::Env;
use sawmill::{Push, Timestamp};
use serde::{Deserialize, Serialize};

use super::progress::Event;
use crate::failure::Failure;

/// A letter, and how hard it is to deliver.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Letter {
    /// The recipient. Letters to one person arrive in order.
    pub(super) to: Option<String>,
    /// The duration of its delivery.
    millis: u64,
    /// The number of attempts that fail.
    fails: u32,
    /// The address cannot be read: the letter is never delivered.
    unreadable: bool,
    /// The delay of its delivery, from the push.
    #[serde(skip)]
    pub(super) later: Option<Duration>,
}

const PEOPLE: &[&str] =
    &["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mallory", "niaj"];
const LETTERS_EACH: usize = 24;
const REMINDERS: usize = 12;

/// Returns the letters of a demonstration, which are the same every time.
pub(super) fn all() -> Vec<Letter> {
    let mut letters = Vec::new();
    for nth in 0..LETTERS_EACH {
        for (row, person) in PEOPLE.iter().enumerate() {
            let number = nth * PEOPLE.len() + row;
            letters.push(Letter {
                to: Some((*person).to_owned()),
                millis: 60 + (number as u64 * 37) % 60,
                fails: if number % 31 == 7 { 2 } else { 0 },
                unreadable: number % 101 == 50,
                later: None,
            });
        }
    }
    letters.extend((0..REMINDERS).map(|nth| Letter {
        to: None,
        millis: 50,
        fails: 0,
        unreadable: false,
        later: Some(Duration::from_millis(3_000 + 250 * nth as u64)),
    }));
    letters
}

impl Letter {
    pub(super) fn push(&self, now: Timestamp) -> Result<Push, Failure> {
        let mut push = Push::json(self)?;
        if let Some(to) = &self.to {
            push = push.key(to.clone());
        }
        if let Some(later) = self.later {
            push = push.at(now + later);
        }
        Ok(push)
    }
}

/// Deliver one letter of the demonstration. The workers run this for each message
#[derive(Debug, Args)]
pub(crate) struct DeliverArgs {
    /// The folder of the demonstration
    folder: PathBuf,
    /// The worker that runs this
    worker: usize,
}

/// The exit code of a letter that can never be delivered.
const DATA_ERROR: i32 = 65;

pub(crate) async fn deliver(args: &DeliverArgs) -> Result<(), Failure> {
    let missing = |name: &str| Failure::usage(format!("{name} is not set: this is run by `sawmill demo`"));
    let variable = |name: &str| std::env::var(name).map_err(|_| missing(name));
    let (id, attempt) = (variable("SAWMILL_ID")?, variable("SAWMILL_ATTEMPT")?);
    let attempt: u32 = attempt.parse().map_err(|_| missing("SAWMILL_ATTEMPT"))?;
    let mut payload = Vec::new();
    std::io::stdin().read_to_end(&mut payload)?;
    let letter: Letter =
        serde_json::from_slice(&payload).map_err(|error| Failure::usage(error.to_string()))?;

    let log_event = |event: Event| log_event(&args.folder, &event.line(&id, args.worker));
    log_event(Event::Started)?;
    Env::system().sleep(Duration::from_millis(letter.millis)).await;
    if letter.unreadable {
        log_event(Event::Dead)?;
        eprintln!("the address cannot be read");
        std::process::exit(DATA_ERROR);
    }
    if attempt <= letter.fails {
        log_event(Event::Failed)?;
        return Err(Failure::failed("nobody at home"));
    }
    // The delivery is marked under the message id. A repeated run finds the mark and does nothing.
    match OpenOptions::new().write(true).create_new(true).open(args.folder.join("delivered").join(&id)) {
        Ok(_) => log_event(Event::Delivered),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => log_event(Event::Repeated),
        Err(error) => Err(error.into()),
    }
}

/// Appends an event. Lines this short are appended whole, even if other processes append.
fn log_event(folder: &Path, line: &str) -> Result<(), Failure> {
    let mut file = OpenOptions::new().append(true).create(true).open(folder.join(super::EVENT_LOG))?;
    Ok(file.write_all(line.as_bytes())?)
}
