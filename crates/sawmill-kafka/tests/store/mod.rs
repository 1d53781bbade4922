//! The stores for the behaviour tests: namespaces of Kafka, alone and with a ledger in PostgreSQL.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::Arc;

use async_trait::async_trait;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::behaviours::{TestStore, unused_namespace};
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_kafka::KafkaEngine;
use sawmill_postgres::{Postgres, PostgresEngine};

use crate::server::{postgres, server};

/// A namespace used by one test alone.
pub(crate) struct OnServer {
    namespace: Namespace,
}

#[async_trait]
impl TestStore for OnServer {
    fn engine() -> &'static str {
        "kafka"
    }
    fn lacking() -> Option<String> {
        server().err()
    }
    fn new() -> Self {
        Self { namespace: unused_namespace() }
    }
    fn options() -> OpenOptions {
        Sawmill::options().engine(KafkaEngine)
    }
    fn shard_of(key: &[u8], shards: u16) -> u16 {
        sawmill_kafka::partition_of(key, shards)
    }
    fn url(&self) -> String {
        server().unwrap()
    }
    fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }
    async fn seams(&self) -> OpenedStore {
        KafkaEngine.open(&self.url().parse().unwrap(), &self.namespace).await.unwrap()
    }
}

/// The same, with the ledger in PostgreSQL.
pub(crate) struct WithPostgres {
    namespace: Namespace,
}

#[async_trait]
impl TestStore for WithPostgres {
    fn engine() -> &'static str {
        "kafka with postgres"
    }
    fn lacking() -> Option<String> {
        server().and(postgres()).err()
    }
    fn new() -> Self {
        Self { namespace: unused_namespace() }
    }
    fn options() -> OpenOptions {
        let engines = Sawmill::options().engine(KafkaEngine).engine(PostgresEngine::default());
        engines.ledger(postgres().unwrap())
    }
    fn shard_of(key: &[u8], shards: u16) -> u16 {
        sawmill_kafka::partition_of(key, shards)
    }
    fn url(&self) -> String {
        server().unwrap()
    }
    fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }
    async fn seams(&self) -> OpenedStore {
        let log = KafkaEngine.open(&self.url().parse().unwrap(), &self.namespace).await.unwrap();
        let ledger = postgres().unwrap().parse().unwrap();
        let ledger = Postgres::open(&ledger, &self.namespace, 4).await.unwrap();
        OpenedStore { log: log.log, ledger: Some(Arc::new(ledger)) }
    }
}
