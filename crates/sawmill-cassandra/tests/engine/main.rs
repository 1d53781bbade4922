//! What is Cassandra's own, in one program: each is linked with the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod conformance;
mod late;
mod long;
mod lost;
mod pair;
mod queue;
#[path = "../support/mod.rs"]
mod support;
mod unfit;
