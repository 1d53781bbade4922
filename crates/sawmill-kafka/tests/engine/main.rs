//! What is Kafka's own, in one program: each is linked with the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod checkup;
mod compaction;
mod conformance;
mod foreign;
mod pair;
#[path = "../support/mod.rs"]
mod support;
