//! The engine that the processes work on here: Cassandra, each test in a namespace of its own.

use std::path::Path;

use sawmill::Sawmill;
use sawmill_cassandra::CassandraEngine;

use crate::server::{namespace, server_or_end};

/// Where one test's processes meet.
pub(crate) struct Place {
    url: String,
    namespace: String,
}

impl Place {
    pub(crate) fn new(_: &Path) -> Self {
        let namespace = namespace().as_str().to_owned();
        Self { url: server_or_end("processes on Cassandra"), namespace }
    }

    /// What a child must know to open it.
    pub(crate) fn store(&self) -> String {
        format!("{} {}", self.namespace, self.url)
    }

    /// Nothing is held by a process that stands still.
    pub(crate) async fn can_write(&self) -> bool {
        true
    }
}

/// Opens what [`Place::store`] names.
pub(crate) async fn open(store: &str) -> Sawmill {
    let (namespace, url) = store.split_once(' ').unwrap();
    Sawmill::options().engine(CassandraEngine).namespace(namespace).open(url).await.unwrap()
}
