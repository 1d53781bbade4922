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
//! The database must exist; each namespace makes tables of its own in it. A shard's messages have numbers, given out by a row
//! that is held until the commit: so the order of numbers is the order of commits, and nothing appears behind a
//! reader's back.

mod append;
mod bells;
mod connections;
mod counter;
mod error;
mod ledger;
mod log;
mod look;
mod promote;
mod read;
mod row;
mod schema;
mod server;
mod sql;
mod store;
mod topics;
mod tries;
mod trim;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Opts;
use sawmill::engine::{Capabilities, Engine, Namespace, Store, StoreUrl};
use sawmill::env::Env;
use sawmill::{Error, ErrorKind, Result, Sawmill};

pub use store::{Activity, Mysql};

/// The server's `max_allowed_packet` may allow less.
const CAPABILITIES: Capabilities = Capabilities {
    max_payload_bytes: 16 << 20,
    idempotent_append: true,
    exactly_once: false,
    idle_poll: Duration::from_millis(500),
};

/// The engine behind `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, for MySQL and for MariaDB.
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
        let mysql = Mysql::open(opts_of(url)?, namespace, Env::system())
            .await
            .map_err(|error| Error::new(error.kind(), format!("{url}: {error}")))?;
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

fn opts_of(url: &StoreUrl) -> Result<Opts> {
    let invalid = |said: &str| Error::new(ErrorKind::Invalid, format!("{url}: {said}"));
    if url.scheme() != "mysql" {
        return Err(invalid("this engine opens URLs like mysql://user:password@host/database"));
    }
    let opts = Opts::from_url(url.with_password()).map_err(|error| {
        invalid(&format!("this is no URL like mysql://user:password@host:3306/database ({error})"))
    })?;
    // Otherwise the driver would give up in the middle of connecting, or worse, go on in the clear.
    if opts.ssl_opts().is_some() {
        return Err(invalid(
            "require_ssl asks for an encrypted connection, and this engine is built without: use a tunnel",
        ));
    }
    match opts.db_name() {
        Some(name) if !name.is_empty() => Ok(opts),
        _ => Err(invalid("the database is missing: write mysql://user:password@host/database")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_database_and_errors_hide_the_password() {
        let opts = |text: &str| opts_of(&text.parse().unwrap());
        let good = opts("mysql://me:secret@host:3307/jobs").unwrap();
        assert_eq!((good.ip_or_hostname(), good.tcp_port(), good.db_name()), ("host", 3307, Some("jobs")));
        for (text, said) in [
            ("mysql://me:secret@host", "the database is missing"),
            ("mysql://me:secret@host/", "the database is missing"),
            ("mysql://me:secret@host:port/jobs", "no URL like"),
            ("mysql://me:secret@host/jobs?colour=red", "colour"),
            ("mysql://me:secret@host/jobs?require_ssl=true", "require_ssl"),
            ("mysql:jobs", "no URL like"),
            ("postgres://me:secret@host/jobs", "this engine opens URLs like mysql://"),
        ] {
            let error = opts(text).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(said), "{text}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
