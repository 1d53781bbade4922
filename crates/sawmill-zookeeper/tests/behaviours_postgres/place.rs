//! The engines that the behaviours are shown on here: messages in PostgreSQL, the ledger in ZooKeeper, each test in a namespace of
//! its own.

use sawmill::engine::Namespace;
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::pair::Pair;
use sawmill_postgres::{Postgres, PostgresEngine};
use sawmill_zookeeper::{Zookeeper, ZookeeperEngine};

use crate::server::{elsewhere, postgres, random, server_or_end};

/// What it is called when a test fails.
pub(crate) const ENGINE: &str = "postgres with zookeeper";

/// Its two seams.
pub(crate) type Shelf = Pair<Postgres, Zookeeper>;

/// A namespace that one test has to itself.
pub(crate) struct Place {
    url: String,
    namespace: Namespace,
}

impl Place {
    pub(crate) fn new() -> Self {
        server_or_end("behaviours on PostgreSQL with ZooKeeper");
        match postgres() {
            Ok(url) => Self { url, namespace: format!("t-{:016x}", random()).parse().unwrap() },
            Err(why) => {
                sawmill_conformance::skipped("behaviours on PostgreSQL with ZooKeeper", &why);
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

    /// The two seams, without the library on top.
    pub(crate) fn store(&self) -> Shelf {
        let (url, namespace) = (self.url.parse().unwrap(), self.namespace.clone());
        elsewhere(async move {
            let ledger = server_or_end("behaviours").parse().unwrap();
            let ledger = Zookeeper::open(&ledger, &namespace).await.unwrap();
            Pair { log: Postgres::open(&url, &namespace, 4).await.unwrap(), ledger }
        })
    }
}

/// How to open such a store.
pub(crate) fn options() -> OpenOptions {
    let engines = Sawmill::options().engine(PostgresEngine::default()).engine(ZookeeperEngine);
    engines.ledger(server_or_end("behaviours"))
}
