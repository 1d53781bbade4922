//! The Kafka engine passes both suites.

use async_trait::async_trait;
use sawmill_conformance::{Factory, Reach};
use sawmill_engine::storage::{Engine, Namespace, OpenedStore};
use sawmill_kafka::KafkaEngine;

/// The broker, or why there is none.
struct OnServer(Result<String, String>);

#[async_trait]
impl Factory for OnServer {
    async fn open(&self, namespace: &Namespace) -> OpenedStore {
        let url = self.0.as_ref().expect("a broker").parse().expect("a URL");
        KafkaEngine.open(&url, namespace).await.expect("a store")
    }

    fn lacking(&self) -> Option<String> {
        self.0.as_ref().err().cloned()
    }

    fn hints_reach(&self) -> Reach {
        Reach::EveryHandle
    }
}

mod log {
    sawmill_conformance::log_suite!(super::OnServer(crate::support::server()), without(idempotent_append));
}

mod ledger {
    sawmill_conformance::ledger_suite!(super::OnServer(crate::support::server()));
}
