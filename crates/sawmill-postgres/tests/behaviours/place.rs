//! The engine that the behaviours are shown on here: PostgreSQL, each test in a namespace of its own.

use std::sync::LazyLock;

use sawmill::engine::Namespace;
use sawmill::{OpenOptions, Sawmill};
use sawmill_postgres::{Postgres, PostgresEngine};
use tokio::runtime::{Builder, Runtime};

use crate::server::{namespace, server};

/// What it is called when a test fails.
pub(crate) const ENGINE: &str = "postgres";

/// Its two seams.
pub(crate) type Shelf = Postgres;

/// A namespace that one test has to itself.
pub(crate) struct Place {
    url: String,
    namespace: Namespace,
}

impl Place {
    pub(crate) fn new() -> Self {
        match server() {
            Ok(url) => Self { url, namespace: namespace() },
            // All tests of this program need one, and none of them can say so: it ends here, as skipped.
            Err(why) => {
                sawmill_conformance::skipped("behaviours on PostgreSQL", &why);
                std::process::exit(0);
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The store, opened as a process of its own would.
    pub(crate) async fn mill(&self) -> Sawmill {
        options().namespace(self.namespace.as_str()).open(&self.url).await.unwrap()
    }

    /// The two seams, without the library on top. Opened on a thread of its own, because tests do not wait for it.
    pub(crate) fn store(&self) -> Shelf {
        static RUNTIME: LazyLock<Runtime> =
            LazyLock::new(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap());
        let (url, namespace) = (self.url.parse().unwrap(), self.namespace.clone());
        let opening = std::thread::spawn(move || RUNTIME.block_on(Postgres::open(&url, &namespace, 4)));
        opening.join().unwrap().unwrap()
    }
}

/// How to open a store of this engine.
pub(crate) fn options() -> OpenOptions {
    Sawmill::options().engine(PostgresEngine::default())
}
