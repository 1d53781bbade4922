//! Operating the program: log, configuration, metrics, reload and live line.

mod configuration;
#[cfg(feature = "serve")]
mod dashboard;
mod live;
mod logging;
mod metrics;
mod reload;
