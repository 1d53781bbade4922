//! The engine that the processes work on: a file in their folder. Other engines bring their own, and take of the rest what is
//! not about files.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use sawmill::Sawmill;
use sawmill::env::Env;

/// Where one test's processes meet.
pub(crate) struct Place {
    folder: PathBuf,
}

impl Place {
    pub(crate) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// What a child must know to open it.
    pub(crate) fn store(&self) -> String {
        format!("sqlite:{}", database(&self.folder).display())
    }

    /// True if one gets a turn to write: no process holds the file in the middle of a transaction.
    pub(crate) async fn can_write(&self) -> bool {
        let connection = Connection::open(database(&self.folder)).unwrap();
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

/// Opens what [`Place::store`] names.
pub(crate) async fn open(store: &str) -> Sawmill {
    sawmill_sqlite::open(store).await.unwrap()
}

/// The database in this folder.
pub(crate) fn database(folder: &Path) -> PathBuf {
    folder.join("jobs.db")
}
