//! Looking after the program: its log, its configuration, its metrics, and its live line.

#[path = "../support/mod.rs"]
mod support;

mod configuration;
mod live;
mod logging;
mod metrics;
mod reload;
