//! Bad input, through the public API: what cannot be done is refused, in words that say what was wrong and what to do,
//! and nothing is changed by it.
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

/// A database that is open and has the topic `jobs`, in a folder that is removed with it.
struct Store {
    mill: Sawmill,
    folder: TempDir,
}

impl Store {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
        let mill = sawmill_sqlite::open(&url).await.unwrap();
        mill.create_topic("jobs").await.unwrap();
        Self { mill, folder }
    }

    /// How many messages wait.
    async fn waiting(&self) -> u64 {
        let status = self.mill.status("jobs", "default").await.unwrap();
        status.waiting + status.scheduled
    }
}

/// The error of what must be refused, which is of this kind and says all this.
#[track_caller]
fn refused<T>(answer: Result<T, Error>, kind: ErrorKind, said: &[&str]) -> Error {
    let Err(error) = answer else { panic!("accepted, instead of refused with {said:?}") };
    assert_eq!(error.kind(), kind, "{error}");
    for said in said {
        assert!(error.to_string().contains(said), "{said:?} is missing: {error}");
    }
    error
}
