//! The interface of an engine to be measured: stores of Sawmill on it, and the same work by the engine alone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sawmill::Sawmill;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::Ledger;

use crate::Failure;

/// A measured engine.
#[async_trait]
pub(crate) trait Subject: Send + Sync {
    /// The display name.
    fn name(&self) -> &'static str;

    fn goals(&self) -> Goals;

    /// Batches that are pushed concurrently: as many as the engine alone gets.
    fn pushes_at_once(&self) -> usize {
        1
    }

    /// True if the engine combines single pushes itself, so that they need no `Producer`.
    fn gathers_pushes(&self) -> bool;

    /// Returns a unique name for a store of Sawmill. Another process opens the same store by it.
    fn store(&self, name: &str) -> String;

    /// Opens a store of Sawmill, creating it if it does not exist.
    async fn open(&self, store: &str, env: Env) -> Result<Box<dyn Opened>, Failure>;

    /// Removes a store that is not open.
    async fn remove(&self, store: &str) -> Result<(), Failure>;

    /// Creates an empty table of the engine alone.
    async fn raw(&self) -> Result<Box<dyn Raw>, Failure>;

    /// Creates the queue that is usually built on such an engine; `None` where it makes no sense.
    async fn row_queue(&self) -> Result<Option<Box<dyn RowQueue>>, Failure>;

    /// Opens a transaction with a snapshot of the current state and holds it open, where the engine has that.
    async fn pin(&self) -> Result<Option<Box<dyn Pin>>, Failure> {
        Ok(None)
    }
}

/// The goals for an engine.
#[derive(Clone, Copy)]
pub(crate) struct Goals {
    /// End to end, as a multiple of the engine alone.
    pub(crate) end_to_end: f64,
    /// End to end, as a multiple of the usual queue.
    pub(crate) row_queue: Option<f64>,
    /// Single pushes, as a multiple of single inserts.
    pub(crate) single: f64,
    /// Milliseconds from push to start.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    /// Timers of an idle worker that fire per second.
    pub(crate) idle_timers: Option<f64>,
}

/// An open store of Sawmill.
#[async_trait]
pub(crate) trait Opened: Send + Sync {
    fn mill(&self) -> &Sawmill;

    /// The ledger, for engines whose commits are measured separately.
    fn ledger(&self) -> Option<Arc<dyn Ledger>> {
        None
    }

    /// Returns the engine's counters.
    async fn tally(&self) -> Result<Tally, Failure>;

    /// Closes the store and returns the engine's counters at that point.
    async fn close(self: Box<Self>) -> Result<Tally, Failure>;
}

/// The counters of an engine since its start.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    /// Queries, from any client.
    pub(crate) queries: u64,
    /// Transactions that wrote.
    pub(crate) commits: u64,
    /// Timed polls for changes.
    pub(crate) looks: u64,
    /// Bytes of its own log; 0 if it does not report them.
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

/// A table with the columns of Sawmill's messages, without an index, written as durably as Sawmill writes.
#[async_trait]
pub(crate) trait Raw: Send {
    /// Inserts rows in one transaction, in the engine's fastest way.
    async fn insert(&mut self, rows: usize) -> Result<(), Failure>;

    /// Waits until all inserted rows are durable, where inserting does not wait.
    async fn settle(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Inserts rows in one transaction each, with the best concurrency for the engine.
    async fn insert_singly(&mut self, rows: usize) -> Result<(), Failure>;

    /// Inserts a row in a transaction.
    async fn insert_one(&mut self) -> Result<(), Failure>;

    /// Reads everything back and returns the payload bytes.
    async fn read_all(&mut self) -> Result<usize, Failure>;

    /// Returns the bytes that the engine has written to its own log since its start; 0 if it does not report
    /// them.
    async fn log_bytes(&mut self) -> Result<u64, Failure>;

    /// Removes the table.
    async fn remove(self: Box<Self>) -> Result<(), Failure>;
}

/// A table of jobs with a state each, worked by locking rows and skipping locked ones.
#[async_trait]
pub(crate) trait RowQueue: Send {
    /// Adds jobs in one transaction, in the engine's fastest way.
    async fn push(&mut self, rows: usize) -> Result<(), Failure>;

    /// Marks some jobs as running, then as completed. Returns their number.
    async fn work(&mut self, most: usize) -> Result<usize, Failure>;

    async fn remove(self: Box<Self>) -> Result<(), Failure>;
}

/// A transaction held open.
#[async_trait]
pub(crate) trait Pin: Send {
    /// Returns what could not be cleaned up so far: names and counts.
    async fn dead(&mut self, store: &str) -> Result<Vec<(String, u64)>, Failure>;

    /// Ends the transaction.
    async fn release(&mut self) -> Result<(), Failure>;
}

/// Measures the seconds that this work takes.
pub(crate) async fn seconds<T, E>(work: impl Future<Output = Result<T, E>>) -> Result<(f64, T), E> {
    let env = Env::system();
    let began = env.now();
    let done = work.await?;
    Ok((env.now().since(began).as_secs_f64(), done))
}

/// Measures the milliseconds of each of these one-row transactions, with a pause after each.
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
