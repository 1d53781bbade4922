//! What is ZooKeeper's own, in one program: each is linked with the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod conformance;
mod opening;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
