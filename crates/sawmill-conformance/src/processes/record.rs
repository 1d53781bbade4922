//! Records of events: one file per process. Each event is appended with one call, so the events of a killed
//! process survive.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use crate::history::{Event, History, Recorded};
use sawmill::engine::model::WorkerId;
use sawmill::engine::runtime::{Clock, Moment, SystemClock};
use sawmill::{Context, MessageId};

/// The extension of record files.
const SUFFIX: &str = "events";

/// Returns nanoseconds on the steady clock, which all processes of the machine share.
pub fn now() -> u64 {
    SystemClock.now().since(Moment::default()).as_nanos() as u64
}

/// The record of one process.
#[derive(Clone)]
pub struct Record {
    file: Arc<File>,
}

impl Record {
    /// Opens the record with this name in the folder.
    pub fn open(folder: &Path, name: &str) -> Self {
        let path = folder.join(format!("{name}.{SUFFIX}"));
        Self { file: Arc::new(OpenOptions::new().create(true).append(true).open(path).unwrap()) }
    }

    /// Records that this happens now; returns when.
    pub fn note(&self, event: Event) -> u64 {
        let at = now();
        let line = format!("{}\n", Recorded { at, event });
        (&*self.file).write_all(line.as_bytes()).unwrap();
        at
    }

    pub fn pushed(&self, id: MessageId, key: Option<String>) {
        self.note(Event::Pushed { id, key });
    }

    pub fn started(&self, context: &Context, worker: &str) {
        let key = context.key().map(|key| String::from_utf8_lossy(key).into_owned());
        let (id, attempt) = (context.id(), context.attempt());
        self.note(Event::Started { id, key, worker: worker.to_owned(), attempt });
    }

    pub fn finished(&self, context: &Context, worker: &str) {
        self.note(Event::Finished { id: context.id(), worker: worker.to_owned(), ok: true });
    }

    pub fn declared_dead(&self, member: &WorkerId) {
        self.note(Event::DeclaredDead { member: member.to_string() });
    }
}

/// Reads all records of a folder as one history.
pub fn read_all(folder: &Path) -> History {
    let mut texts = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            texts.push(fs::read_to_string(&path).unwrap());
        }
    }
    History::parse(texts.iter().map(String::as_str)).unwrap()
}

/// Panics with the first few of these violations, if there are any.
pub fn assert_none(what: &str, violations: &[String]) {
    let some: Vec<&str> = violations.iter().take(10).map(String::as_str).collect();
    assert!(violations.is_empty(), "{what}: {} violations:\n{}", violations.len(), some.join("\n"));
}

/// Panics if a worker was declared dead that was neither killed nor suspended: the machine is busy and a
/// heartbeat was late. Checks that a late heartbeat may break (repeated or given-up messages) come after
/// this, unconditional checks before.
pub fn assert_beats_are_in_time(history: &History) {
    let deaths = history.check_deaths_have_a_reason();
    assert!(deaths.is_empty(), "test timed out: the next heartbeat of a live worker: {}", deaths.join("; "));
}
