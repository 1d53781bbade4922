//! The Cassandra engine of Sawmill: a log and a ledger in one keyspace, for users who already run a ring.
//!
//! It supports Cassandra 4.0 and later, and is tested on Cassandra 5.0.
//!
//! ```no_run
//! # async fn example() -> sawmill::Result<()> {
//! let mill = sawmill::Sawmill::open("cassandra://user:password@host1,host2:9042/jobs?replication=3").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", "Hello Alice").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Settings at the end of the URL
//! | setting | meaning | default |
//! |---|---|---|
//! | `replication` | creates a missing keyspace: `3`, or `dc1:3,dc2:3` | it must exist |
//! | `consistency` | of reads and writes: `QUORUM`, `LOCAL_QUORUM` (see below), `ALL` | `QUORUM` |
//! | `serial` | of lightweight transactions: `SERIAL`, `LOCAL_SERIAL` (see below) | `SERIAL` |
//! | `datacenter` | preferred nodes; with `LOCAL_QUORUM` or `LOCAL_SERIAL`, the only ones used | any |
//! | `timeout` | how long an answer may take | `5s` |
//! | `ssl-mode` | `DISABLED`, or `VERIFY_IDENTITY` | `DISABLED` |
//! | `ssl-ca` | a file with the certificates of trusted authorities | the system's |
//! | `bucket` | of new topics: the span of time that shares a partition | `1m` |
//! | `settle` | of new topics: how late a message may arrive | `10s` |
//! | `keep` | of new topics: after what time an unread message expires | `10d` |
//!
//! # Late messages and wrong clocks
//! Messages are stored in partitions by topic, time and shard, ordered by the time that the pushing process
//! assigns. They are delivered at once; a message that arrives late among them is still found as long as the
//! settle window is open. With a window of 10 seconds, the clock of each machine may be off by 2 seconds (a
//! fifth of the window), and a push may take 4 seconds (two fifths). A push that takes longer is reported as
//! unknown, and never acknowledged.
//!
//! Messages that two machines push at nearly the same time may be delivered in either order.
//!
//! Opening a store compares this machine's clock with that of the node that answers. It fails if they are
//! further apart than two clocks may be (4 seconds with that window). Only `sawmill doctor` finds a clock
//! that goes wrong later.
//!
//! # Several datacenters
//! With `QUORUM` and `SERIAL`, the defaults, all promises hold wherever the replicas are and wherever workers
//! run; each write waits for a majority of all replicas. `LOCAL_QUORUM` and `LOCAL_SERIAL` wait for the
//! replicas of one datacenter only. They are safe only if all users of the store use the same datacenter: a
//! reader in another one may be past a message before it arrives there, and then **the message is lost
//! although it was acknowledged**. If a datacenter is lost, its latest messages are lost too. For this reason
//! these levels require `datacenter` if replicas are in several datacenters, and no node of another
//! datacenter is used, even if none of that one answers. Set the same datacenter in every URL.

mod address;
mod checkup;
mod connection;
mod error;
mod ledger;
mod log;
mod schema;
mod store;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill_engine::Result;
use sawmill_engine::storage::{Capabilities, Engine, Namespace, OpenedStore, StoreUrl};

pub use store::Cassandra;

const CAPABILITIES: Capabilities = Capabilities {
    // The server accepts writes up to half of a commit log segment: 16 MiB by default.
    max_payload_bytes: 4 << 20,
    idempotent_append: true,
    exactly_once: false,
    idle_poll: Duration::from_millis(500),
};

/// The engine behind `cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE`.
///
/// ```
/// use sawmill_engine::storage::Engine;
/// use sawmill_cassandra::CassandraEngine;
///
/// assert_eq!(CassandraEngine.scheme(), "cassandra");
/// assert!(CassandraEngine.capabilities().idempotent_append);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct CassandraEngine;

#[async_trait]
impl Engine for CassandraEngine {
    fn name(&self) -> &'static str {
        "Cassandra"
    }

    fn scheme(&self) -> &'static str {
        "cassandra"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<OpenedStore> {
        let cassandra = Cassandra::open(url, namespace).await?;
        Ok(OpenedStore { log: Some(Arc::new(cassandra.clone())), ledger: Some(Arc::new(cassandra)) })
    }
}
