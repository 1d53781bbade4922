//! Messages on Kafka and the ledger in PostgreSQL: the pair passes both suites.

mod support;

use async_trait::async_trait;
use sawmill::engine::{Engine, Namespace, Store};
use sawmill_conformance::{Factory, Reach};
use sawmill_kafka::KafkaEngine;
use sawmill_postgres::PostgresEngine;

/// A broker and a database, if there are both.
struct Pair(Result<(String, String), String>);

fn both() -> Result<(String, String), String> {
    Ok((support::server()?, support::postgres()?))
}

#[async_trait]
impl Factory for Pair {
    async fn open(&self, namespace: &Namespace) -> Store {
        let (log, ledger) = self.0.as_ref().expect("both");
        let (log, ledger) = (log.parse().expect("a URL"), ledger.parse().expect("a URL"));
        let log = KafkaEngine.open(&log, namespace).await.expect("a log").log;
        let ledger = PostgresEngine::default().open(&ledger, namespace).await.expect("a ledger").ledger;
        Store { log, ledger }
    }

    fn lacking(&self) -> Option<String> {
        self.0.as_ref().err().cloned()
    }

    fn hints_reach(&self) -> Reach {
        Reach::EveryHandle
    }
}

mod log {
    sawmill_conformance::log_suite!(super::Pair(super::both()));
}

mod ledger {
    sawmill_conformance::ledger_suite!(super::Pair(super::both()));
}
