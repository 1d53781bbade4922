//! The letters of the demonstration, and what it takes to deliver one.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use sawmill::env::Env;
use sawmill::{Push, Timestamp};
use serde::{Deserialize, Serialize};

use super::story::Told;
use crate::failure::Failure;

/// What a letter says, and how hard it is to deliver.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Letter {
    /// Whom it goes to: letters to one person arrive in order.
    pub(super) to: Option<String>,
    /// How long its delivery takes.
    millis: u64,
    /// How many attempts fail.
    fails: u32,
    /// Its address cannot be read: it is never delivered.
    unreadable: bool,
    /// When it may be delivered, counted from the push.
    #[serde(skip)]
    pub(super) later: Option<Duration>,
}

const PEOPLE: &[&str] =
    &["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mallory", "niaj"];
const LETTERS_EACH: usize = 24;
const REMINDERS: usize = 12;

/// The letters of one demonstration: the same each time.
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

/// Delivers one letter of the demonstration: run by its workers, once per message.
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

    let tell = |what: Told| tell(&args.folder, &what.line(&id, args.worker));
    tell(Told::Started)?;
    Env::system().sleep(Duration::from_millis(letter.millis)).await;
    if letter.unreadable {
        tell(Told::Dead)?;
        eprintln!("the address cannot be read");
        std::process::exit(DATA_ERROR);
    }
    if attempt <= letter.fails {
        tell(Told::Failed)?;
        return Err(Failure::failed("nobody at home"));
    }
    // The effect is marked under the id of the message: a run that repeats another finds the mark, and leaves it at that.
    match OpenOptions::new().write(true).create_new(true).open(args.folder.join("delivered").join(&id)) {
        Ok(_) => tell(Told::Delivered),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => tell(Told::Repeated),
        Err(error) => Err(error.into()),
    }
}

/// Lines this short are appended whole, whoever else appends.
fn tell(folder: &Path, line: &str) -> Result<(), Failure> {
    let mut file = OpenOptions::new().append(true).create(true).open(folder.join(super::STORY))?;
    Ok(file.write_all(line.as_bytes())?)
}
