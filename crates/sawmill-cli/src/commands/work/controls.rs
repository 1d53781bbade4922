//! The means by which an operator observes and controls a running worker: its log, its metrics, and the
//! signals for them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sawmill::engine::runtime::Env;
use tokio::signal::unix::{Signal, SignalKind};

use super::reload::Reload;
use super::settings::Plan;
use super::signals::listen;
use crate::failure::Failure;
use crate::metrics;
use crate::session::Session;
use crate::terminal::log::{Log, LogLevel};

pub(super) struct Controls {
    env: Env,
    pub(super) log: Log,
    /// No live line is shown. A reload can change this.
    pub(super) quiet: Arc<AtomicBool>,
    /// SIGHUP, until reloading is set up. Signals that arrive earlier are kept.
    hangup: Option<Signal>,
}

impl Controls {
    /// Starts logging and metrics, before the store is opened.
    pub(super) async fn start(session: &Session, plan: &Plan) -> Result<Self, Failure> {
        let log = session.log.clone();
        log.set_level(level(session.globals.log_level.or(session.file.log_level), plan.quiet));
        if let Some(path) = &plan.log_file {
            log.to_file(path)?;
        }
        if let Some(address) = plan.metrics {
            metrics::serve(address, &session.env).await?;
        }
        // From here on these signals do not end the program, even while the store is still being opened.
        let mut rotated = listen(SignalKind::user_defined1())?;
        let hangup = Some(listen(SignalKind::hangup())?);
        let reopening = log.clone();
        session.env.spawn(async move {
            while rotated.recv().await.is_some() {
                reopening.reopen();
            }
        });
        let quiet = Arc::new(AtomicBool::new(plan.quiet));
        Ok(Self { env: session.env.clone(), log, quiet, hangup })
    }

    /// Makes SIGHUP reload the configuration.
    pub(super) fn reload_by(&mut self, mut reload: Reload) {
        let Some(mut asked) = self.hangup.take() else { return };
        self.env.spawn(async move {
            while asked.recv().await.is_some() {
                reload.now();
            }
        });
    }

    /// Writes the failure that ended the worker to its log file, if it has one.
    pub(super) fn log_failure(&self, worked: Result<(), Failure>) -> Result<(), Failure> {
        worked.inspect_err(|failure| {
            if self.log.has_file() {
                tracing::error!("{failure}");
            }
        })
    }
}

/// Returns the log level: the configured one, else the one that `quiet` implies.
pub(super) fn level(configured: Option<LogLevel>, quiet: bool) -> LogLevel {
    configured.unwrap_or(if quiet { LogLevel::Warn } else { LogLevel::Info })
}
