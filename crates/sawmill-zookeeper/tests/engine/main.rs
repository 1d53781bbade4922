//! Tests of ZooKeeper's own behaviour, in one program because each program links the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod conformance;
mod opening;
mod recorded;
mod sessions;
#[path = "../support/mod.rs"]
mod support;
