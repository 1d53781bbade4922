//! A file that an earlier version has written.

use std::fs;
use std::path::Path;

use async_trait::async_trait;
use rusqlite::Connection;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::recorded::{Recorded, check};
use sawmill_sqlite::SqliteEngine;

use crate::support::Place;

const FILE: &str = "jobs.db";

#[async_trait]
impl Recorded for Place {
    fn options(&self) -> OpenOptions {
        Sawmill::options().engine(SqliteEngine)
    }
    fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }
    async fn save(&self, folder: &Path) {
        let connection = Connection::open(self.path()).unwrap();
        connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        fs::copy(self.path(), folder.join(FILE)).unwrap();
    }
    async fn load(&self, folder: &Path) {
        fs::copy(folder.join(FILE), self.path()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_an_earlier_version_goes_on() {
    check(&Place::new(), Path::new("tests/recorded/f99b6a3")).await;
}
