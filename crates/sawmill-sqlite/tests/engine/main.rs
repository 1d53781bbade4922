//! What is SQLite's own, in one program: each is linked with the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod conformance;
mod full_disk;
mod ledger;
mod log;
mod opening;
mod sharing;
#[path = "../support/mod.rs"]
mod support;
