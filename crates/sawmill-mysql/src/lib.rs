//! The MySQL and MariaDB engine of Sawmill: a log and a ledger in one database, for any number of machines.
//!
//! Supports MariaDB 10.6, MySQL 8, and newer versions of both. It is tested on MariaDB.
//!
//! ```no_run
//! # async fn example() -> sawmill::Result<()> {
//! let mill = sawmill::Sawmill::open("mysql://user:password@localhost/jobs").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", "Hello Alice").await?;
//! # Ok(())
//! # }
//! ```
//!
//! Append `?ssl-mode=REQUIRED` to the URL to encrypt connections. With `?ssl-mode=VERIFY_IDENTITY` the server
//! must also have a certificate for its name, from a public authority or from the one in the file that
//! `&ssl-ca=FILE` names.
//!
//! The database must exist; each namespace creates its own tables in it. The messages of a shard are numbered
//! by a row that is locked until the commit. So the order of numbers is the order of commits, and no message
//! appears behind a reader's position.

mod address;
mod checkup;
mod connection;
mod error;
mod ledger;
mod log;
#[cfg(test)]
mod migration_tests;
mod schema;
#[cfg(test)]
mod stopped_tests;
mod store;
mod within;

// Some unit tests use the support module of the integration tests, which names this crate from outside.
#[cfg(test)]
extern crate self as sawmill_mysql;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Capabilities, Engine, Namespace, OpenedStore, StoreUrl};
use sawmill_engine::{Error, Result};

use address::opts_of;
pub use store::{Activity, Mysql};
pub use within::{finish_statement, push_statements};
#[cfg(feature = "sqlx")]
pub use within::{finish_within_sqlx, push_within_sqlx};

/// The server's `max_allowed_packet` may allow less.
const CAPABILITIES: Capabilities = Capabilities {
    max_payload_bytes: 16 << 20,
    idempotent_append: true,
    exactly_once: true,
    idle_poll: Duration::from_millis(500),
};

/// The engine for `mysql://USER:PASSWORD@HOST:PORT/DATABASE?ssl-mode=VERIFY_IDENTITY`, for MySQL and MariaDB.
///
/// ```
/// use sawmill_engine::storage::Engine;
/// use sawmill_mysql::MysqlEngine;
///
/// assert_eq!(MysqlEngine.scheme(), "mysql");
/// assert!(MysqlEngine.capabilities().idempotent_append);
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct MysqlEngine;

#[async_trait]
impl Engine for MysqlEngine {
    fn name(&self) -> &'static str {
        "MySQL"
    }

    fn scheme(&self) -> &'static str {
        "mysql"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<OpenedStore> {
        let mysql = Mysql::open(url, namespace).await?;
        Ok(OpenedStore { log: Some(Arc::new(mysql.clone())), ledger: Some(Arc::new(mysql)) })
    }
}

/// Returns the schema version of a namespace, or `None` if it has no tables. Changes nothing.
pub async fn schema_version(url: &str, namespace: &Namespace) -> Result<Option<u32>> {
    let url: StoreUrl = url.parse()?;
    store::schema_version(opts_of(&url)?, namespace, Env::system())
        .await
        .map_err(|error| Error::new(error.kind(), format!("{url}: {error}")))
}
