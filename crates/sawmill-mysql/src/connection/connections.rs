//! A pool of connections that stay open between calls.
//!
//! A connection returns to the pool only if every question was answered and no transaction is open. A
//! cancelled call therefore closes its connection, and no caller gets the answer to another caller's
//! question.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Opts, OptsBuilder, Row};
use sawmill_engine::runtime::{Env, Moment};
use sawmill_engine::{Error, ErrorKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::connection::sql::Sql;
use crate::error::{Failure, explain_connect, unreachable};

/// The maximum number of connections per store.
const MAX_CONNECTIONS: usize = 16;
/// The time limit for opening a connection, and for waiting for a free one.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The time limit for one packet of statements.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(45);
/// After this idle time a connection is pinged before use, because servers, firewalls and proxies close idle
/// ones.
const PING_AFTER_IDLE: Duration = Duration::from_secs(5);
/// An idle connection is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The settings of every session, so nothing depends on the configuration of the server. Under READ COMMITTED
/// each statement sees everything that was committed before it, and gaps between rows are not locked. A
/// schema change that waits for an open transaction blocks everybody behind it, so it gives up soon and is
/// tried again. A client that stops or disappears in the middle of a transaction holds counters that others
/// wait for: MariaDB ends it soon, MySQL after 75 s instead of its default of 8 hours.
pub(crate) const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\
     SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1,\
     innodb_lock_wait_timeout = 10, lock_wait_timeout = 3, foreign_key_checks = 1, unique_checks = 1,\
     wait_timeout = 75 /*M!100300 , idle_transaction_timeout = 10 */;\
     SET NAMES utf8mb4";

/// The connections of one store.
pub(crate) struct Connections {
    opts: Opts,
    env: Env,
    shared: Arc<Shared>,
}

/// State that is shared with the connections in use.
struct Shared {
    idle: Mutex<VecDeque<(Conn, Moment)>>,
    permits: Arc<Semaphore>,
    /// The number of packets sent.
    asked: AtomicU64,
    /// The number of connections opened.
    made: AtomicU64,
}

impl Shared {
    fn idle(&self) -> MutexGuard<'_, VecDeque<(Conn, Moment)>> {
        self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Connections {
    pub(crate) fn new(opts: Opts, env: Env) -> Self {
        let opts = OptsBuilder::from_opts(opts)
            // Otherwise the driver prefers the server's Unix socket over the host in the URL.
            .prefer_socket(false)
            // The number of changed rows shows which ids are new.
            .client_found_rows(false)
            .tcp_keepalive(Some(30_000_u32))
            .setup(vec![SESSION]);
        let shared = Shared {
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            asked: AtomicU64::new(0),
            made: AtomicU64::new(0),
        };
        Self { opts: opts.into(), env, shared: Arc::new(shared) }
    }

    /// Takes an idle connection or opens a new one.
    pub(crate) async fn take(&self) -> Result<Connection, Failure> {
        let permit = self.env.within(CONNECT_TIMEOUT, self.shared.permits.clone().acquire_owned()).await;
        let Some(Ok(permit)) = permit else {
            let said =
                format!("none of {MAX_CONNECTIONS} connections to the database became free; try again");
            return Err(Error::new(ErrorKind::Unavailable, said).into());
        };
        while let Some((mut conn, since)) = self.used() {
            let idle = self.env.now().since(since);
            if idle < PING_AFTER_IDLE
                || self.env.within(CONNECT_TIMEOUT, conn.ping()).await.is_some_and(|pong| pong.is_ok())
            {
                return Ok(self.connection(conn, permit, false));
            }
        }
        let conn = self
            .env
            .within(CONNECT_TIMEOUT, Conn::new(self.opts.clone()))
            .await
            .ok_or_else(|| unreachable("it does not answer"))?
            .map_err(|error| explain_connect(&error))?;
        self.shared.made.fetch_add(1, Ordering::Relaxed);
        Ok(self.connection(conn, permit, true))
    }

    /// Takes the most recently used idle connection. Closes those that were idle for too long.
    fn used(&self) -> Option<(Conn, Moment)> {
        let now = self.env.now();
        let mut idle = self.shared.idle();
        while idle.front().is_some_and(|(_, since)| now.since(*since) > IDLE_TIMEOUT) {
            idle.pop_front();
        }
        idle.pop_back()
    }

    fn connection(&self, conn: Conn, permit: OwnedSemaphorePermit, is_new: bool) -> Connection {
        Connection {
            conn: Some(conn),
            is_new,
            answered: true,
            in_transaction: false,
            shared: self.shared.clone(),
            env: self.env.clone(),
            _permit: permit,
        }
    }

    /// Returns the number of packets sent and of connections opened.
    pub(crate) fn tally(&self) -> (u64, u64) {
        (self.shared.asked.load(Ordering::Relaxed), self.shared.made.load(Ordering::Relaxed))
    }
}

/// A connection in use.
pub(crate) struct Connection {
    conn: Option<Conn>,
    /// The connection may be the first one to this incarnation of the server: see
    /// [`incarnation`](crate::connection::incarnation). It is not pooled until that was checked.
    pub(crate) is_new: bool,
    /// Everything sent was answered.
    answered: bool,
    /// A transaction is open.
    in_transaction: bool,
    shared: Arc<Shared>,
    env: Env,
    _permit: OwnedSemaphorePermit,
}

/// The answer to one statement.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The selected rows.
    pub(crate) rows: Vec<Row>,
    /// The number of changed rows.
    pub(crate) changed: u64,
}

impl Connection {
    /// Sends statements and returns the answer to each. After an error, the remaining statements are not run.
    pub(crate) async fn ask(&mut self, sql: &Sql) -> Result<Vec<Answer>, Failure> {
        self.answered = false;
        self.shared.asked.fetch_add(1, Ordering::Relaxed);
        let Some(conn) = &mut self.conn else {
            return Err(Failure::Lost("the connection is closed".into()));
        };
        match self.env.within(ANSWER_TIMEOUT, answers(conn, sql)).await {
            Some(Ok(answers)) => {
                self.answered = true;
                Ok(answers)
            }
            Some(Err(mysql_async::Error::Server(error))) => {
                self.answered = true;
                Err(Failure::Server(error))
            }
            Some(Err(mysql_async::Error::Driver(DriverError::PacketTooLarge))) => {
                let said = "this is more than the server takes at once; raise its max_allowed_packet";
                Err(Error::new(ErrorKind::TooLarge, said).into())
            }
            Some(Err(error)) => Err(self.lost(error.to_string())),
            None => Err(self.lost(format!("no answer came within {ANSWER_TIMEOUT:?}"))),
        }
    }

    /// When one connection breaks, the others usually have too. Closes the idle ones so a retry does not meet
    /// them one by one.
    fn lost(&self, why: String) -> Failure {
        self.shared.idle().clear();
        Failure::Lost(why)
    }

    /// Sends statements, the first of which begins a transaction.
    pub(crate) async fn begin(&mut self, sql: &mut Sql) -> Result<Vec<Answer>, Failure> {
        self.in_transaction = true;
        self.ask(sql).await
    }

    /// Sends the last statements of a transaction and commits it.
    pub(crate) async fn commit(&mut self, mut sql: Sql) -> Result<Vec<Answer>, Failure> {
        sql.then("COMMIT");
        let answers = self.ask(&sql).await.map_err(Failure::of_commit)?;
        self.in_transaction = false;
        Ok(answers)
    }

    /// Sends one statement that is its own transaction.
    pub(crate) async fn write(&mut self, sql: &Sql) -> Result<Answer, Failure> {
        let answers = self.ask(sql).await.map_err(Failure::of_commit)?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Rolls back the open transaction if the work failed.
    pub(crate) async fn roll_back_on_error<T>(&mut self, done: Result<T, Failure>) -> Result<T, Failure> {
        if done.is_err() {
            self.roll_back().await;
        }
        done
    }

    /// Rolls back the open transaction. The connection can be reused if that succeeds.
    pub(crate) async fn roll_back(&mut self) {
        if self.in_transaction && self.answered {
            self.in_transaction = self.ask(&Sql::new("ROLLBACK")).await.is_err();
        }
    }
}

async fn answers(conn: &mut Conn, sql: &Sql) -> mysql_async::Result<Vec<Answer>> {
    let mut result = conn.query_iter(sql.text()).await?;
    let mut answers = Vec::with_capacity(sql.statements());
    for _ in 0..sql.statements() {
        // `collect` moves on to the next answer, so this comes first.
        let changed = result.affected_rows();
        let rows = result.collect().await?;
        answers.push(Answer { rows, changed });
    }
    Ok(answers)
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take()
            && self.answered
            && !self.in_transaction
            && !self.is_new
        {
            let now = self.env.now();
            self.shared.idle().push_back((conn, now));
        }
    }
}
