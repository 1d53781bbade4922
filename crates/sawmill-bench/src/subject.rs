//! What an engine brings along to be measured: stores of Sawmill's on it, and the same work done by the engine alone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::Sawmill;
use sawmill::env::Env;
use sawmill::ledger::Ledger;

use crate::Failure;

/// An engine that is measured.
#[async_trait]
pub(crate) trait Subject: Send + Sync {
    /// Its name, for people.
    fn name(&self) -> &'static str;

    fn goals(&self) -> Goals;

    /// How many batches a program pushes at the same time: as many as the engine alone is given.
    fn pushes_at_once(&self) -> usize {
        1
    }

    /// True if the engine writes single pushes together by itself, so that they need no `Producer`.
    fn gathers_pushes(&self) -> bool;

    /// A name for a store of Sawmill's that nobody else has: another process opens the same store by it.
    fn store(&self, name: &str) -> String;

    /// Opens a store of Sawmill's, and makes it if it is not there.
    async fn open(&self, store: &str, env: Env) -> Result<Box<dyn Opened>, Failure>;

    /// Removes a store that nobody has open.
    async fn remove(&self, store: &str) -> Result<(), Failure>;

    /// A table of the engine's alone, with nothing in it.
    async fn raw(&self) -> Result<Box<dyn Raw>, Failure>;

    /// The queue that is usually built on such an engine; none where it makes no sense.
    async fn row_queue(&self) -> Result<Option<Box<dyn RowQueue>>, Failure>;

    /// Holds a transaction open, which sees everything as it is now, where there is such a thing.
    async fn pin(&self) -> Result<Option<Box<dyn Pin>>, Failure> {
        Ok(None)
    }
}

/// What is wanted of an engine.
#[derive(Clone, Copy)]
pub(crate) struct Goals {
    /// End to end, in times of the engine alone.
    pub(crate) end_to_end: f64,
    /// End to end, in times of the queue that is usually built.
    pub(crate) row_queue: Option<f64>,
    /// Single pushes, in times of single inserts.
    pub(crate) single: f64,
    /// Milliseconds from push to start.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Times that an idle worker's timers go off in a second.
    pub(crate) idle_timers: Option<f64>,
}

/// A store of Sawmill's that is open.
#[async_trait]
pub(crate) trait Opened: Send + Sync {
    fn mill(&self) -> &Sawmill;

    /// Its ledger, of engines whose commits are measured on their own.
    fn ledger(&self) -> Option<Arc<dyn Ledger>> {
        None
    }

    /// What the engine has done so far.
    async fn tally(&self) -> Result<Tally, Failure>;

    /// Closes the store and says what the engine had done then.
    async fn close(self: Box<Self>) -> Result<Tally, Failure>;
}

/// What an engine has done since it was started.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// How often it was asked for something, by whoever it was.
    pub(crate) queries: u64,
    /// Transactions that wrote.
    pub(crate) commits: u64,
    /// How often it was looked for changes because some time had passed.
    pub(crate) looks: u64,
    /// Bytes of its own log, where it says that.
    pub(crate) log_bytes: u64,
}

impl Tally {
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            queries: self.queries.saturating_sub(before.queries),
            commits: self.commits.saturating_sub(before.commits),
            looks: self.looks.saturating_sub(before.looks),
            log_bytes: self.log_bytes.saturating_sub(before.log_bytes),
        }
    }
}

/// A table of the same columns as Sawmill's messages have, without an index, written as durably as Sawmill writes.
#[async_trait]
pub(crate) trait Raw: Send {
    /// Inserts rows in one transaction, in the engine's fastest way.
    async fn insert(&mut self, rows: usize) -> Result<(), Failure>;

    /// Waits until everything that was inserted is durable, where inserting does not.
    async fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Inserts rows in a transaction each, as many at the same time as the engine is good for.
    async fn insert_singly(&mut self, rows: usize) -> Result<(), Failure>;

    /// Inserts a row in a transaction.
    async fn insert_one(&mut self) -> Result<(), Failure>;

    /// Reads everything back, and says how many bytes of payload there were.
    async fn read_all(&mut self) -> Result<usize, Failure>;

    /// How many bytes the engine has written to its own log since it was started; 0 where it does not say.
    async fn log_bytes(&mut self) -> Result<u64, Failure>;

    /// Removes the table.
    async fn remove(self: Box<Self>) -> Result<(), Failure>;
}

/// A table of jobs with a state each, worked off by locking rows and skipping those that others have locked.
#[async_trait]
pub(crate) trait RowQueue: Send {
    /// Adds jobs in one transaction, in the engine's fastest way.
    async fn push(&mut self, rows: usize) -> Result<(), Failure>;

    /// Takes some jobs and marks them as running; then marks them as completed. Says how many there were.
    async fn work(&mut self, most: usize) -> Result<usize, Failure>;

    async fn remove(self: Box<Self>) -> Result<(), Failure>;
}

/// A transaction that is held open.
#[async_trait]
pub(crate) trait Pin: Send {
    /// What could not be cleaned up so far, with its name.
    async fn dead(&mut self, store: &str) -> Result<Vec<(String, u64)>, Failure>;

    /// Ends the transaction.
    async fn release(&mut self) -> Result<(), Failure>;
}

/// Seconds that something takes.
pub(crate) async fn seconds<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<(f64, T), E> {
    let env = Env::system();
    let began = env.now();
    let done = work.await?;
    Ok((env.now().since(began).as_secs_f64(), done))
}

/// Milliseconds that each of these transactions of one row takes, with a pause after each.
pub(crate) async fn commit_now_and_then(
    raw: &mut dyn Raw,
    count: usize,
    pause: Duration,
) -> Result<Vec<f64>, Failure> {
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let (seconds, ()) = seconds(raw.insert_one()).await?;
        took.push(seconds * 1e3);
        Env::system().sleep(pause).await;
    }
    Ok(took)
}
