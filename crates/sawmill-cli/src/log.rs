//! What the program tells of its work: lines for people, on stderr or in a file.
//!
//! Time, level, what happened, and the facts: `2026-11-15T08:00:00.000Z WARN  dead letter  topic=emails …`. What takes
//! several lines, like the last words of a command, stands below, indented, so that nothing in it can pass for a line of
//! the log itself.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use clap::ValueEnum;
use sawmill::env::Env;
use serde::Deserialize;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Registry, fmt, reload};

use crate::failure::Failure;
use crate::live;
use crate::log_line::LogLine;

/// How much is told: this, and what is more important.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogLevel {
    /// What needs somebody
    Error,
    /// What somebody should know: dead letters, a store that does not answer
    Warn,
    /// What happens to workers, and attempts that failed
    Info,
    /// Every step
    Debug,
    /// Every step, also of the libraries that the program uses
    Trace,
}

impl LogLevel {
    /// What of the program's own is told, and what of the libraries that it uses. What troubles a driver, the engine says, in words
    /// that help; its own are for those who look closer.
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
    place: Place,
}

impl Log {
    /// Starts to log to stderr.
    pub(crate) fn start(level: LogLevel, env: &Env) -> Self {
        let place = Place::default();
        let (filter, targets) = reload::Layer::new(level.targets());
        let line = LogLine::new(env.clone(), place.clone());
        let lines = fmt::layer().event_format(line).with_writer(place.clone());
        // Only a second log in one process could fail here, and then the first one goes on.
        let _ = tracing_subscriber::registry().with(filter).with(lines).try_init();
        Self { targets, place }
    }

    /// Tells this much from now on.
    pub(crate) fn set_level(&self, level: LogLevel) {
        // It fails only if the log is gone, and then there is nothing to tell.
        let _ = self.targets.reload(level.targets());
    }

    /// Logs to the end of this file from now on, and makes it if it is not there.
    pub(crate) fn to_file(&self, path: &Path) -> Result<(), Failure> {
        let file = open(path).map_err(|error| {
            let path = path.display();
            Failure::usage(format!("log file {path} cannot be written: {error}: name one that can, or none"))
        })?;
        *self.place.file() = Some(LogFile { path: path.to_owned(), file, is_failing: false });
        Ok(())
    }

    /// Puts lines into the log as they are, whatever its level: somebody has asked for them.
    pub(crate) fn write(&self, lines: &str) {
        // What cannot be written to a file is told on stderr, and there is no one else to tell.
        let _ = self.place.clone().write_all(format!("{lines}\n").as_bytes());
    }

    /// True if the log goes to a file.
    pub(crate) fn has_file(&self) -> bool {
        self.place.file().is_some()
    }

    /// Opens the log file anew under its name, after something else has moved it away. If that fails, the old one stays.
    pub(crate) fn reopen(&self) {
        let Some(path) = self.place.file().as_ref().map(|log| log.path.clone()) else {
            tracing::info!("there is no log file to reopen: the log goes to stderr");
            return;
        };
        match open(&path) {
            Ok(file) => {
                if let Some(log) = self.place.file().as_mut() {
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
    // Payloads and last words of commands are nobody else's business.
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o640);
    options.open(path)
}

struct LogFile {
    path: PathBuf,
    file: File,
    /// That it could not be written was said already.
    is_failing: bool,
}

/// Where the log goes: to a file if one was named, else to stderr.
#[derive(Clone, Default)]
pub(crate) struct Place {
    file: Arc<Mutex<Option<LogFile>>>,
}

impl Place {
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

impl<'a> MakeWriter<'a> for Place {
    type Writer = Place;

    fn make_writer(&'a self) -> Place {
        self.clone()
    }
}

impl Write for Place {
    /// A line that does not get into the file is told on stderr, where a supervisor may still keep it.
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
