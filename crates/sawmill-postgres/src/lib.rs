//! The PostgreSQL engine of Sawmill: a log and a ledger in one schema of a database, for PostgreSQL 13 and newer.
//!
//! Every namespace is a schema of its own, made and migrated by the library while others work. Messages are appended to
//! plain tables and never updated or deleted one by one. Nothing is kept in a session, so that a pooler in transaction
//! mode may stand between the library and the server.
//!
//! ```no_run
//! use sawmill::Context;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sawmill::Result<()> {
//! let mill = sawmill_postgres::open("postgres://user:password@localhost/database").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", "Hello Alice").await?;
//!
//! let worker = mill.worker("emails").start(|_mail: Context| async {}).await?;
//! worker.drained().await;
//! worker.stop().await;
//! # Ok(())
//! # }
//! ```

mod append;
mod checkup;
mod error;
mod ledger;
mod log;
#[cfg(test)]
mod migration_tests;
mod news;
mod pack;
mod place;
mod pool;
mod read;
mod row;
mod schema;
mod search;
mod snapshot;
mod store;
mod tls;
mod topics;
mod trim;
mod within;

// Some tests need both the inside of this crate and what tests outside of it share.
#[cfg(test)]
extern crate self as sawmill_postgres;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::{Capabilities, Engine, Namespace, Store, StoreUrl};
use sawmill::{Result, Sawmill};

pub use store::Postgres;
pub use within::{finish_statement, finish_within, push_statement, push_within};
#[cfg(feature = "sqlx")]
pub use within::{finish_within_sqlx, push_within_sqlx};

const CAPABILITIES: Capabilities = Capabilities {
    max_payload_bytes: 16 << 20,
    idempotent_append: true,
    exactly_once: true,
    idle_poll: Duration::from_secs(5),
};

/// How many connections a store makes for its calls, unless told otherwise.
const CONNECTIONS: usize = 8;

/// The engine behind `postgres://user:password@host:port/database`. The database must be there; the schema is made.
///
/// `?sslmode=` says how safe the way to the server must be, as to PostgreSQL's own clients: `disable`, `prefer` (the default:
/// encrypted if the server can, whoever it is), `require` (encrypted), `verify-ca` (and its certificate comes from whom we
/// trust), `verify-full` (and is for this host). `&sslrootcert=` names the file of certificates to trust; without it, or with
/// `system`, they are those of the system.
///
/// ```
/// use sawmill::engine::Engine;
/// use sawmill_postgres::PostgresEngine;
///
/// let engine = PostgresEngine::default().connections(4);
/// assert_eq!(engine.scheme(), "postgres");
/// assert!(engine.capabilities().idempotent_append);
/// ```
#[derive(Debug, Clone, Copy)]
pub struct PostgresEngine {
    connections: usize,
}

impl Default for PostgresEngine {
    fn default() -> Self {
        Self { connections: CONNECTIONS }
    }
}

impl PostgresEngine {
    /// How many connections a store makes at most for its calls; one more listens. The default is 8.
    #[must_use]
    pub fn connections(self, connections: usize) -> Self {
        Self { connections }
    }
}

#[async_trait]
impl Engine for PostgresEngine {
    fn name(&self) -> &'static str {
        "PostgreSQL"
    }

    fn scheme(&self) -> &'static str {
        "postgres"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<Store> {
        let postgres = Postgres::open(url, namespace, self.connections).await?;
        Ok(Store { log: Some(Arc::new(postgres.clone())), ledger: Some(Arc::new(postgres)) })
    }
}

/// Opens a store by URL: `postgres://user:password@host/database`, or `memory:`.
///
/// For a namespace, a ledger elsewhere, or other engines beside this one, use [`Sawmill::options`] and add
/// [`PostgresEngine`] to it.
pub async fn open(url: &str) -> Result<Sawmill> {
    Sawmill::options().engine(PostgresEngine::default()).open(url).await
}
