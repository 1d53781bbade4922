//! The PostgreSQL engine passes both suites.

mod support;

use async_trait::async_trait;
use sawmill::engine::{Engine, Namespace, Store};
use sawmill_conformance::Factory;
use sawmill_postgres::PostgresEngine;

/// The server that the tests are given.
struct OnServer;

#[async_trait]
impl Factory for OnServer {
    async fn open(&self, namespace: &Namespace) -> Store {
        let url = support::server().expect("a server").parse().expect("a URL");
        PostgresEngine::default().open(&url, namespace).await.expect("a database")
    }

    fn lacking(&self) -> Option<String> {
        support::server().err()
    }
}

mod log {
    sawmill_conformance::log_suite!(super::OnServer);
}

mod ledger {
    sawmill_conformance::ledger_suite!(super::OnServer);
}
