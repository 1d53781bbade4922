//! The store: the state that its log and its ledger share.

use std::fmt;
use std::sync::Arc;

use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Namespace, StoreUrl};
use sawmill_engine::{Error, ErrorKind, Result};
use tokio_postgres::{Client, Config, Row, SimpleQueryMessage};

use crate::connection::notifier::Notifier;
use crate::connection::pool::{Lease, Param, Pool};
use crate::connection::tls::{Tls, TlsSettings};
use crate::error::{Effect, Failure};
use crate::log::read::ReadCache;
use crate::log::topics::CurrentTables;
use crate::schema;

/// A log and a ledger in one schema of a database. Clones share their connections.
#[derive(Clone)]
pub struct Postgres(Arc<Inner>);

struct Inner {
    pool: Arc<Pool>,
    schema: String,
    /// The schema version when the store was opened.
    version: usize,
    notifier: Notifier,
    current_tables: CurrentTables,
    truncating: tokio::sync::Mutex<()>,
    read_cache: ReadCache,
}

/// Shows the schema and the database, without the password.
impl fmt::Debug for Postgres {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Postgres({} in {})", self.0.schema, self.0.pool.redacted_url())
    }
}

impl Postgres {
    /// Opens the store of a namespace and creates or migrates its schema. `connections` limits the
    /// connections for calls; one more listens for notifications.
    pub async fn open(url: &StoreUrl, namespace: &Namespace, connections: usize) -> Result<Self> {
        Self::open_at(schema::STEPS, url, namespace, connections).await
    }

    /// Opens the store like a program that knows only these migration steps.
    pub(crate) async fn open_at(
        steps: &[&str],
        url: &StoreUrl,
        namespace: &Namespace,
        connections: usize,
    ) -> Result<Self> {
        let (config, tls) = config(url)?;
        let env = Env::system();
        let pool = Arc::new(Pool::new(config, tls, url.to_string(), connections, env));
        let schema = schema::name(namespace.as_str());
        schema::prepare(&pool, &schema, steps).await?;
        let notifier = Notifier::start(pool.clone(), &schema);
        Ok(Self(Arc::new(Inner {
            pool,
            schema,
            version: steps.len(),
            notifier,
            current_tables: CurrentTables::default(),
            truncating: tokio::sync::Mutex::default(),
            read_cache: ReadCache::default(),
        })))
    }

    /// The schema as a quoted identifier.
    pub(crate) fn schema(&self) -> &str {
        &self.0.schema
    }

    /// The URL of the database, without the password.
    pub(crate) fn redacted_url(&self) -> &str {
        self.0.pool.redacted_url()
    }

    pub(crate) fn version(&self) -> usize {
        self.0.version
    }

    pub(crate) fn env(&self) -> &Env {
        self.0.pool.env()
    }

    pub(crate) fn notifier(&self) -> &Notifier {
        &self.0.notifier
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Held while a table is emptied.
    pub(crate) fn truncating(&self) -> &tokio::sync::Mutex<()> {
        &self.0.truncating
    }

    pub(crate) fn current_tables(&self) -> &CurrentTables {
        &self.0.current_tables
    }

    pub(crate) fn read_cache(&self) -> &ReadCache {
        &self.0.read_cache
    }

    /// Runs one statement, which is its own transaction.
    pub(crate) async fn query(&self, effect: Effect, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.0.pool.query(effect, sql, params).await.map_err(|failure| failure.explain(effect))
    }

    /// Runs several statements in one message and one transaction. Returns the number of rows that each of
    /// them touched.
    pub(crate) async fn script(&self, sql: &str) -> Result<Vec<u64>> {
        let said = self.transact(async |client| Ok(client.simple_query(sql).await?)).await?;
        let rows =
            |said| if let SimpleQueryMessage::CommandComplete(rows) = said { Some(rows) } else { None };
        Ok(said.into_iter().filter_map(rows).collect())
    }

    /// Runs one statement about a topic. A missing table means that the topic is missing.
    pub(crate) async fn query_topic(
        &self,
        topic: &Topic,
        effect: Effect,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        self.0.pool.query(effect, sql, params).await.map_err(|failure| topic_error(topic, failure, effect))
    }

    /// Returns a connection for a transaction of several statements.
    pub(crate) async fn lease(&self) -> Result<Lease<'_>> {
        self.0.pool.lease().await
    }

    /// Runs a transaction of several statements.
    pub(crate) async fn transact<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T> {
        self.lease().await?.bounded(work).await.map_err(|failure| failure.explain(Effect::Writes))
    }
}

/// Returns the error of a failed call about a topic.
pub(crate) fn topic_error(topic: &Topic, failure: Failure, effect: Effect) -> Error {
    if failure.is_missing() { topic.missing() } else { failure.explain(effect) }
}

fn config(url: &StoreUrl) -> Result<(Config, Tls)> {
    let invalid = |said: String| Error::new(ErrorKind::Invalid, format!("{url}: {said}"));
    if !url.rest().starts_with("//") {
        return Err(invalid("write it like postgres://user:password@host:5432/database".to_owned()));
    }
    let (rest, settings) = TlsSettings::from_url(url.with_password()).map_err(invalid)?;
    let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
        // The driver's message names an option or a port, never the password.
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        invalid(format!("this is not a URL of PostgreSQL's ({source})"))
    })?;
    config.ssl_mode(settings.ssl_mode());
    // With `hostaddr` alone the server has no other name, and the driver does not encrypt without one.
    if config.get_hosts().is_empty() {
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
    Ok((config, settings.connector().map_err(invalid)?))
}
