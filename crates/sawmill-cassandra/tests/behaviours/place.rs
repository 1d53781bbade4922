//! The engine that the behaviours are shown on here: Cassandra, each test in a namespace of its own.

use sawmill::engine::Namespace;
use sawmill::{OpenOptions, Sawmill};
use sawmill_cassandra::{Cassandra, CassandraEngine};

use crate::server::{elsewhere, namespace, server_or_end};

/// What it is called when a test fails.
pub(crate) const ENGINE: &str = "cassandra";

/// Its two seams.
pub(crate) type Shelf = Cassandra;

/// A namespace that one test has to itself.
pub(crate) struct Place {
    url: String,
    namespace: Namespace,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { url: server_or_end("behaviours on Cassandra"), namespace: namespace() }
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
        elsewhere(async move { Cassandra::open(&url, &namespace).await.unwrap() })
    }
}

/// How to open a store of this engine.
pub(crate) fn options() -> OpenOptions {
    Sawmill::options().engine(CassandraEngine)
}
