//! A few connections, shared by all calls.
//!
//! Nothing is kept in a connection's session, so that a pooler between us and the server may change it under us after
//! every transaction.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sawmill::env::Env;
use sawmill::{Error, ErrorKind, Result};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, Connection, Row, Socket};

use crate::error::{Effect, Failure, explain_connect};
use crate::tls::{Encrypted, Tls};

/// How long a call may take, whatever the server does.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// How long making a connection may take, unless the URL says otherwise.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);

/// Who only listens notices by these alone that the other side is gone without a word: after half a minute of silence it is asked for
/// a sign of life, and given up when several are missing.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(30);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVES: u32 = 4;

/// A value for a statement, and its type: named, because asking the server for it would take a prepared statement.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

/// The connections.
pub(crate) struct Pool {
    config: Config,
    tls: Tls,
    /// Where the server is, for people: without the password.
    place: String,
    env: Env,
    room: Semaphore,
    /// By the number of the connection. The first of them is used: the longer a session is in use, the more the server has
    /// planned and looked up in it, and one that is needed now and then should not be in the way of most calls.
    idle: Mutex<BTreeMap<u64, Client>>,
    made: AtomicU64,
}

impl Pool {
    pub(crate) fn new(mut config: Config, tls: Tls, place: String, connections: usize, env: Env) -> Self {
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_LIMIT);
        }
        if config.get_application_name().is_none() {
            config.application_name("sawmill");
        }
        // The driver has a time of its own where the URL says nothing: that one counts as nothing said.
        if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
            config.keepalives_idle(KEEPALIVE_AFTER);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(KEEPALIVE_EVERY);
        }
        if config.get_keepalives_retries().is_none() {
            config.keepalives_retries(KEEPALIVES);
        }
        let room = Semaphore::new(connections.max(1));
        Self { config, tls, place, env, room, idle: Mutex::default(), made: AtomicU64::new(0) }
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    /// A connection of one's own, outside the pool, which the caller must drive.
    pub(crate) async fn connect(&self) -> Result<(Client, Connection<Socket, Encrypted>)> {
        let connecting = self.env.within(CALL_LIMIT, self.config.connect(self.tls.clone())).await;
        match connecting {
            Some(Ok(connected)) => Ok(connected),
            Some(Err(error)) => Err(explain_connect(&error, &self.place)),
            None => Err(Error::new(
                ErrorKind::Unavailable,
                format!("{}: the server does not answer: check its host and its port", self.place),
            )),
        }
    }

    /// Does what takes longer than a call may, on a connection of its own: others do not wait for one meanwhile. It goes with this.
    pub(crate) async fn apart<T>(
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

    /// A connection for one call.
    pub(crate) async fn lease(&self) -> Result<Lease<'_>> {
        let gone = || Error::new(ErrorKind::Unavailable, "the store is closed");
        let waited = self.env.within(CALL_LIMIT, self.room.acquire()).await;
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

    /// Runs one statement, which is a transaction by itself.
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
                Err(failure) if !fresh && effect == Effect::Reads && failure.is_cut() => continue,
                ended => return ended,
            }
        }
    }
}

/// A connection that goes back to the pool.
pub(crate) struct Lease<'p> {
    pool: &'p Pool,
    number: u64,
    client: Option<Client>,
    fresh: bool,
    _permit: SemaphorePermit<'p>,
}

impl Lease<'_> {
    /// Does something with it, within the time that a call may take. If it takes longer, the connection is given up.
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

/// A call that nobody waits for any more leaves nothing behind: what the server still answers is thrown away, and an
/// open transaction is rolled back.
impl Drop for Lease<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take().filter(|client| !client.is_closed()) {
            self.pool.idle().insert(self.number, client);
        }
    }
}
