//! Runs the conformance suites against the SQLite engine.

use async_trait::async_trait;
use sawmill_conformance::Factory;
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_sqlite::SqliteEngine;

/// A file in a folder that is removed on drop.
struct InFile(tempfile::TempDir);

impl Default for InFile {
    fn default() -> Self {
        Self(tempfile::tempdir().expect("a folder for the database"))
    }
}

#[async_trait]
impl Factory for InFile {
    async fn open(&self, namespace: &Namespace) -> OpenedStore {
        let url = format!("sqlite:{}", self.0.path().join("conformance.db").display());
        let url = url.parse().expect("a URL");
        SqliteEngine.open(&url, namespace).await.expect("a database")
    }
}

mod log {
    sawmill_conformance::log_suite!(super::InFile::default());
}

mod ledger {
    sawmill_conformance::ledger_suite!(super::InFile::default());
}
