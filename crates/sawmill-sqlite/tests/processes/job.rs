//! What a child process is to do, handed over in its environment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use sawmill::Delivery;
use serde::{Deserialize, Serialize};

/// The environment variable that holds the job.
pub(crate) const VARIABLE: &str = "SAWMILL_CHILD";
/// The topic and the group of all these tests.
pub(crate) const TOPIC: &str = "jobs";
pub(crate) const GROUP: &str = "crew";

/// A child's job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) role: Role,
    /// What the child is called in the records, and how the ids of its workers begin.
    pub(crate) name: String,
    /// Where the records are, and the name of the store.
    pub(crate) folder: PathBuf,
    pub(crate) ordered: bool,
    pub(crate) delivery: Delivery,
    /// How many workers it starts, each with so many slots.
    pub(crate) workers: usize,
    pub(crate) slots: usize,
    pub(crate) most_claimed: Option<usize>,
    pub(crate) ttl: Duration,
    /// How long a handler works.
    pub(crate) work: Duration,
    /// The payload of a message with which it never ends.
    pub(crate) stuck: Option<String>,
    /// Whether it keeps a journal.
    pub(crate) journal: bool,
}

/// What kind of child it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// Works until it is told to stop.
    Worker,
    /// Pushes and works until it is killed.
    PushAndWork,
    /// Opens the database at this moment of the steady clock, in nanoseconds, and pushes one message.
    OpenAt(u64),
}

impl Job {
    /// A worker in this folder with settings that suit most tests.
    pub(crate) fn new(name: &str, folder: &Path) -> Self {
        Self {
            role: Role::Worker,
            name: name.to_owned(),
            folder: folder.to_owned(),
            ordered: false,
            delivery: Delivery::AtLeastOnce,
            workers: 1,
            slots: 4,
            most_claimed: None,
            ttl: Duration::from_secs(2),
            work: Duration::from_millis(20),
            stuck: None,
            journal: false,
        }
    }

    /// The job of this process, if it is a child.
    pub(crate) fn of_this_process() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    }

    /// What names the store.
    pub(crate) fn store(&self) -> String {
        store(&self.folder)
    }
}

/// The file in the folder that says which store all of them work on.
pub(crate) const STORE: &str = "store";

/// What names the store on which the processes of this folder work.
pub(crate) fn store(folder: &Path) -> String {
    std::fs::read_to_string(folder.join(STORE)).unwrap()
}
