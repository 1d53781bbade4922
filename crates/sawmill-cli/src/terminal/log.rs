//! The log of the program: lines for people, on stderr or in a file.
//!
//! A line has the time, the level, the message and the fields: `2026-11-15T08:00:00.000Z WARN  dead letter
//! topic=emails …`. Values with several lines, such as the stderr of a command, follow indented, so that
//! nothing in them looks like a line of the log.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use clap::ValueEnum;
use sawmill::engine::runtime::Env;
use serde::Deserialize;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::failure::Failure;
use crate::terminal::live;
use crate::terminal::log_line::LogLine;

/// The lowest level that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogLevel {
    /// Problems that need attention
    Error,
    /// Warnings, such as dead letters or a store that does not answer
    Warn,
    /// Changes of workers, and failed attempts
    Info,
    /// Every step
    Debug,
    /// Every step, libraries included
    Trace,
}

impl LogLevel {
    /// The filters for the program itself and for its libraries. Engines report the problems of their drivers
    /// in clearer words, so the events of the drivers appear only at debug and trace.
    fn targets(self) -> Targets {
        let (own, foreign) = match self {
            LogLevel::Error => (LevelFilter::ERROR, LevelFilter::OFF),
            LogLevel::Warn => (LevelFilter::WARN, LevelFilter::OFF),
            LogLevel::Info => (LevelFilter::INFO, LevelFilter::OFF),
            LogLevel::Debug => (LevelFilter::DEBUG, LevelFilter::WARN),
            LogLevel::Trace => (LevelFilter::TRACE, LevelFilter::TRACE),
        };
        Targets::new().with_target("sawmill", own).with_default(foreign)
    }
}

impl std::fmt::Display for LogLevel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.write_str(value.get_name()))
    }
}

/// The program's log.
#[derive(Clone)]
pub(crate) struct Log {
    targets: reload::Handle<Targets, Registry>,
    destination: Destination,
}

impl Log {
    /// Starts logging to stderr.
    pub(crate) fn start(level: LogLevel, env: &Env) -> Self {
        let destination = Destination::default();
        let (filter, targets) = reload::Layer::new(level.targets());
        let line = LogLine::new(env.clone(), destination.clone());
        let lines = fmt::layer().event_format(line).with_writer(destination.clone());
        // This fails only for a second log in one process; then the first one stays in use.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Self { targets, destination }
    }

    /// Changes the level.
    pub(crate) fn set_level(&self, level: LogLevel) {
        // It fails only if the log is gone; then there is nothing to filter.
        let _ = self.targets.reload(level.targets());
    }

    /// Appends the log to this file from now on, and creates the file if needed.
    pub(crate) fn to_file(&self, path: &Path) -> Result<(), Failure> {
        let file = open(path).map_err(|error| {
            let path = path.display();
            Failure::usage(format!("log file {path} cannot be written: {error}: name one that can, or none"))
        })?;
        *self.destination.file() = Some(LogFile { path: path.to_owned(), file, is_failing: false });
        Ok(())
    }

    /// Writes lines to the log at any level: the operator has asked for them.
    pub(crate) fn write(&self, lines: &str) {
        // A failed write falls back to stderr, and a failure there cannot be reported.
        let _ = self.destination.clone().write_all(format!("{lines}\n").as_bytes());
    }

    /// True if the log goes to a file.
    pub(crate) fn has_file(&self) -> bool {
        self.destination.file().is_some()
    }

    /// Opens the log file again by its name, after log rotation has moved it. If that fails, the old file
    /// stays in use.
    pub(crate) fn reopen(&self) {
        let Some(path) = self.destination.file().as_ref().map(|log| log.path.clone()) else {
            tracing::info!("there is no log file to reopen: the log goes to stderr");
            return;
        };
        match open(&path) {
            Ok(file) => {
                if let Some(log) = self.destination.file().as_mut() {
                    (log.file, log.is_failing) = (file, false);
                }
                tracing::info!(path = %path.display(), "reopened the log file");
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the log file cannot be reopened; going on with the old one");
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.append(true).create(true);
    #[cfg(unix)]
    // Payloads and the stderr of commands are private.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
}

struct LogFile {
    path: PathBuf,
    file: File,
    /// A write has failed, and that was reported.
    is_failing: bool,
}

/// Where the log goes: the log file if there is one, else stderr.
#[derive(Clone, Default)]
pub(crate) struct Destination {
    file: Arc<Mutex<Option<LogFile>>>,
}

impl Destination {
    fn file(&self) -> MutexGuard<'_, Option<LogFile>> {
        self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn has_colours(&self) -> bool {
        let stderr = io::stderr();
        self.file().is_none()
            && stderr.is_terminal()
            && anstream::AutoStream::choice(&stderr) != anstream::ColorChoice::Never
    }
}

impl<'a> MakeWriter<'a> for Destination {
    type Writer = Destination;

    fn make_writer(&'a self) -> Destination {
        self.clone()
    }
}

impl Write for Destination {
    /// Writes lines that the file does not take to stderr, where a supervisor may keep them.
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        if let Some(log) = self.file().as_mut() {
            match log.file.write_all(lines) {
                Ok(()) => {
                    log.is_failing = false;
                    return Ok(lines.len());
                }
                Err(error) if !log.is_failing => {
                    log.is_failing = true;
                    let path = log.path.display();
                    live::above(format!("log file {path} cannot be written: {error}\n").as_bytes());
                }
                Err(_) => {}
            }
        }
        live::above(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
