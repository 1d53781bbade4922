//! Tests specific to MySQL and MariaDB, in one program because each program links the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod bad_input;
mod conformance;
mod cut;
mod footprint;
mod incarnations;
mod namespaces;
mod operating;
mod order;
mod recorded;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod unfit;
