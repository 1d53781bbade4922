//! The engines that the behaviours are shown on here: messages on Kafka, the ledger in PostgreSQL, each test in a namespace of
//! its own.

use sawmill::engine::Namespace;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::pair::Pair;
use sawmill_kafka::{Kafka, KafkaEngine};
use sawmill_postgres::{Postgres, PostgresEngine};

use crate::server::{elsewhere, or_end, postgres, random, server};

/// What it is called when a test fails.
pub(crate) const ENGINE: &str = "kafka with postgres";

/// Its two seams.
pub(crate) type Shelf = Pair<Kafka, Postgres>;

/// A namespace that one test has to itself.
pub(crate) struct Place {
    url: String,
    namespace: Namespace,
}

const WHAT: &str = "behaviours on Kafka with PostgreSQL";

impl Place {
    pub(crate) fn new() -> Self {
        or_end(postgres(), WHAT);
        let url = or_end(server(), WHAT);
        Self { url, namespace: format!("t-{:016x}", random()).parse().unwrap() }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The store, opened as a process of its own would.
    pub(crate) async fn mill(&self) -> Sawmill {
        options().namespace(self.namespace.as_str()).open(&self.url).await.unwrap()
    }

    /// The two seams, without the library on top.
    pub(crate) fn store(&self) -> Shelf {
        let (url, namespace) = (self.url.parse().unwrap(), self.namespace.clone());
        elsewhere(async move {
            let ledger = or_end(postgres(), WHAT).parse().unwrap();
            let ledger = Postgres::open(&ledger, &namespace, 4).await.unwrap();
            Pair { log: Kafka::open(&url, &namespace).await.unwrap(), ledger }
        })
    }
}

/// How to open such a store.
pub(crate) fn options() -> OpenOptions {
    let engines = Sawmill::options().engine(KafkaEngine).engine(PostgresEngine::default());
    engines.ledger(or_end(postgres(), WHAT))
}
