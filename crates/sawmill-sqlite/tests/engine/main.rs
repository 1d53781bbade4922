//! Tests of SQLite's own behaviour, in one program because each program links the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod conformance;
mod full_disk;
mod ledger;
mod log;
mod opening;
mod recorded;
mod sharing;
#[path = "../support/mod.rs"]
mod support;
