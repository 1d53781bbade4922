//! The job of a child process, passed in its environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sawmill::{Delivery, Sawmill};
use serde::{Deserialize, Serialize};

use crate::behaviours::{Place, Subject};

/// The environment variable that holds the job.
pub const VARIABLE: &str = "SAWMILL_CHILD";
/// The topic and the group of all these tests.
pub const TOPIC: &str = "jobs";
pub const GROUP: &str = "processes";

/// A child's job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    pub role: Role,
    /// The child's name in the records, and the prefix of its workers' ids.
    pub name: String,
    /// The folder of the records and of the store's address.
    pub folder: PathBuf,
    pub ordered: bool,
    pub delivery: Delivery,
    /// The number of workers, and the slots of each.
    pub workers: usize,
    pub slots: usize,
    pub max_in_flight: Option<usize>,
    pub ttl: Duration,
    /// How long a handler runs.
    pub work: Duration,
    /// The payload of the message on which the handler never ends.
    pub stuck: Option<String>,
    /// True if it keeps a journal.
    pub journal: bool,
}

/// The kind of child.
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
    /// Makes a worker's job in this folder, with settings that suit most tests.
    pub fn new(name: &str, folder: &Path) -> Self {
        Self {
            role: Role::Worker,
            name: name.to_owned(),
            folder: folder.to_owned(),
            ordered: false,
            delivery: Delivery::AtLeastOnce,
            workers: 1,
            slots: 4,
            max_in_flight: None,
            // Several processes on few cores: a heartbeat may be late.
            ttl: Duration::from_secs(5),
            work: Duration::from_millis(20),
            stuck: None,
            journal: false,
        }
    }

    /// Returns the job of this process, if it is a child.
    pub fn of_this_process() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }
}

/// The file in the folder with the namespace and URL of the shared store.
const STORE: &str = "store";

/// Writes the store's address to this folder.
pub(super) fn write_store_address(folder: &Path, place: &Place) {
    let text = format!("{} {}", place.store.namespace().as_str(), place.url());
    std::fs::write(folder.join(STORE), text).unwrap();
}

/// Opens the store that the processes of this folder share.
pub(super) async fn open(on: Subject, folder: &Path) -> Sawmill {
    let text = std::fs::read_to_string(folder.join(STORE)).unwrap();
    let (namespace, url) = text.split_once(' ').unwrap();
    (on.options)().namespace(namespace).open(url).await.unwrap()
}
