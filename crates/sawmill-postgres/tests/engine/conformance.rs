//! Runs both conformance suites on the most common version of PostgreSQL, on the newest one, and behind a
//! pooler in transaction mode.

use async_trait::async_trait;
use sawmill_conformance::Factory;
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_postgres::PostgresEngine;

/// The server that this environment variable names.
struct On(&'static str);

#[async_trait]
impl Factory for On {
    async fn open(&self, namespace: &Namespace) -> OpenedStore {
        let url = crate::support::server_in(self.0).expect("a server").parse().expect("a URL");
        PostgresEngine::default().open(&url, namespace).await.expect("a database")
    }

    fn lacking(&self) -> Option<String> {
        crate::support::server_in(self.0).err()
    }
}

const USUAL: On = On("SAWMILL_TEST_POSTGRES");
const NEWEST: On = On("SAWMILL_TEST_POSTGRES_18");
const POOLED: On = On("SAWMILL_TEST_PGBOUNCER");

mod log {
    sawmill_conformance::log_suite!(super::USUAL);
}

mod ledger {
    sawmill_conformance::ledger_suite!(super::USUAL);
}

mod newest {
    mod log {
        sawmill_conformance::log_suite!(super::super::NEWEST);
    }
    mod ledger {
        sawmill_conformance::ledger_suite!(super::super::NEWEST);
    }
}

mod pooled {
    mod log {
        sawmill_conformance::log_suite!(super::super::POOLED);
    }
    mod ledger {
        sawmill_conformance::ledger_suite!(super::super::POOLED);
    }
}
