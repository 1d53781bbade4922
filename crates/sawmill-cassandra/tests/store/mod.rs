//! The store for the behaviour tests: a namespace of Cassandra.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use async_trait::async_trait;
use sawmill::{OpenOptions, Sawmill};
use sawmill_cassandra::CassandraEngine;
use sawmill_conformance::behaviours::{TestStore, unused_namespace};
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};

use crate::server::server;

/// A namespace for one test.
pub(crate) struct OnServer {
    namespace: Namespace,
}

#[async_trait]
impl TestStore for OnServer {
    fn engine() -> &'static str {
        "cassandra"
    }
    fn lacking() -> Option<String> {
        server().err()
    }
    fn new() -> Self {
        Self { namespace: unused_namespace() }
    }
    fn options() -> OpenOptions {
        Sawmill::options().engine(CassandraEngine)
    }
    fn url(&self) -> String {
        server().unwrap()
    }
    fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }
    async fn seams(&self) -> OpenedStore {
        CassandraEngine.open(&self.url().parse().unwrap(), &self.namespace).await.unwrap()
    }
}
