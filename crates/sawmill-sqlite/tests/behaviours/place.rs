//! The engine that the behaviours are shown on: the only file here that knows it. Other engines bring their own, and take
//! the rest as it is.

use std::path::PathBuf;

use sawmill::{OpenOptions, Sawmill};
use sawmill_sqlite::{Sqlite, SqliteEngine};
use tempfile::TempDir;

/// What it is called when a test fails.
pub(crate) const ENGINE: &str = "sqlite";

/// Its two seams.
pub(crate) type Shelf = Sqlite;

/// A database in a folder that is removed with it.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().join("jobs.db")
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path().display())
    }

    /// The store, opened as a process of its own would.
    pub(crate) async fn mill(&self) -> Sawmill {
        options().open(&self.url()).await.unwrap()
    }

    /// The two seams, without the library on top.
    pub(crate) fn store(&self) -> Shelf {
        Sqlite::open(self.path(), &Default::default()).unwrap()
    }
}

/// How to open a store of this engine.
pub(crate) fn options() -> OpenOptions {
    Sawmill::options().engine(SqliteEngine)
}
