//! Connections, kept open between calls.
//!
//! A connection goes back only if all that was asked on it was answered and no transaction is open. A caller who goes away
//! in the middle of a call therefore closes it, and nobody is ever given the answer to another's question.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, DriverError, Opts, OptsBuilder, Row};
use sawmill::clock::Moment;
use sawmill::env::Env;
use sawmill::{Error, ErrorKind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Failure, explain_connect, unreachable};
use crate::sql::Sql;

/// How many connections one store has at most.
const MOST: usize = 16;
/// How long to wait for a connection to be made, or to become free.
const CONNECTING: Duration = Duration::from_secs(15);
/// How long the server may take for one packet of statements.
const ANSWERING: Duration = Duration::from_secs(45);
/// After so long a connection is tried out before it is used: servers, firewalls and proxies close idle ones.
const TRUSTED: Duration = Duration::from_secs(5);
/// A connection that nobody needed for so long is closed.
const KEPT: Duration = Duration::from_secs(60);

/// What every session is set to, so that nothing depends on how the server is set up. Under READ COMMITTED each statement sees
/// all that was committed before it, and no gaps between rows are locked. A change of tables that waits for somebody's open transaction
/// makes all others wait behind it: so it gives up soon, and is tried again. One who is stopped in the middle of a transaction, or goes
/// without a word, holds counters that others wait for: the server ends it soon (MariaDB), or at least long before a day is over.
pub(crate) const SESSION: &str = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;\
     SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', autocommit = 1,\
     innodb_lock_wait_timeout = 10, lock_wait_timeout = 3, foreign_key_checks = 1, unique_checks = 1,\
     wait_timeout = 75 /*M!100300 , idle_transaction_timeout = 10 */;\
     SET NAMES utf8mb4";

/// The connections of one store.
pub(crate) struct Connections {
    opts: Opts,
    env: Env,
    shelf: Arc<Shelf>,
}

/// What the connections that are out have in common.
struct Shelf {
    idle: Mutex<VecDeque<(Conn, Moment)>>,
    room: Arc<Semaphore>,
    /// Packets of statements that were sent.
    asked: AtomicU64,
    /// Connections that were made.
    made: AtomicU64,
}

impl Shelf {
    fn idle(&self) -> MutexGuard<'_, VecDeque<(Conn, Moment)>> {
        self.idle.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Connections {
    pub(crate) fn new(opts: Opts, env: Env) -> Self {
        let opts = OptsBuilder::from_opts(opts)
            // The server's own socket file would be preferred otherwise, which is not what the URL says.
            .prefer_socket(false)
            // What counts as changed tells what is new.
            .client_found_rows(false)
            .tcp_keepalive(Some(30_000_u32))
            .setup(vec![SESSION]);
        let shelf = Shelf {
            idle: Mutex::default(),
            room: Arc::new(Semaphore::new(MOST)),
            asked: AtomicU64::new(0),
            made: AtomicU64::new(0),
        };
        Self { opts: opts.into(), env, shelf: Arc::new(shelf) }
    }

    /// A connection, new or used.
    pub(crate) async fn take(&self) -> Result<Line, Failure> {
        let room = self.env.within(CONNECTING, self.shelf.room.clone().acquire_owned()).await;
        let Some(Ok(room)) = room else {
            let said = format!("none of {MOST} connections to the database became free; try again");
            return Err(Error::new(ErrorKind::Unavailable, said).into());
        };
        while let Some((mut conn, since)) = self.used() {
            let idle = self.env.now().since(since);
            if idle < TRUSTED
                || self.env.within(CONNECTING, conn.ping()).await.is_some_and(|pong| pong.is_ok())
            {
                return Ok(self.line(conn, room, false));
            }
        }
        let conn = self
            .env
            .within(CONNECTING, Conn::new(self.opts.clone()))
            .await
            .ok_or_else(|| unreachable("it does not answer"))?
            .map_err(|error| explain_connect(&error))?;
        self.shelf.made.fetch_add(1, Ordering::Relaxed);
        Ok(self.line(conn, room, true))
    }

    /// The connection that was used last. Those that were not used for long are closed.
    fn used(&self) -> Option<(Conn, Moment)> {
        let now = self.env.now();
        let mut idle = self.shelf.idle();
        while idle.front().is_some_and(|(_, since)| now.since(*since) > KEPT) {
            idle.pop_front();
        }
        idle.pop_back()
    }

    fn line(&self, conn: Conn, room: OwnedSemaphorePermit, is_new: bool) -> Line {
        Line {
            conn: Some(conn),
            is_new,
            answered: true,
            open: false,
            shelf: self.shelf.clone(),
            env: self.env.clone(),
            _room: room,
        }
    }

    /// How many packets of statements were sent, and how many connections were made.
    pub(crate) fn tally(&self) -> (u64, u64) {
        (self.shelf.asked.load(Ordering::Relaxed), self.shelf.made.load(Ordering::Relaxed))
    }
}

/// A connection in use.
pub(crate) struct Line {
    conn: Option<Conn>,
    /// It may be the first in a new life of the server: see [`life`](crate::life). Until that is looked at, it is not for others.
    pub(crate) is_new: bool,
    /// Everything that was asked was answered.
    answered: bool,
    /// A transaction is open.
    open: bool,
    shelf: Arc<Shelf>,
    env: Env,
    _room: OwnedSemaphorePermit,
}

/// The answer to one statement.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// The rows it selected.
    pub(crate) rows: Vec<Row>,
    /// How many rows it changed.
    pub(crate) changed: u64,
}

impl Line {
    /// Sends statements, and gives the answer to each. When one fails, those after it are not done.
    pub(crate) async fn ask(&mut self, sql: &Sql) -> Result<Vec<Answer>, Failure> {
        self.answered = false;
        self.shelf.asked.fetch_add(1, Ordering::Relaxed);
        let Some(conn) = &mut self.conn else {
            return Err(Failure::Lost("the connection is closed".into()));
        };
        match self.env.within(ANSWERING, answers(conn, sql)).await {
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
            None => Err(self.lost(format!("no answer came within {ANSWERING:?}"))),
        }
    }

    /// Where one connection breaks, others mostly do: what is done again shall not meet them one by one.
    fn lost(&self, why: String) -> Failure {
        self.shelf.idle().clear();
        Failure::Lost(why)
    }

    /// Sends statements of which the first begins a transaction.
    pub(crate) async fn begin(&mut self, sql: &mut Sql) -> Result<Vec<Answer>, Failure> {
        self.open = true;
        self.ask(sql).await
    }

    /// Sends the last statements of a transaction, and commits it.
    pub(crate) async fn commit(&mut self, mut sql: Sql) -> Result<Vec<Answer>, Failure> {
        sql.then("COMMIT");
        let answers = self.ask(&sql).await.map_err(Failure::of_commit)?;
        self.open = false;
        Ok(answers)
    }

    /// Sends one statement that is a transaction by itself.
    pub(crate) async fn write(&mut self, sql: &Sql) -> Result<Answer, Failure> {
        let answers = self.ask(sql).await.map_err(Failure::of_commit)?;
        Ok(answers.into_iter().next().unwrap_or_default())
    }

    /// Undoes what a piece of work has left open, if it failed.
    pub(crate) async fn settle<T>(&mut self, done: Result<T, Failure>) -> Result<T, Failure> {
        if done.is_err() {
            self.roll_back().await;
        }
        done
    }

    /// Ends the open transaction, undoing it. The connection can be used again if that works.
    pub(crate) async fn roll_back(&mut self) {
        if self.open && self.answered {
            self.open = self.ask(&Sql::new("ROLLBACK")).await.is_err();
        }
    }
}

async fn answers(conn: &mut Conn, sql: &Sql) -> mysql_async::Result<Vec<Answer>> {
    let mut result = conn.query_iter(sql.text()).await?;
    let mut answers = Vec::with_capacity(sql.statements());
    for _ in 0..sql.statements() {
        // Collecting goes on to the next answer, so this one is asked first.
        let changed = result.affected_rows();
        let rows = result.collect().await?;
        answers.push(Answer { rows, changed });
    }
    Ok(answers)
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take()
            && self.answered
            && !self.open
            && !self.is_new
        {
            let now = self.env.now();
            self.shelf.idle().push_back((conn, now));
        }
    }
}
