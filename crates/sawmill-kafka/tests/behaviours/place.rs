//! The engine that the behaviours are shown on here: Kafka, each test in a namespace of its own.

use sawmill::engine::Namespace;
use sawmill::{OpenOptions, Sawmill};
use sawmill_kafka::{Kafka, KafkaEngine};

use crate::server::{elsewhere, or_end, random, server};

/// What it is called when a test fails.
pub(crate) const ENGINE: &str = "kafka";

/// Its two seams.
pub(crate) type Shelf = Kafka;

/// A namespace that one test has to itself.
pub(crate) struct Place {
    url: String,
    namespace: Namespace,
}

impl Place {
    pub(crate) fn new() -> Self {
        let url = or_end(server(), "behaviours on Kafka");
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
        elsewhere(async move { Kafka::open(&url, &namespace).await.unwrap() })
    }
}

/// How to open such a store.
pub(crate) fn options() -> OpenOptions {
    Sawmill::options().engine(KafkaEngine)
}
