//! The ZooKeeper engine of Sawmill: a ledger, for any number of machines and with any log.
//!
//! It is for ZooKeeper 3.6 and later.
//!
//! ```no_run
//! # async fn example(messages: impl sawmill::engine::Engine) -> sawmill::Result<()> {
//! use sawmill::Sawmill;
//! use sawmill_zookeeper::ZookeeperEngine;
//!
//! let options = Sawmill::options().engine(messages).engine(ZookeeperEngine);
//! let mill = options.ledger("zookeeper://host1:2181,host2:2181").open("postgres://localhost/jobs").await?;
//! mill.push("emails", "Hello Alice").await?;
//! # Ok(())
//! # }
//! ```
//!
//! What stands after the hosts is the node below which everything is kept, and must be there; if nothing stands there, it is
//! `/sawmill`, and is made. Each namespace is a node below that one. With `user:password@` before the hosts all nodes belong to that
//! user, and nobody else can see them. `?session-timeout=SECONDS` says how long ZooKeeper waits for one who is silent: 10 if it is
//! not said, which is a worker's own TTL.
//!
//! An entry is a node, and its version is the node's. Members of a group are ephemeral nodes, so that ZooKeeper itself
//! removes one that is gone, where a session lasts at least as long as the member's TTL: else it would be removed while it
//! may still start messages. Reads come after a `sync`; all that matters is decided by versioned writes.
//!
//! A check-up finds nothing here. What makes ZooKeeper forget what it has acknowledged is set at its servers (`forceSync=no`), and they
//! tell no client of it; that there is only one of them loses nothing as long as its disk is there.

mod address;
#[cfg(test)]
mod anew_tests;
mod error;
mod hints;
mod ledger;
mod nodes;
mod session;
mod store;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::Result;
use sawmill::engine::{Capabilities, Engine, Namespace, Store, StoreUrl};

pub use store::Zookeeper;

/// The engine behind `zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH?session-timeout=SECONDS`: a ledger, to be named beside
/// the store that keeps the messages.
///
/// ```
/// use sawmill::engine::Engine;
/// use sawmill_zookeeper::ZookeeperEngine;
///
/// assert_eq!(ZookeeperEngine.scheme(), "zookeeper");
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct ZookeeperEngine;

#[async_trait]
impl Engine for ZookeeperEngine {
    fn name(&self) -> &'static str {
        "ZooKeeper"
    }

    fn scheme(&self) -> &'static str {
        "zookeeper"
    }

    /// It keeps no messages.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_payload_bytes: 0,
            idempotent_append: false,
            exactly_once: false,
            idle_poll: Duration::from_secs(1),
        }
    }

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<Store> {
        let ledger = Zookeeper::open(url, namespace).await?;
        Ok(Store { log: None, ledger: Some(Arc::new(ledger)) })
    }
}
