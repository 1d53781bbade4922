//! The store that behaviours are shown on: a namespace of PostgreSQL.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::sync::Arc;

use async_trait::async_trait;
use sawmill::engine::{Namespace, Store};
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::behaviours::{TestStore, unused_namespace};
use sawmill_postgres::{Postgres, PostgresEngine};

use crate::server::server;

/// A namespace that one test has to itself.
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
    async fn seams(&self) -> Store {
        let store = Postgres::open(&self.url().parse().unwrap(), &self.namespace, 4).await.unwrap();
        Store { log: Some(Arc::new(store.clone())), ledger: Some(Arc::new(store)) }
    }
}
