//! The Kafka engine of Sawmill: a log on partitions, and a ledger on a compacted topic.
//!
//! ```no_run
//! # async fn example() -> sawmill::Result<()> {
//! let mill = sawmill::Sawmill::open("kafka://localhost:9092").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", "Hello Alice").await?;
//! # Ok(())
//! # }
//! ```
//!
//! A URL is `kafka://USER:PASSWORD@HOST:PORT,HOST:PORT?SETTINGS`. The settings are `tls=on` and `ca=FILE`;
//! `sasl=plain`, `scram-sha-256` or `scram-sha-512`; `replication=3`, the replication factor of new topics;
//! and `coordination=TOPIC`, a coordination topic of your own. TLS and SCRAM need the feature `tls`.
//!
//! **Messages.** A shard is a partition. A key goes to the partition that Kafka's own producers choose. In
//! the default namespace a topic has the same name in Kafka, and an existing Kafka topic can be used: records
//! of other producers are handled with payload, key and headers, and other consumers can read what Sawmill
//! pushes. Partitions are assigned by hand, without a consumer group. Each push is confirmed by all in-sync
//! replicas (`acks=all`) through an idempotent producer, whose retries write no duplicates. Two pushes with
//! the same id are still two records: see
//! [`idempotent_append`](sawmill_engine::storage::Capabilities::idempotent_append).
//!
//! **Due times.** Kafka has none. A second topic keeps messages that are not due; the process that promotes
//! them holds their due times in memory.
//!
//! **The ledger** and the list of topics are entries of one compacted topic,
//! `sawmill.NAMESPACE.coordination`. `rules.rs` explains how the order of its records decides which writer
//! may change an entry.
//!
//! **What is absent.** Kafka's own retention is off for topics that Sawmill creates, since it would drop
//! unread messages; existing topics keep theirs. Partitions cannot be added to a topic.
//!
//! **The check-up** names topics with fewer than two replicas, topics where one broker alone may acknowledge
//! a write, and topics where a broker that lacks records may become leader. The crash of one machine may lose
//! acknowledged messages of such a topic. The brokers' clocks are not checked.

mod address;
mod brokers;
mod checkup;
mod error;
mod ledger;
mod log;
mod store;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill_engine::Result;
use sawmill_engine::storage::{Capabilities, Engine, Namespace, OpenedStore, StoreUrl};

pub use log::murmur::partition_of;
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
/// use sawmill_engine::storage::Engine;
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

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<OpenedStore> {
        let kafka = Arc::new(Kafka::open(url, namespace).await?);
        Ok(OpenedStore { log: Some(kafka.clone()), ledger: Some(kafka) })
    }
}
