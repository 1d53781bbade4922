//! What is MySQL and MariaDB's own, in one program: each is linked with the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod bad_input;
mod conformance;
mod cut;
mod footprint;
mod lives;
mod namespaces;
mod operating;
mod order;
#[path = "../support/mod.rs"]
mod support;
mod tls;
mod unfit;
