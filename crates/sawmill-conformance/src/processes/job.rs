//! What a child process is to do, handed over in its environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sawmill::{Delivery, Sawmill};
use serde::{Deserialize, Serialize};

use crate::behaviours::{Place, Subject};

/// The environment variable that holds the job.
pub const VARIABLE: &str = "SAWMILL_CHILD";
/// The topic and the group of all these tests.
pub const TOPIC: &str = "jobs";
pub const GROUP: &str = "crew";

/// A child's job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub role: Role,
    /// What the child is called in the records, and how the ids of its workers begin.
    pub name: String,
    /// Where the records are, and the name of the store.
    pub folder: PathBuf,
    pub ordered: bool,
    pub delivery: Delivery,
    /// How many workers it starts, each with so many slots.
    pub workers: usize,
    pub slots: usize,
    pub most_claimed: Option<usize>,
    pub ttl: Duration,
    /// How long a handler works.
    pub work: Duration,
    /// The payload of a message with which it never ends.
    pub stuck: Option<String>,
    /// Whether it keeps a journal.
    pub journal: bool,
}

/// What kind of child it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Works until it is told to stop.
    Worker,
    /// Pushes and works until it is killed.
    PushAndWork,
    /// Opens the database at this moment of the steady clock, in nanoseconds, and pushes one message.
    OpenAt(u64),
}

impl Job {
    /// A worker in this folder with settings that suit most tests.
    pub fn new(name: &str, folder: &Path) -> Self {
        Self {
            role: Role::Worker,
            name: name.to_owned(),
            folder: folder.to_owned(),
            ordered: false,
            delivery: Delivery::AtLeastOnce,
            workers: 1,
            slots: 4,
            most_claimed: None,
            // Several processes on few cores: a beat may be late.
            ttl: Duration::from_secs(5),
            work: Duration::from_millis(20),
            stuck: None,
            journal: false,
        }
    }

    /// The job of this process, if it is a child.
    pub fn of_this_process() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }
}

/// The file in the folder that says which store all of them work on: its namespace and its URL.
const STORE: &str = "store";

/// Says in this folder that this is the store to work on.
pub(super) fn appoint(folder: &Path, place: &Place) {
    let text = format!("{} {}", place.store.namespace().as_str(), place.url());
    std::fs::write(folder.join(STORE), text).unwrap();
}

/// Opens the store on which the processes of this folder work.
pub(super) async fn open(on: Subject, folder: &Path) -> Sawmill {
    let text = std::fs::read_to_string(folder.join(STORE)).unwrap();
    let (namespace, url) = text.split_once(' ').unwrap();
    (on.options)().namespace(namespace).open(url).await.unwrap()
}
