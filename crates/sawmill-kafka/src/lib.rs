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

mod address;
mod cluster;
mod coordination;
mod error;
mod ledger;
#[cfg(test)]
mod model_tests;
mod record;
mod rules;
mod send;
mod store;
mod tail;

pub use store::Kafka;
