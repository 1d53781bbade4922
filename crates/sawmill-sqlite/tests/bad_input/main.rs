//! Bad input through the public API: it is refused with what was wrong and what to do, and changes nothing.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod files;
mod full_disk;
mod messages;
mod names;
mod settings;
#[path = "../support/mod.rs"]
mod support;

use sawmill::{Error, ErrorKind, Sawmill};
use tempfile::TempDir;

/// An open database with the topic `jobs`, in a folder that is removed on drop.
struct Store {
    mill: Sawmill,
    folder: TempDir,
}

impl Store {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
        let mill = sawmill::Sawmill::open(&url).await.unwrap();
        mill.create_topic("jobs").await.unwrap();
        Self { mill, folder }
    }

    /// Counts the messages that wait.
    async fn waiting(&self) -> u64 {
        let status = self.mill.admin().status("jobs", "default").await.unwrap();
        status.waiting + status.scheduled
    }
}

/// Returns the error, checked to have this kind and to contain all these texts.
#[track_caller]
fn refused<T>(answer: Result<T, Error>, kind: ErrorKind, said: &[&str]) -> Error {
    let Err(error) = answer else { panic!("accepted, instead of refused with {said:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    for said in said {
        assert!(error.to_string().contains(said), "{said:?} is missing: {error}");
    }
    error
}
