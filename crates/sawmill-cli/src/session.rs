//! The context of every command: the store settings, the output, the log, and access to time and tasks.

use sawmill::engine::runtime::Env;
use sawmill::engine::storage::StoreUrl;
use sawmill::{Sawmill, Timestamp};

use crate::cli::Globals;
use crate::engines;
use crate::failure::Failure;
use crate::settings::{File, StoreSettings};
use crate::terminal::log::{Log, LogLevel};
use crate::terminal::output::{Output, note};

pub(crate) struct Session {
    pub(crate) globals: Globals,
    pub(crate) file: File,
    pub(crate) out: Output,
    pub(crate) env: Env,
    pub(crate) log: Log,
}

impl Session {
    pub(crate) fn new(globals: Globals) -> Result<Self, Failure> {
        let file = globals.config.as_deref().map(File::read).transpose()?.unwrap_or_default();
        let out = Output::new(globals.json);
        let env = Env::system();
        let log = Log::start(globals.log_level.or(file.log_level).unwrap_or(LogLevel::Warn), &env);
        Ok(Self { globals, file, out, env, log })
    }

    /// Returns the URL of the store, password included.
    pub(crate) fn store(&self) -> String {
        StoreSettings::of(&self.globals, &self.file).store
    }

    /// Returns the namespace, if it is not the default one.
    pub(crate) fn namespace(&self) -> Option<String> {
        StoreSettings::of(&self.globals, &self.file).namespace
    }

    /// Opens the store.
    pub(crate) async fn open(&self) -> Result<Sawmill, Failure> {
        self.open_at(StoreSettings::of(&self.globals, &self.file)).await
    }

    /// Opens a store with these settings.
    pub(crate) async fn open_at(&self, settings: StoreSettings) -> Result<Sawmill, Failure> {
        engines::check(&settings.store)?;
        if [Some(&settings.store), settings.ledger.as_ref()].contains(&Some(&"memory:".to_owned())) {
            note("What is in memory: is for this process alone, and gone when it ends.");
        }
        let mut options = engines::options().env(self.env.clone());
        if let Some(namespace) = settings.namespace {
            options = options.namespace(namespace);
        }
        if let Some(ledger) = settings.ledger {
            engines::check(&ledger)?;
            options = options.ledger(ledger);
        }
        Ok(options.open(&settings.store).await?)
    }

    /// Adds the name of the store to its failures, as people use several stores.
    pub(crate) fn name_store(&self, failure: Failure) -> Failure {
        let Ok(url) = self.store().parse::<StoreUrl>() else { return failure };
        // The message may have it as a path only, or without the password.
        let (said, shown) = (failure.to_string(), url.to_string());
        let named = said.contains(url.rest()) || said.contains(&shown);
        if failure.is_of_store() && !named { failure.at(format!("store {shown}")) } else { failure }
    }

    /// Returns the current wall-clock time.
    pub(crate) fn now(&self) -> Timestamp {
        self.env.wall()
    }
}
