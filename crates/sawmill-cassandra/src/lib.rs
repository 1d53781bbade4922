//! The Cassandra engine of Sawmill: a log and a ledger in one keyspace, for those who already run a ring.
//!
//! It is for Cassandra 4.0 and later, and is tested on Cassandra 5.0.
//!
//! ```no_run
//! # async fn example() -> sawmill::Result<()> {
//! let mill = sawmill_cassandra::open("cassandra://user:password@host1,host2:9042/jobs?replication=3").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", "Hello Alice").await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Settings at the end of the URL
//! | setting | meaning | default |
//! |---|---|---|
//! | `replication` | makes the keyspace if it is missing: `3`, or `dc1:3,dc2:3` | it must exist |
//! | `consistency` | of reads and writes: `QUORUM`, `LOCAL_QUORUM` (see below), `ALL` | `QUORUM` |
//! | `serial` | of what is decided: `SERIAL`, `LOCAL_SERIAL` (see below) | `SERIAL` |
//! | `datacenter` | the nodes to ask first; with `LOCAL_QUORUM` or `LOCAL_SERIAL`, those to ask alone | any |
//! | `timeout` | how long an answer may take | `5s` |
//! | `ssl-mode` | `DISABLED`, or `VERIFY_IDENTITY` | `DISABLED` |
//! | `ssl-ca` | a file with the certificates of those whose word is taken | the system's |
//! | `bucket` | of topics that are made: how much time shares a partition | `1m` |
//! | `settle` | of topics that are made: how late a message may arrive | `10s` |
//! | `keep` | of topics that are made: after what time a message expires that nobody has read | `10d` |
//!
//! # How late, and how wrong a clock
//! Messages lie in partitions by topic, time and shard, in the order of the times that those who push them give them. They are delivered at
//! once; what arrives later among them is found as long as the settle window is open. With a window of 10 seconds the clock of
//! each machine may be 2 seconds off (a fifth of the window), and a push may take 4 seconds (two fifths); one
//! that takes longer is answered as unknown, and never acknowledged.
//!
//! What was pushed by two machines at nearly the same time may be delivered in either order.
//!
//! Opening a store compares this machine's clock with that of the node that answers, and refuses if they are further apart than two clocks may be
//! (4 seconds with that window). A clock that goes wrong later is found by `sawmill doctor` alone.
//!
//! # Several datacenters
//! With `QUORUM` and `SERIAL`, the defaults, everything holds wherever the copies are and wherever workers run; each write waits for a
//! majority of all copies. `LOCAL_QUORUM` and `LOCAL_SERIAL` wait for the copies of one datacenter. They are safe only if everybody who uses the
//! store uses the same one: who works in another may be past a message before it arrives there, and then **it is lost though it was
//! acknowledged**; and the messages of the last moments are lost with a datacenter that is lost. So where copies lie in several
//! datacenters, these levels want `datacenter`, and no node of another is asked, even if none of that one answers. Say the same in every URL.

mod address;
mod append;
mod checkup;
mod error;
mod gather;
mod ids;
mod ledger;
mod link;
mod log;
mod look;
mod pack;
mod promote;
mod pulse;
mod row;
mod scan;
mod schema;
mod seal;
mod segment;
mod skew;
mod stamp;
mod store;
mod tail;
mod tls;
mod topics;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::{Capabilities, Engine, Namespace, Store, StoreUrl};
use sawmill::{Result, Sawmill};

pub use store::Cassandra;

const CAPABILITIES: Capabilities = Capabilities {
    // Half of a segment of the server's commit log, 16 MiB unless it is told otherwise, is the most that it takes.
    max_payload_bytes: 4 << 20,
    idempotent_append: true,
    exactly_once: false,
    idle_poll: Duration::from_millis(500),
};

/// The engine behind `cassandra://USER:PASSWORD@HOST:PORT,HOST:PORT/KEYSPACE`.
///
/// ```
/// use sawmill::engine::Engine;
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

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<Store> {
        let cassandra = Cassandra::open(url, namespace).await?;
        Ok(Store { log: Some(Arc::new(cassandra.clone())), ledger: Some(Arc::new(cassandra)) })
    }
}

/// Opens a store by URL: `cassandra://USER:PASSWORD@HOST:PORT/KEYSPACE`, or `memory:`.
///
/// For a namespace, a ledger elsewhere, or other engines beside this one, use [`Sawmill::options`] and add
/// [`CassandraEngine`] to it.
pub async fn open(url: &str) -> Result<Sawmill> {
    Sawmill::options().engine(CassandraEngine).open(url).await
}
