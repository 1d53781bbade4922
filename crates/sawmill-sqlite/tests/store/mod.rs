//! The store for the behaviour tests: a file.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::behaviours::TestStore;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_sqlite::SqliteEngine;
use tempfile::TempDir;

/// A database in a folder that is removed on drop.
pub(crate) struct InFile {
    folder: TempDir,
}

impl InFile {
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("jobs.db")
    }
}

#[async_trait]
impl TestStore for InFile {
    fn engine() -> &'static str {
        "sqlite"
    }
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }
    fn options() -> OpenOptions {
        Sawmill::options().engine(SqliteEngine)
    }
    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }
    async fn seams(&self) -> OpenedStore {
        SqliteEngine.open(&self.url().parse().unwrap(), &Namespace::default()).await.unwrap()
    }
    /// A process stopped in the middle of a transaction holds the file.
    async fn can_write(&self) -> bool {
        let connection = Connection::open(self.path()).unwrap();
        connection.busy_timeout(Duration::ZERO).unwrap();
        for _ in 0..300 {
            if connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK").is_ok() {
                return true;
            }
            Env::system().sleep(Duration::from_millis(1)).await;
        }
        false
    }
}
