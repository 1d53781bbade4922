//! The store that behaviours are shown on: a database of MySQL or MariaDB.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use async_trait::async_trait;
use sawmill::engine::{Engine, Namespace, Store};
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::behaviours::TestStore;
use sawmill_mysql::MysqlEngine;

use crate::server::{Database, server};

/// A database that one test has to itself.
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
        Self { database: Database::made_elsewhere(server().unwrap()) }
    }
    fn options() -> OpenOptions {
        Sawmill::options().engine(MysqlEngine)
    }
    fn url(&self) -> String {
        self.database.url()
    }
    async fn seams(&self) -> Store {
        MysqlEngine.open(&self.url().parse().unwrap(), &Namespace::default()).await.unwrap()
    }
}
