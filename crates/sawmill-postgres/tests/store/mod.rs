//! The store that the behaviours are tested on: a namespace of PostgreSQL.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;

use async_trait::async_trait;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::behaviours::{TestStore, unused_namespace};
use sawmill_engine::storage::{Namespace, OpenedStore};
use sawmill_postgres::{Postgres, PostgresEngine};

use crate::server::server;

/// A namespace of the test's own.
pub(crate) struct OnServer {
    namespace: Namespace,
}

#[async_trait]
impl TestStore for OnServer {
    fn engine() -> &'static str {
        "postgres"
    }
    fn lacking() -> Option<String> {
        server().err()
    }
    fn new() -> Self {
        Self { namespace: unused_namespace() }
    }
    fn options() -> OpenOptions {
        Sawmill::options().engine(PostgresEngine::default())
    }
    fn url(&self) -> String {
        server().unwrap()
    }
    fn namespace(&self) -> Namespace {
        self.namespace.clone()
    }
    async fn seams(&self) -> OpenedStore {
        let store = Postgres::open(&self.url().parse().unwrap(), &self.namespace, 4).await.unwrap();
        OpenedStore { log: Some(Arc::new(store.clone())), ledger: Some(Arc::new(store)) }
    }
}
