//! What an operator sees and touches of a running worker: its log, its metrics, and the signals that look after them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use sawmill::env::Env;
use tokio::signal::unix::{Signal, SignalKind};

use super::reload::Reload;
use super::settings::Plan;
use super::signals::listen;
use crate::failure::Failure;
use crate::log::{Log, LogLevel};
use crate::metrics;
use crate::session::Session;

pub(super) struct Care {
    env: Env,
    pub(super) log: Log,
    /// Nobody wants a live line. It can be changed while the worker runs.
    pub(super) quiet: Arc<AtomicBool>,
    /// SIGHUP, until there is something to reload. What comes before that is not lost.
    hangup: Option<Signal>,
}

impl Care {
    /// Begins to log and to count, before the store is opened.
    pub(super) async fn take(session: &Session, plan: &Plan) -> Result<Self, Failure> {
        let log = session.log.clone();
        log.set_level(level(session.globals.log_level.or(session.file.log_level), plan.quiet));
        if let Some(path) = &plan.log_file {
            log.to_file(path)?;
        }
        if let Some(address) = plan.metrics {
            metrics::serve(address, &session.env).await?;
        }
        // From now on neither ends the program, however long the store takes to open.
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

    /// From now on SIGHUP reloads the configuration.
    pub(super) fn reload_by(&mut self, mut reload: Reload) {
        let Some(mut asked) = self.hangup.take() else { return };
        self.env.spawn(async move {
            while asked.recv().await.is_some() {
                reload.now();
            }
        });
    }

    /// Why the worker ended is also in its log file, if it has one.
    pub(super) fn last_words(&self, worked: Result<(), Failure>) -> Result<(), Failure> {
        worked.inspect_err(|failure| {
            if self.log.has_file() {
                tracing::error!("{failure}");
            }
        })
    }
}

/// How much a worker tells, if somebody said so, else by whether it is to be quiet.
pub(super) fn level(said: Option<LogLevel>, quiet: bool) -> LogLevel {
    said.unwrap_or(if quiet { LogLevel::Warn } else { LogLevel::Info })
}
