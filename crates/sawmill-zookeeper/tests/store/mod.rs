//! The stores for the behaviour tests: a ledger in ZooKeeper, with messages in a file or in PostgreSQL.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use async_trait::async_trait;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::behaviours::{TestStore, unused_namespace};
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_postgres::{Postgres, PostgresEngine};
use sawmill_sqlite::SqliteEngine;
use sawmill_zookeeper::ZookeeperEngine;
use tempfile::TempDir;

use crate::server::{postgres, server};

async fn ledger(namespace: &Namespace) -> OpenedStore {
    ZookeeperEngine.open(&server().unwrap().parse().unwrap(), namespace).await.unwrap()
}

/// Messages in a folder that is removed on drop, and the ledger in a namespace of this test alone.
pub(crate) struct WithSqlite {
    folder: TempDir,
    namespace: Namespace,
}

#[async_trait]
impl TestStore for WithSqlite {
    fn engine() -> &'static str {
        "sqlite with zookeeper"
    }
    fn lacking() -> Option<String> {
        server().err()
    }
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), namespace: unused_namespace() }
    }
    fn options() -> OpenOptions {
        Sawmill::options().engine(SqliteEngine).engine(ZookeeperEngine).ledger(server().unwrap())
    }
    fn url(&self) -> String {
        format!("sqlite:{}", self.folder.path().join("jobs.db").display())
    }
    fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }
    async fn seams(&self) -> OpenedStore {
        let log = SqliteEngine.open(&self.url().parse().unwrap(), &self.namespace).await.unwrap();
        OpenedStore { log: log.log, ledger: ledger(&self.namespace).await.ledger }
    }
}

/// Messages in PostgreSQL.
pub(crate) struct WithPostgres {
    namespace: Namespace,
}

#[async_trait]
impl TestStore for WithPostgres {
    fn engine() -> &'static str {
        "postgres with zookeeper"
    }
    fn lacking() -> Option<String> {
        server().and(postgres()).err()
    }
    fn new() -> Self {
        Self { namespace: unused_namespace() }
    }
    fn options() -> OpenOptions {
        let engines = Sawmill::options().engine(PostgresEngine::default()).engine(ZookeeperEngine);
        engines.ledger(server().unwrap())
    }
    fn url(&self) -> String {
        postgres().unwrap()
    }
    fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }
    async fn seams(&self) -> OpenedStore {
        let log = Postgres::open(&self.url().parse().unwrap(), &self.namespace, 4).await.unwrap();
        OpenedStore { log: Some(Arc::new(log)), ledger: ledger(&self.namespace).await.ledger }
    }
}
