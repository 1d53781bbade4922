//! The MySQL and MariaDB engine of Sawmill: a log and a ledger in one database, for any number of machines.
//!
//! It is for MariaDB 10.6 and MySQL 8, and later ones. It is tested on MariaDB.
//!
//! ```no_run
//! # async fn example() -> sawmill::Result<()> {
//! let mill = sawmill_mysql::open("mysql://user:password@localhost/jobs").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", "Hello Alice").await?;
//! # Ok(())
//! # }
//! ```
//!
//! The way to the server is encrypted with `?ssl-mode=REQUIRED` at the end of the URL. With `?ssl-mode=VERIFY_IDENTITY` the server must
//! also have a certificate for its name: from one of the public authorities, or from the one in the file
//! that `&ssl-ca=FILE` names.
//!
//! The database must exist; each namespace makes tables of its own in it. A shard's messages have numbers, given out by a row
//! that is held until the commit: so the order of numbers is the order of commits, and nothing appears behind a
//! reader's back.

mod address;
mod append;
mod checkup;
mod connections;
mod counter;
mod error;
mod ledger;
mod life;
mod log;
mod look;
#[cfg(test)]
mod migration_tests;
mod promote;
mod read;
mod row;
mod schema;
mod server;
mod sql;
#[cfg(test)]
mod stopped_tests;
mod store;
mod topics;
mod tries;
mod trim;
mod within;

// Some tests need both the inside of this crate and what tests outside of it share.
#[cfg(test)]
extern crate self as sawmill_mysql;
#[cfg(test)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::{Capabilities, Engine, Namespace, Store, StoreUrl};
use sawmill::env::Env;
use sawmill::{Error, Result, Sawmill};

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

/// The engine behind `mysql://USER:PASSWORD@HOST:PORT/DATABASE?ssl-mode=VERIFY_IDENTITY`, for MySQL and for MariaDB.
///
/// ```
/// use sawmill::engine::Engine;
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

    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<Store> {
        let mysql = Mysql::open(url, namespace).await?;
        Ok(Store { log: Some(Arc::new(mysql.clone())), ledger: Some(Arc::new(mysql)) })
    }
}

/// Opens a store by URL: `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, or `memory:`.
///
/// For a namespace, a ledger elsewhere, or other engines beside this one, use [`Sawmill::options`] and add
/// [`MysqlEngine`] to it.
pub async fn open(url: &str) -> Result<Sawmill> {
    Sawmill::options().engine(MysqlEngine).open(url).await
}

/// The version of a namespace's tables; none if they are not there. Changes nothing.
pub async fn schema_version(url: &str, namespace: &Namespace) -> Result<Option<u32>> {
    let url: StoreUrl = url.parse()?;
    store::schema_version(opts_of(&url)?, namespace, Env::system())
        .await
        .map_err(|error| Error::new(error.kind(), format!("{url}: {error}")))
}
