//! The ZooKeeper engine of Sawmill: a ledger, for any number of machines and with any log.
//!
//! Requires ZooKeeper 3.6 or later.
//!
//! ```no_run
//! # async fn example() -> sawmill::Result<()> {
//! use sawmill::Sawmill;
//!
//! let mill = Sawmill::options().ledger("zookeeper://host1:2181,host2:2181").open("postgres://localhost/jobs").await?;
//! mill.push("emails", "Hello Alice").await?;
//! # Ok(())
//! # }
//! ```
//!
//! The path after the hosts names the node below which everything is kept; that node must exist. Without a
//! path it is `/sawmill`, which is created. Each namespace is a node below it. With `user:password@` before
//! the hosts, all nodes belong to that user and nobody else can see them. `?session-timeout=SECONDS` sets how
//! long ZooKeeper waits for a silent client. The default is 10, which is also a worker's default TTL.
//!
//! An entry is a node, and its version is derived from the node's. Members of a group are ephemeral nodes, so
//! ZooKeeper itself removes a dead member, if a session lasts at least as long as the member's TTL. Otherwise
//! the node would be removed while the member may still start messages. Reads come after a `sync`;
//! correctness rests on versioned writes.
//!
//! A check-up finds nothing here. ZooKeeper loses acknowledged data only through a setting of its servers
//! (`forceSync=no`), which they do not report to clients. A single server loses nothing as long as its disk
//! survives.

mod address;
mod error;
mod ledger;
mod nodes;
mod notifier;
mod session;
mod store;
#[cfg(test)]
mod version_tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill_engine::Result;
use sawmill_engine::storage::{Capabilities, Engine, Namespace, OpenedStore, StoreUrl};

pub use store::Zookeeper;

/// The engine behind `zookeeper://USER:PASSWORD@HOST:PORT,HOST:PORT/PATH?session-timeout=SECONDS`: a ledger,
/// used together with a store that keeps the messages.
///
/// ```
/// use sawmill_engine::storage::Engine;
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

    /// The payload limit is 0, because this engine keeps no messages.
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            max_payload_bytes: 0,
            idempotent_append: false,
            exactly_once: false,
            idle_poll: Duration::from_secs(1),
        }
    }

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<OpenedStore> {
        let ledger = Zookeeper::open(url, namespace).await?;
        Ok(OpenedStore { log: None, ledger: Some(Arc::new(ledger)) })
    }
}
