//! Looking after the program: its log, its configuration, its metrics, and its live line.

#![allow(clippy::unwrap_used, reason = "these are tests")]

#[path = "../support/mod.rs"]
mod support;

mod configuration;
#[cfg(feature = "serve")]
mod dashboard;
mod live;
mod logging;
mod metrics;
mod reload;
