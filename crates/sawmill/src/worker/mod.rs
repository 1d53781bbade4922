//! The worker: a running member of a group, with a number of slots.
//!
//! Four kinds of tasks share what is in flight (`inflight`). The `coordinator` claims blocks, adopts the claims of dead
//! workers, and reports progress. Slots (`run`) run handlers. The `heartbeat` keeps the member entry alive. `maintenance`
//! promotes due messages, pushes those of schedules and trims the log; one worker does it for a topic, on behalf of all.

mod builder;
mod coordinator;
mod group_settings;
mod heartbeat;
mod inflight;
mod journal;
mod maintenance;
mod outage;
mod run;
mod setup;
mod telemetry;
mod topic_notifications;
mod unique_name;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::handler::{self, Batch, BatchHandler, Handler, Site};
pub use builder::WorkerBuilder;
use inflight::InFlight;
use journal::Journal;
pub use run::{Job, Puller};
use sawmill_engine::model::{GroupName, Rules, Topic, WorkerId};
use sawmill_engine::storage::EntryKey;

/// The most messages in one block.
const MAX_BLOCK: usize = 1000;

/// How often a message may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// A message runs until its handler has ended, and runs again if its worker died meanwhile.
    #[default]
    AtLeastOnce,
    /// A message is started at most once. Messages that a dead worker had claimed and not finished become
    /// dead letters, marked as lost. Failed ones become dead letters too: nothing is retried unless a person
    /// retries it. A worker with a [journal](WorkerBuilder::journal) loses only what it had started.
    AtMostOnce,
    /// The handler's own writes and the mark that the message is done commit in one transaction. Needs an
    /// engine that [supports it](sawmill_engine::storage::Capabilities::exactly_once).
    ExactlyOnce,
}

/// What to do with a message that is out of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Put it on the group's dead-letter lane, where a person can inspect, retry or drop it.
    #[default]
    Dead,
    /// Log an error and drop the message.
    Log,
}

/// A shard that the worker reads: of a topic or of its retry lane.
struct ShardSource {
    topic: Arc<Topic>,
    /// Which of the worker's topics it belongs to.
    topic_index: usize,
    shard: u16,
    key: EntryKey,
    rules: Rules,
    origin: Arc<handler::Origin>,
    lanes: Arc<Lanes>,
}

struct Lanes {
    retry: Arc<Topic>,
    dead: Arc<Topic>,
}

/// How messages are handled.
enum Work {
    /// A handler runs for each message.
    Each(Box<dyn Handler>),
    /// A handler runs for several messages at once.
    Batch(Batch, Box<dyn BatchHandler>),
    /// The program pulls messages itself.
    Pull,
}

/// State that the tasks of one worker share.
struct Shared {
    builder: WorkerBuilder,
    group: GroupName,
    sources: Vec<ShardSource>,
    work: Work,
    site: Arc<Site>,
    inflight: Mutex<InFlight>,
    journal: Option<Journal>,
    /// The worker's name, if no other worker of the group may have it.
    name: Option<unique_name::UniqueName>,
    /// Wakes the coordinator.
    wake: Notify,
    /// Wakes tasks and callers that wait for more messages to be ready.
    more: Notify,
    /// Makes the next heartbeat come at once.
    heartbeat_now: Notify,
    /// Wakes maintenance: the set of workers has changed.
    check_duties: Notify,
    /// How often to look for messages when no notification comes.
    poll: Duration,
    /// Finish what runs, then leave.
    stop: CancellationToken,
    /// Drop what runs, then leave.
    abort: CancellationToken,
    coordinator_done: CancellationToken,
    maintenance_done: CancellationToken,
    drains: AtomicU64,
    drained: watch::Sender<u64>,
    ended: CancellationToken,
    counts: Mutex<Counts>,
    telemetry: telemetry::WorkerTelemetry,
}

impl Shared {
    fn inflight(&self) -> MutexGuard<'_, InFlight> {
        self.inflight.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// True if there are several topics, so that one has priority over another.
    fn has_priorities(&self) -> bool {
        self.builder.topics.len() > 1
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn env(&self) -> &sawmill_engine::runtime::Env {
        self.builder.store.env()
    }

    /// Lists the log's topics that this worker reads, each once, with retry lanes.
    fn topics(&self) -> Vec<Arc<Topic>> {
        let mut topics: Vec<Arc<Topic>> = self.sources.iter().map(|source| source.topic.clone()).collect();
        topics.dedup_by(|a, b| a.uid == b.uid);
        topics
    }

    /// Lists the topics that this worker was asked to work, in their order, without lanes.
    fn bases(&self) -> Vec<Arc<Topic>> {
        let mut topics = self.topics();
        topics.retain(|topic| topic.name.as_lane().is_none());
        topics
    }

    /// Stops the worker: nothing starts from this moment on.
    fn stop_because(&self, reason: Option<String>) {
        self.inflight().stop();
        if let Some(reason) = reason {
            self.counts().stopped_because.get_or_insert(reason);
        }
        self.stop.cancel();
        self.wake.notify_one();
    }
}

/// What a worker has done since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Handlers that were started.
    pub started: u64,
    /// Messages that are done.
    pub done: u64,
    /// Attempts that failed, panics included.
    pub failed: u64,
    /// Messages that went to the dead letters.
    pub dead: u64,
    /// Claims that were adopted from workers that died or left.
    pub adopted: u64,
    /// Claims that were taken over from a previous run of this worker, by its
    /// [journal](WorkerBuilder::journal).
    pub recovered: u64,
    /// How often the worker found itself declared dead and joined anew.
    pub rejoined: u64,
    /// How often the worker saw the set of workers change.
    pub rebalances: u64,
    /// Reads sent to the log.
    pub reads: u64,
    /// Commits sent to the ledger.
    pub commits: u64,
    /// Commits that lost against another worker's.
    pub conflicts: u64,
    /// Why it stopped by itself: a handler made it stop, its topic was deleted, or its journal could not be
    /// written. `None` if it was asked to stop.
    pub stopped_because: Option<String>,
}

/// What a worker is doing now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerState {
    /// The worker's id, if it is a member of its group now.
    pub id: Option<WorkerId>,
    /// How many slots it has: each is room to run one handler.
    pub concurrency: usize,
    /// How many slots run a handler now.
    pub busy: usize,
    /// Messages it has claimed that are not settled.
    pub claimed: usize,
    /// What it waits for.
    pub waiting_on: WaitingOn,
}

/// What a worker waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingOn {
    /// Slots are free: the worker would take more messages.
    Messages,
    /// Every slot is taken: messages wait for a slot.
    Slots,
}

impl std::fmt::Display for WaitingOn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WaitingOn::Messages => "waiting-on-messages",
            WaitingOn::Slots => "waiting-on-slots",
        })
    }
}

/// A running worker.
///
/// Dropping it tells the worker to stop, and does not wait: handlers that run end, and the rest is given
/// back, as long as the runtime goes on. [`stop`](Worker::stop) waits for that, [`abort`](Worker::abort)
/// drops handlers that run, and [`detach`](Worker::detach) lets the worker run on.
#[must_use = "a worker that is dropped stops: keep it, or detach it"]
pub struct Worker {
    shared: Arc<Shared>,
    detached: bool,
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.detached {
            self.shared.stop_because(None);
        }
    }
}

impl Worker {
    /// What it is doing now.
    pub fn state(&self) -> WorkerState {
        let inflight = self.shared.inflight();
        let (concurrency, busy) = (self.shared.builder.slots, inflight.busy());
        WorkerState {
            id: inflight.me().cloned(),
            concurrency,
            busy,
            claimed: inflight.in_hand(),
            waiting_on: if busy < concurrency { WaitingOn::Messages } else { WaitingOn::Slots },
        }
    }

    /// What it has done since it started.
    pub fn counts(&self) -> Counts {
        let (started, done) = self.shared.inflight().counts();
        Counts { started, done, ..self.shared.counts().clone() }
    }

    /// Waits until there is nothing left that this worker could do now. Messages that are not due do not count; those of
    /// ordered groups that wait in place for their next attempt do. Of topics that are [paused](crate::admin::Admin::pause), or
    /// whose [limit](WorkerBuilder::limit) other workers have all of, there is nothing to do.
    pub async fn drained(&self) {
        let mark = self.shared.drains.fetch_add(1, Ordering::SeqCst) + 1;
        let mut drained = self.shared.drained.subscribe();
        self.shared.wake.notify_one();
        tokio::select! {
            biased;
            _ = drained.wait_for(|drained| *drained >= mark) => {}
            () = self.shared.ended.cancelled() => {}
        }
    }

    /// True if all that is left in hand waits in place for its next attempt.
    pub(crate) fn only_waits(&self) -> bool {
        let inflight = self.shared.inflight();
        let now = self.shared.env().now();
        inflight.next_wait(now).is_some()
            && inflight.running() == 0
            && inflight.ready(now) == 0
            && !inflight.has_settling()
    }

    /// Finishes what runs, gives back what was not started, leaves the group, runs the stop hooks, and says what it has done.
    ///
    /// It waits for handlers as long as they take. To set a deadline, wait for this no longer than that, then
    /// [`abort`](Worker::abort).
    pub async fn stop(&self) -> Counts {
        self.shared.stop_because(None);
        self.ended().await
    }

    /// Drops what runs, gives it back (under at-most-once it becomes a dead letter), leaves the group, runs the stop hooks, and
    /// says what it has done.
    ///
    /// A [blocking](WorkerBuilder::start_blocking) handler cannot be dropped: its thread goes on until it returns, and may
    /// ask whether it [is cancelled](crate::handler::Context::is_cancelled).
    pub async fn abort(&self) -> Counts {
        self.shared.stop_because(None);
        self.shared.abort.cancel();
        self.ended().await
    }

    /// Works until the signal completes, or the worker ends by itself, then [stops](Worker::stop).
    ///
    /// ```no_run
    /// # async fn example(mill: sawmill::Sawmill) -> sawmill::Result<()> {
    /// let worker = mill.worker("emails").start(async |_mail: String| {}).await?;
    /// let counts = worker.run_until(tokio::signal::ctrl_c()).await;
    /// println!("{} done", counts.done);
    /// # Ok(()) }
    /// ```
    pub async fn run_until<S>(self, signal: impl Future<Output = S>) -> Counts {
        tokio::select! {
            biased;
            () = self.shared.ended.cancelled() => {}
            _ = signal => {}
        }
        self.stop().await
    }

    /// Lets the worker run on without this handle, until a handler stops it or the process ends.
    pub fn detach(mut self) {
        self.detached = true;
    }

    /// Waits until the worker has ended, for whatever reason, and says what it has done.
    pub async fn ended(&self) -> Counts {
        self.shared.ended.cancelled().await;
        self.counts()
    }
}
