//! The SQLite engine of Sawmill: a log and a ledger in one file, for one machine.
//!
//! Any number of processes may use the file at once. An acknowledged write survives a crash of the process or
//! the machine: the write-ahead log is synced before a write is answered. Concurrent writes share commits.
//! The file must not be on a network file system, where SQLite's locks are unreliable.
//!
//! ```
//! use sawmill::Context;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sawmill::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
//! # let url = url.as_str();
//! let mill = sawmill::Sawmill::open(url).await?; // for instance "sqlite:jobs.db"
//! mill.create_topic("emails").await?;
//! mill.push("emails", "Hello Alice").await?;
//!
//! let worker = mill.worker("emails").start(|_mail: Context| async {}).await?;
//! worker.drained().await;
//! assert_eq!(worker.stop().await.done, 1);
//! # Ok(())
//! # }
//! ```
//!
//! Internally, one thread writes and two read. [`Sqlite`] sends work to them, so no caller's thread waits for
//! the disk.

mod checkup;
mod error;
mod file;
mod ledger;
mod log;
mod notify;
mod schema;
mod store;
mod threads;
mod transaction;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use sawmill_engine::storage::{Capabilities, Engine, Namespace, OpenedStore, StoreUrl};
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

pub use rusqlite;
pub use schema::schema_version;
pub use store::{Activity, Sqlite};
pub use transaction::{finish_within, push_within};

const CAPABILITIES: Capabilities = Capabilities {
    max_payload_bytes: 16 << 20,
    idempotent_append: true,
    exactly_once: true,
    idle_poll: Duration::from_secs(5),
};

/// The engine behind `sqlite:PATH`. Creates the file if it does not exist; its folder must exist.
///
/// ```
/// use sawmill_engine::storage::Engine;
/// use sawmill_sqlite::SqliteEngine;
///
/// assert_eq!(SqliteEngine.scheme(), "sqlite");
/// assert!(SqliteEngine.capabilities().idempotent_append);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct SqliteEngine;

#[async_trait]
impl Engine for SqliteEngine {
    fn name(&self) -> &'static str {
        "SQLite"
    }

    fn scheme(&self) -> &'static str {
        "sqlite"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<OpenedStore> {
        let path = path_of(url)?;
        let (opened, answer) = oneshot::channel();
        let (file, namespace) = (path.clone(), namespace.clone());
        thread::Builder::new()
            .name("sawmill-sqlite-open".to_owned())
            .spawn(move || {
                // If the caller has stopped waiting, the database is closed again.
                let _ = opened.send(Sqlite::open(file, &namespace));
            })
            .map_err(|error| no_thread(&path, error))?;
        let stopped = |_| Error::new(ErrorKind::Unavailable, format!("{url} could not be opened: try again"));
        let sqlite = answer.await.map_err(stopped)??;
        Ok(OpenedStore { log: Some(Arc::new(sqlite.clone())), ledger: Some(Arc::new(sqlite)) })
    }
}

fn path_of(url: &StoreUrl) -> Result<PathBuf> {
    let rest = url.rest();
    let invalid = |said: &str| Err(Error::new(ErrorKind::Invalid, format!("{url}: {said}")));
    if url.scheme() != "sqlite" {
        return invalid("this engine opens URLs like sqlite:jobs.db");
    }
    if rest.is_empty() {
        return invalid("the path of the file is missing: write sqlite:jobs.db");
    }
    if rest == ":memory:" {
        return invalid("SQLite is for durable stores: for one in memory, use memory:");
    }
    if rest.starts_with("//") {
        return invalid("a path follows the colon directly: write sqlite:jobs.db or sqlite:/srv/jobs.db");
    }
    if rest.contains('?') {
        return invalid("there are no settings to make after a '?': write the path of the file alone");
    }
    Ok(PathBuf::from(rest))
}

/// The error of a thread that could not be started.
fn no_thread(path: &Path, error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("{}: no thread could be started for the database; try again", path.display()),
    )
    .caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_path_and_nothing_else() {
        let path = |text: &str| path_of(&text.parse().unwrap());
        assert_eq!(path("sqlite:jobs.db").unwrap(), PathBuf::from("jobs.db"));
        assert_eq!(path("sqlite:/srv/a b:c.db").unwrap(), PathBuf::from("/srv/a b:c.db"));
        for (text, said) in [
            ("sqlite:", "missing"),
            ("sqlite::memory:", "use memory:"),
            ("sqlite:///srv/jobs.db", "directly"),
            ("sqlite:jobs.db?mode=ro", "'?'"),
            ("memory:", "sqlite:jobs.db"),
        ] {
            let error = path(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(said), "{error}");
        }
    }
}
