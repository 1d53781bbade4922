//! Tests specific to PostgreSQL, in one program because each program links the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod conformance;
mod footprint;
mod late_commits;
mod namespaces;
mod opening;
mod operating;
mod packs;
mod recorded;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod trimming;
