//! Looking after the program: its log, its configuration, its metrics, and its live line.

mod configuration;
#[cfg(feature = "serve")]
mod dashboard;
mod live;
mod logging;
mod metrics;
mod reload;
