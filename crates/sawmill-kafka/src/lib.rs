//! The Kafka engine of Sawmill: a log on partitions, and a ledger on a compacted topic.
//!
//! ```no_run
//! # async fn example() -> sawmill::Result<()> {
//! let mill = sawmill_kafka::open("kafka://localhost:9092").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", "Hello Alice").await?;
//! # Ok(())
//! # }
//! ```
//!
//! A URL is `kafka://USER:PASSWORD@HOST:PORT,HOST:PORT?SETTINGS`. The settings: `tls=on` and `ca=FILE`; `sasl=plain`, `scram-sha-256` or
//! `scram-sha-512`; `replication=3`, on how many brokers each record lies; `coordination=TOPIC`, a coordination topic of
//! one's own. Encryption and SCRAM need the feature `tls`.
//!
//! **Messages.** A shard is a partition, and a key is where Kafka's own producers put it. In the default namespace a topic has the same
//! name in Kafka, and a topic that is there already can be used: what others write to it is handled, with payload, key
//! and headers, and what is pushed here others can read. Partitions are read as they are assigned by hand; there is no
//! consumer group that would have to agree. Each push is confirmed by all brokers that keep it (`acks=all`), by a producer that does not
//! double what it sends again. But two pushes with one id are two records: see
//! [`idempotent_append`](sawmill::Capabilities::idempotent_append).
//!
//! **Due times.** Kafka has none: a second topic keeps what is not due, and who promotes has its times in memory.
//!
//! **The ledger** and the list of topics are entries of one compacted topic, `sawmill.NAMESPACE.coordination`. See `rules.rs` for how one
//! order of records decides who may change an entry.
//!
//! **What is absent.** Kafka's own retention is off for topics that are made here, since it drops what nobody has read; a topic that
//! others have made keeps theirs. Partitions cannot be added to a topic.
//!
//! **A check-up** names topics that fewer than two brokers have, or for which one broker's word is enough, or that a broker may lead that
//! lacks some: what such a topic has acknowledged, the crash of one machine may take. The clocks of brokers are not looked at.

mod address;
mod aside;
mod checkup;
mod cluster;
mod coordination;
mod error;
mod fetch;
mod ledger;
mod log;
mod lookback;
#[cfg(test)]
mod model_tests;
mod murmur;
mod open_topic;
mod promote;
mod record;
mod rules;
mod send;
mod store;
mod tail;
mod topics;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::{Capabilities, Engine, Namespace, Store, StoreUrl};
use sawmill::{Result, Sawmill};

pub use murmur::partition_of;
pub use store::Kafka;

const CAPABILITIES: Capabilities = Capabilities {
    max_payload_bytes: 8 << 20,
    // Two records with one id are two records.
    idempotent_append: false,
    exactly_once: false,
    idle_poll: Duration::from_secs(1),
};

/// The engine behind `kafka://HOST:PORT,HOST:PORT`.
///
/// ```
/// use sawmill::engine::Engine;
/// use sawmill_kafka::KafkaEngine;
///
/// assert_eq!(KafkaEngine.scheme(), "kafka");
/// assert!(!KafkaEngine.capabilities().idempotent_append);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct KafkaEngine;

#[async_trait]
impl Engine for KafkaEngine {
    fn name(&self) -> &'static str {
        "Kafka"
    }

    fn scheme(&self) -> &'static str {
        "kafka"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<Store> {
        let kafka = Arc::new(Kafka::open(url, namespace).await?);
        Ok(Store { log: Some(kafka.clone()), ledger: Some(kafka) })
    }
}

/// Opens a store by URL: `kafka://HOST:PORT`, or `memory:`.
///
/// For a namespace, a ledger elsewhere, or other engines beside this one, use [`Sawmill::options`] and add
/// [`KafkaEngine`] to it.
pub async fn open(url: &str) -> Result<Sawmill> {
    Sawmill::options().engine(KafkaEngine).open(url).await
}
