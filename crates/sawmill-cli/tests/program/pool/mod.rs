//! `sawmill pool-worker` on a real Kafka broker: behaviours K1 to K10, by id.

#![cfg(feature = "kafka")]
#![allow(clippy::disallowed_methods, reason = "these tests run in real time")]

mod claims;
mod containers;
mod crowd;
mod fetching;
mod fixture;
mod instances;
mod orders;
