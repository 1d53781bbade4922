//! The PostgreSQL engine of Sawmill: a log and a ledger in one schema of a database. Needs PostgreSQL 13 or
//! newer.
//!
//! Each namespace is a schema. The library creates and migrates it while other processes use it. Messages are
//! appended to plain tables and never updated or deleted one by one. The engine keeps no session state, so a
//! pooler in transaction mode works between the library and the server.
//!
//! ```no_run
//! use sawmill::Context;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> sawmill::Result<()> {
//! let mill = sawmill::Sawmill::open("postgres://user:password@localhost/database").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", "Hello Alice").await?;
//!
//! let worker = mill.worker("emails").start(|_mail: Context| async {}).await?;
//! worker.drained().await;
//! worker.stop().await;
//! # Ok(())
//! # }
//! ```

mod checkup;
mod connection;
mod error;
mod ledger;
mod log;
#[cfg(test)]
mod migration_tests;
mod schema;
mod store;
mod within;

// Some unit tests use the support modules of the integration tests, which name this crate from outside.
#[cfg(test)]
extern crate self as sawmill_postgres;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill_engine::Result;
use sawmill_engine::storage::{Capabilities, Engine, Namespace, OpenedStore, StoreUrl};

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

/// Default of [`PostgresEngine::connections`].
const CONNECTIONS: usize = 8;

/// The engine for `postgres://user:password@host:port/database`. The database must exist; the schema is
/// created.
///
/// `?sslmode=` has the same meaning as in PostgreSQL's own clients: `disable`, `prefer` (the default:
/// encrypted if the server supports it, without checking its identity), `require` (encrypted), `verify-ca`
/// (the certificate must also come from a trusted authority), `verify-full` (and must be for this host).
/// `&sslrootcert=` names the file of trusted certificates; the default, and the value `system`, are the
/// certificates of the operating system.
///
/// ```
/// use sawmill_engine::storage::Engine;
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
    /// Sets the maximum number of connections for a store's calls. One more connection listens for
    /// notifications. The default is 8.
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

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<OpenedStore> {
        let postgres = Postgres::open(url, namespace, self.connections).await?;
        Ok(OpenedStore { log: Some(Arc::new(postgres.clone())), ledger: Some(Arc::new(postgres)) })
    }
}
