//! A small pool of connections that all calls share.
//!
//! Nothing is kept in a session, so a pooler in front of the server may switch the server connection after
//! every transaction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sawmill_engine::runtime::Env;
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Connection, Row, Socket};

use crate::connection::tls::{Encrypted, Tls};
use crate::error::{Effect, Failure, explain_connect};

/// The time limit of a call.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// The time limit for connecting, unless the URL sets one.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// A connection that only listens detects a dead peer by keepalives alone. After 30 s of silence the system
/// starts to probe, and gives up after several missing replies.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVES: u32 = 4;

/// A parameter and its type. The type is explicit because asking the server for it takes a prepared
/// statement.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connection pool.
pub(crate) struct Pool {
    config: Config,
    tls: Tls,
    /// The URL of the server without the password, for messages.
    redacted_url: String,
    env: Env,
    permits: Semaphore,
    /// Idle connections, by the order in which they were opened. The oldest is used first: a session gets
    /// faster with use because the server caches plans and catalog lookups in it, so rarely used sessions
    /// should not serve most calls.
    idle: Mutex<BTreeMap<u64, Client>>,
    made: AtomicU64,
}

impl Pool {
    pub(crate) fn new(
        mut config: Config,
        tls: Tls,
        redacted_url: String,
        connections: usize,
        env: Env,
    ) -> Self {
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        if config.get_application_name().is_none() {
            config.application_name("sawmill");
        }
        // The driver has a default of its own. That value counts as unset.
        if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
            config.keepalives_idle(KEEPALIVE_AFTER);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(KEEPALIVE_EVERY);
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(KEEPALIVES);
        }
        let permits = Semaphore::new(connections.max(1));
        Self { config, tls, redacted_url, env, permits, idle: Mutex::default(), made: AtomicU64::new(0) }
    }

    pub(crate) fn redacted_url(&self) -> &str {
        &self.redacted_url
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// Opens a connection outside the pool. The caller must drive it.
    pub(crate) async fn connect(&self) -> Result<(Client, Connection<Socket, Encrypted>)> {
        let connecting = self.env.within(CALL_LIMIT, self.config.connect(self.tls.clone())).await;
        match connecting {
            Some(Ok(connected)) => Ok(connected),
            Some(Err(error)) => Err(explain_connect(&error, &self.redacted_url)),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                format!("{}: the server does not answer: check its host and its port", self.redacted_url),
            )),
        }
    }

    /// Runs work that may take longer than a call on its own connection, so it does not block the pool. The
    /// connection is closed afterwards.
    pub(crate) async fn with_own_connection<T>(
        &self,
        limit: Duration,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (mut client, connection) = self.connect().await?;
        self.env.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        self.env.within(limit, work(&mut client)).await.unwrap_or(Err(Failure::Silence))
    }

    /// Takes a connection for one call.
    pub(crate) async fn lease(&self) -> Result<Lease<'_>> {
        let gone = || Error::new(ErrorKind::Unavailable, "the store is closed");
        let waited = self.env.within(CALL_LIMIT, self.permits.acquire()).await;
        let Some(permit) = waited else {
            return Err(Error::new(ErrorKind::Unavailable, "all connections are busy; try again"));
        };
        let permit = permit.map_err(|_| gone())?;
        loop {
            let idle = self.idle().pop_first();
            match idle {
                Some((_, client)) if client.is_closed() => continue,
                Some((number, client)) => {
                    return Ok(Lease {
                        pool: self,
                        number,
                        client: Some(client),
                        fresh: false,
                        _permit: permit,
                    });
                }
                None => break,
            }
        }
        let (client, connection) = self.connect().await?;
        self.env.spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to PostgreSQL ended");
            }
        });
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Ok(Lease { pool: self, number, client: Some(client), fresh: true, _permit: permit })
    }

    fn idle(&self) -> MutexGuard<'_, BTreeMap<u64, Client>> {
        self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Runs one statement, which is its own transaction.
    pub(crate) async fn query(
        &self,
        effect: Effect,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, Failure> {
        loop {
            let lease = self.lease().await?;
            let fresh = lease.fresh;
            let ended = lease.bounded(async |client| Ok(client.query_typed(sql, params).await?)).await;
            match ended {
                Err(failure) if !fresh && effect == Effect::Reads && failure.is_disconnected() => continue,
                ended => return ended,
            }
        }
    }
}

/// A connection that returns to the pool when dropped.
pub(crate) struct Lease<'p> {
    pool: &'p Pool,
    number: u64,
    client: Option<Client>,
    fresh: bool,
    _permit: SemaphorePermit<'p>,
}

impl Lease<'_> {
    /// Runs `work` within the time limit of a call. The connection is dropped if the limit is exceeded.
    pub(crate) async fn bounded<T>(
        mut self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(client) = &mut self.client else { return Err(Failure::Silence) };
        match self.pool.env.within(CALL_LIMIT, work(client)).await {
            Some(ended) => ended,
            None => {
                self.client = None;
                Err(Failure::Silence)
            }
        }
    }
}

/// A cancelled call leaves nothing behind: the driver discards the remaining answers and rolls back an open
/// transaction.
impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().filter(|client| !client.is_closed()) {
            self.pool.idle().insert(self.number, client);
        }
    }
}
