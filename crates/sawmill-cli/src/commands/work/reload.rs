//! SIGHUP: reloads the configuration file. Settings that each run reads when it starts can change; the others
//! need a restart.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Deserialize;
use toml::{Table, Value};

use super::controls::level;
use super::runner::{Limits, Runner};
use super::settings::Settings;
use crate::cli::Globals;
use crate::failure::Failure;
use crate::session::Session;
use crate::settings::{File, StoreSettings};
use crate::terminal::log::{Log, LogLevel};

/// Settings that can change while the worker runs.
const CHANGEABLE: &[&str] = &["log-level", "work.timeout", "work.memory", "work.quiet"];
/// Settings that may hold a password and are not shown.
const SECRET: &[&str] = &["store", "ledger"];

pub(super) struct Reload {
    path: Option<PathBuf>,
    globals: Globals,
    flags: Settings,
    /// The file settings that are in effect.
    in_force: Table,
    runner: Arc<Runner>,
    log: Log,
    quiet: Arc<AtomicBool>,
}

impl Reload {
    pub(super) fn new(
        session: &Session,
        flags: Settings,
        runner: Arc<Runner>,
        quiet: Arc<AtomicBool>,
    ) -> Self {
        Self {
            path: session.globals.config.clone(),
            globals: session.globals.clone(),
            flags,
            in_force: flat(&session.file.raw),
            runner,
            log: session.log.clone(),
            quiet,
        }
    }

    /// Reads the file again, and logs and applies the changes. A file with an error changes nothing.
    pub(super) fn now(&mut self) {
        let Some(path) = &self.path else {
            tracing::warn!("there is no configuration to reload: the worker was started without --config");
            return;
        };
        let read = File::read(path).and_then(|file| {
            self.flags.clone().over(&file.work).resolve()?;
            Ok(file)
        });
        match read {
            Ok(file) => self.change_to(&flat(&file.raw)),
            Err(error) => tracing::error!(%error, "the configuration is not reloaded; all stays as it was"),
        }
    }

    fn change_to(&mut self, new: &Table) {
        let changed = changed(&self.in_force, new);
        if changed.is_empty() {
            tracing::info!("the configuration was reloaded: nothing has changed");
            return;
        }
        tracing::info!("the configuration was reloaded");
        for key in changed {
            let what = describe(&key, self.in_force.get(&key), new.get(&key));
            let mut with_it = self.in_force.clone();
            match new.get(&key) {
                Some(value) => with_it.insert(key.clone(), value.clone()),
                None => with_it.remove(&key),
            };
            if self.effective(&with_it).is_some_and(|with_it| self.effective(&self.in_force) == Some(with_it))
            {
                tracing::info!("{what} changes nothing here: a flag or the environment is stronger");
                self.in_force = with_it;
            } else if CHANGEABLE.contains(&key.as_str()) {
                tracing::info!("{what}");
                self.in_force = with_it;
            } else {
                tracing::warn!("{what} needs a restart");
            }
        }
        if let Err(error) = self.apply() {
            tracing::error!(%error, "what has changed cannot be applied");
        }
    }

    /// Returns the settings that result from this file; `None` if the file is invalid.
    fn effective(&self, file: &Table) -> Option<(StoreSettings, Settings, Option<LogLevel>)> {
        let file = file_of(file).ok()?;
        let level = self.globals.log_level.or(file.log_level);
        Some((StoreSettings::of(&self.globals, &file), self.flags.clone().over(&file.work), level))
    }

    fn apply(&self) -> Result<(), Failure> {
        let file = file_of(&self.in_force)?;
        let plan = self.flags.clone().over(&file.work).resolve()?;
        self.runner.set_limits(Limits { timeout: plan.timeout, memory: plan.memory });
        self.quiet.store(plan.quiet, Ordering::Relaxed);
        self.log.set_level(level(self.globals.log_level.or(file.log_level), plan.quiet));
        Ok(())
    }
}

/// Flattens the file: each setting gets one name, such as `store` or `work.timeout`.
fn flat(file: &Table) -> Table {
    let mut flat = Table::new();
    for (name, value) in file {
        match value {
            Value::Table(part) => {
                flat.extend(part.iter().map(|(key, value)| (format!("{name}.{key}"), value.clone())));
            }
            _ => {
                flat.insert(name.clone(), value.clone());
            }
        }
    }
    flat
}

/// Parses a flattened file.
fn file_of(flat: &Table) -> Result<File, Failure> {
    let mut file = Table::new();
    for (name, value) in flat {
        match name.split_once('.') {
            None => {
                file.insert(name.clone(), value.clone());
            }
            Some((part, key)) => {
                let part = file.entry(part).or_insert_with(|| Value::Table(Table::new()));
                if let Value::Table(part) = part {
                    part.insert(key.to_owned(), value.clone());
                }
            }
        }
    }
    File::deserialize(file).map_err(|error| Failure::usage(error.to_string()))
}

fn changed(old: &Table, new: &Table) -> Vec<String> {
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    keys.into_iter().filter(|key| old.get(*key) != new.get(*key)).cloned().collect()
}

/// Describes a change, as in `timeout: 5m -> 1m`.
fn describe(key: &str, old: Option<&Value>, new: Option<&Value>) -> String {
    let shown = |value: Option<&Value>| match value {
        None => "(default)".to_owned(),
        Some(_) if SECRET.contains(&key) => "(not shown)".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Integer(number)) => number.to_string(),
        Some(Value::Boolean(yes)) => yes.to_string(),
        Some(other) => format!("{other:?}"),
    };
    let name = key.strip_prefix("work.").unwrap_or(key);
    format!("{name}: {} -> {}", shown(old), shown(new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_can_be_taken_apart_and_put_together() {
        let text = "store = 'sqlite:x.db'\nlog-level = 'warn'\n[work]\ntimeout = '5m'\nconcurrency = 4\n";
        let file: Table = toml::from_str(text).unwrap();
        let flat = flat(&file);
        assert_eq!(flat.get("work.timeout"), Some(&Value::String("5m".into())));
        let again = file_of(&flat).unwrap();
        assert_eq!((again.work.concurrency, again.log_level), (Some(4), Some(LogLevel::Warn)));
        assert_eq!(again.store.as_deref(), Some("sqlite:x.db"));
    }

    #[test]
    fn changes_are_named_and_passwords_are_not() {
        let table = |text: &str| flat(&toml::from_str(text).unwrap());
        let old =
            table("store = 'postgres://u:secret@h/d'\n[work]\ntimeout = '5m'\nconcurrency = 4\nname = 'n'");
        let new =
            table("store = 'postgres://u:other@h/d'\n[work]\ntimeout = '1m'\nordered = true\nname = 'n'");
        let said: Vec<String> =
            changed(&old, &new).iter().map(|key| describe(key, old.get(key), new.get(key))).collect();
        assert_eq!(
            said,
            [
                "store: (not shown) -> (not shown)",
                "concurrency: 4 -> (default)",
                "ordered: (default) -> true",
                "timeout: 5m -> 1m"
            ]
        );
    }
}
