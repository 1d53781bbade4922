//! Tests specific to Kafka, in one program, because each program links the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod checkup;
mod compaction;
mod conformance;
mod foreign;
mod pair;
mod recorded;
#[path = "../support/mod.rs"]
mod support;
