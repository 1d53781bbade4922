//! The store: what its log and its ledger share.

use std::fmt;
use std::sync::Arc;

use sawmill::engine::{Namespace, StoreUrl};
use sawmill::env::Env;
use sawmill::topic::Topic;
use sawmill::{Error, ErrorKind, Result};
use tokio_postgres::{Client, Config, Row, SimpleQueryMessage};

use crate::error::{Effect, Failure};
use crate::news::News;
use crate::pool::{Lease, Param, Pool};
use crate::read::Marks;
use crate::schema;
use crate::tls::{Tls, Wish};
use crate::topics::Turns;

/// A log and a ledger in one schema of a database. Clones share their connections.
#[derive(Clone)]
pub struct Postgres(Arc<Inner>);

struct Inner {
    pool: Arc<Pool>,
    schema: String,
    /// Of its tables, when they were opened.
    version: usize,
    news: News,
    turns: Turns,
    emptying: tokio::sync::Mutex<()>,
    marks: Marks,
}

/// Which schema of which database, without the password.
impl fmt::Debug for Postgres {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Postgres({} in {})", self.0.schema, self.0.pool.place())
    }
}

impl Postgres {
    /// Opens the store of a namespace, creating or migrating what it needs, with at most so many connections for its calls.
    /// One more is for hints.
    pub async fn open(url: &StoreUrl, namespace: &Namespace, connections: usize) -> Result<Self> {
        Self::open_at(schema::STEPS, url, namespace, connections).await
    }

    /// As a program would that knows these steps of the tables.
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
        let news = News::start(pool.clone(), &schema);
        Ok(Self(Arc::new(Inner {
            pool,
            schema,
            version: steps.len(),
            news,
            turns: Turns::default(),
            emptying: tokio::sync::Mutex::default(),
            marks: Marks::default(),
        })))
    }

    /// As it stands in statements.
    pub(crate) fn schema(&self) -> &str {
        &self.0.schema
    }

    /// Which database it is, without the password.
    pub(crate) fn place(&self) -> &str {
        self.0.pool.place()
    }

    pub(crate) fn version(&self) -> usize {
        self.0.version
    }

    pub(crate) fn env(&self) -> &Env {
        self.0.pool.env()
    }

    pub(crate) fn news_desk(&self) -> &News {
        &self.0.news
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Held by whoever empties a table.
    pub(crate) fn emptying(&self) -> &tokio::sync::Mutex<()> {
        &self.0.emptying
    }

    pub(crate) fn turns(&self) -> &Turns {
        &self.0.turns
    }

    pub(crate) fn marks(&self) -> &Marks {
        &self.0.marks
    }

    /// Runs one statement, which is a transaction by itself.
    pub(crate) async fn query(&self, effect: Effect, sql: &str, params: &[Param<'_>]) -> Result<Vec<Row>> {
        self.0.pool.query(effect, sql, params).await.map_err(|failure| failure.explain(effect))
    }

    /// Runs several statements that are sent as one and are one transaction. Says how many rows each of them touched.
    pub(crate) async fn script(&self, sql: &str) -> Result<Vec<u64>> {
        let said = self.transact(async |client| Ok(client.simple_query(sql).await?)).await?;
        let rows =
            |said| if let SimpleQueryMessage::CommandComplete(rows) = said { Some(rows) } else { None };
        Ok(said.into_iter().filter_map(rows).collect())
    }

    /// Runs one statement about a topic, whose tables may be gone.
    pub(crate) async fn query_topic(
        &self,
        topic: &Topic,
        effect: Effect,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>> {
        self.0.pool.query(effect, sql, params).await.map_err(|failure| about(topic, failure, effect))
    }

    /// A connection for a transaction of several statements.
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

/// The error of a call about a topic.
pub(crate) fn about(topic: &Topic, failure: Failure, effect: Effect) -> Error {
    if failure.is_missing() { topic.missing() } else { failure.explain(effect) }
}

fn config(url: &StoreUrl) -> Result<(Config, Tls)> {
    let invalid = |said: String| Error::new(ErrorKind::Invalid, format!("{url}: {said}"));
    if !url.rest().starts_with("//") {
        return Err(invalid("write it like postgres://user:password@host:5432/database".to_owned()));
    }
    let (rest, wish) = Wish::of(url.with_password()).map_err(invalid)?;
    let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| {
        // The driver's words name an option or a port, never the password.
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        invalid(format!("this is not a URL of PostgreSQL's ({source})"))
    })?;
    config.ssl_mode(wish.ssl_mode());
    // Who gives an address alone has no other name for the server: the driver would not encrypt without one.
    if config.get_hosts().is_empty() {
        for address in config.get_hostaddrs().to_vec() {
            config.host(address.to_string());
        }
    }
    Ok((config, wish.connector().map_err(invalid)?))
}
