//! The store that the behaviours are tested on: a database of MySQL or MariaDB.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use async_trait::async_trait;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::behaviours::TestStore;
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_mysql::MysqlEngine;

use crate::server::{Database, server};

/// A database of the test's own.
pub(crate) struct OnServer {
    database: Database,
}

#[async_trait]
impl TestStore for OnServer {
    fn engine() -> &'static str {
        "mysql"
    }
    fn lacking() -> Option<String> {
        server().err()
    }
    fn new() -> Self {
        Self { database: Database::new_blocking(server().unwrap()) }
    }
    fn options() -> OpenOptions {
        Sawmill::options().engine(MysqlEngine)
    }
    fn url(&self) -> String {
        self.database.url()
    }
    async fn seams(&self) -> OpenedStore {
        MysqlEngine.open(&self.url().parse().unwrap(), &Namespace::default()).await.unwrap()
    }
}
