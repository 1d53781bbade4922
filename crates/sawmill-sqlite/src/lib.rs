//! The SQLite engine of Sawmill: a log and a ledger in one file, for one machine.
//!
//! Any number of processes may use the file at once. An acknowledged write survives a crash of everything: the database
//! runs with a write-ahead log that is synced before a write is answered. Concurrent writes share commits. The file must not lie on
//! a network file system, where SQLite's locks cannot be trusted.
//!
//! ```
//! use sawmill::Context;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sawmill::Result<()> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let url = format!("sqlite:{}", folder.path().join("jobs.db").display());
//! # let url = url.as_str();
//! let mill = sawmill_sqlite::open(url).await?; // for instance "sqlite:jobs.db"
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
//! Inside, one thread writes and two read ([`Sqlite`] talks to them), so that no caller's thread waits for the disk.

mod append;
mod batch;
mod checkup;
mod error;
mod file;
mod keeper;
mod ledger;
mod log;
mod news;
mod read;
mod reader;
mod row;
mod schema;
mod store;
mod tail;
mod topics;
mod touch;
mod wal;
mod within;
mod work;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::{Capabilities, Engine, Namespace, Store, StoreUrl};
use sawmill::{Error, ErrorKind, Result, Sawmill};
use tokio::sync::oneshot;

pub use rusqlite;
pub use schema::schema_version;
pub use store::{Activity, Sqlite};
pub use within::{finish_within, push_within};

const CAPABILITIES: Capabilities = Capabilities {
    max_payload_bytes: 16 << 20,
    idempotent_append: true,
    exactly_once: true,
    idle_poll: Duration::from_secs(5),
};

/// The engine behind `sqlite:PATH`. The file is created if it is not there; its folder must be.
///
/// ```
/// use sawmill::engine::Engine;
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

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<Store> {
        let path = path_of(url)?;
        let (opened, answer) = oneshot::channel();
        let (file, namespace) = (path.clone(), namespace.clone());
        thread::Builder::new()
            .name("sawmill-sqlite-open".to_owned())
            .spawn(move || {
                // A caller who has gone away does not want it, and it closes again.
                let _ = opened.send(Sqlite::open(file, &namespace));
            })
            .map_err(|error| no_thread(&path, error))?;
        let stopped = |_| Error::new(ErrorKind::Unavailable, format!("{url} could not be opened: try again"));
        let sqlite = answer.await.map_err(stopped)??;
        Ok(Store { log: Some(Arc::new(sqlite.clone())), ledger: Some(Arc::new(sqlite)) })
    }
}

/// Opens a store by URL: `sqlite:PATH`, or `memory:`.
///
/// For a namespace, a ledger elsewhere, or other engines beside this one, use [`Sawmill::options`] and add
/// [`SqliteEngine`] to it.
pub async fn open(url: &str) -> Result<Sawmill> {
    Sawmill::options().engine(SqliteEngine).open(url).await
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

/// The error of a system that does not give us a thread.
fn no_thread(path: &Path, error: std::io::Error) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("{}: no thread could be started for the database; try again", path.display()),
    )
    .caused_by(error)
}

/// The README's example is compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

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
