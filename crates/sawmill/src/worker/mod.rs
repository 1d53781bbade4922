//! The worker: a running member of a group, with a number of slots.
//!
//! Four kinds of tasks share one [bench](bench). The *foreman* grabs blocks, adopts what the dead left, and reports progress.
//! The *slots* run handlers. The *beat* keeps the member entry alive. The *tender* does what one worker does for all.

mod batch;
mod beat;
mod bench;
mod bucket;
mod builder;
mod decide;
mod foreman;
mod gate;
mod grab;
mod item;
mod journal;
mod line;
mod look;
mod name;
mod news;
mod pace;
mod pull;
mod recover;
mod report;
mod setup;
mod share;
mod slot;
mod tender;
mod tray;
mod trouble;
mod witness;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::claim::WorkerId;
use crate::error::{Error, Result};
use crate::handler::{self, Batch, BatchHandler, Handler, Site};
use crate::ledger::EntryKey;
use crate::shard::Rules;
use crate::topic::{GroupName, Topic, TopicName};
use bench::Bench;
pub use builder::WorkerBuilder;
use journal::Journal;
pub use pull::{Job, Puller};

/// The most messages in one block.
const GRAB_MOST: usize = 1000;

/// How often a message may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// A message is run until its handler has ended; again if its worker died meanwhile.
    #[default]
    AtLeastOnce,
    /// A message is started once at most. What a dead worker had claimed and not done goes to the dead letters as lost,
    /// and so does every failure: nothing is tried again unless a person resends it. A worker with a
    /// [journal](WorkerBuilder::journal) loses only what it had started.
    AtMostOnce,
    /// The handler's own writes and the mark that the message is done commit in one transaction. Needs an engine that
    /// [can](crate::Capabilities::exactly_once).
    ExactlyOnce,
}

/// What to do with a message that is out of attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Put it on the group's dead-letter lane, where a person can look at it, resend it or drop it.
    #[default]
    Dead,
    /// Log it and go on.
    Log,
}

/// A shard of a topic or of a retry lane, as the worker looks at it.
struct SourceSpec {
    topic: Arc<Topic>,
    /// Which of the worker's topics it belongs to.
    topic_index: usize,
    shard: u16,
    key: EntryKey,
    rules: Rules,
    origin: Arc<handler::Source>,
    lanes: Arc<Lanes>,
}

struct Lanes {
    retry: Topic,
    dead: Topic,
}

/// What is done with the messages.
enum Work {
    /// A handler runs for each.
    Each(Box<dyn Handler>),
    /// A handler runs for several at once.
    Batch(Batch, Box<dyn BatchHandler>),
    /// The program takes them itself.
    Pull,
}

/// What the tasks of one worker share.
struct Shared {
    builder: WorkerBuilder,
    group: GroupName,
    sources: Vec<SourceSpec>,
    work: Work,
    site: Arc<Site>,
    bench: Mutex<Bench>,
    journal: Option<Journal>,
    /// Its name, if it must be its alone.
    name: Option<name::Name>,
    /// Wakes the foreman.
    wake: Notify,
    /// Wakes those who wait for more messages to be ready.
    more: Notify,
    /// Makes the next beat come at once.
    beat_now: Notify,
    /// Wakes the tender: the set of workers has changed.
    tend: Notify,
    /// How often to look for messages when no hint comes.
    poll: Duration,
    /// Finish what runs, then leave.
    stop: CancellationToken,
    /// Drop what runs, then leave.
    abort: CancellationToken,
    foreman_done: CancellationToken,
    tender_done: CancellationToken,
    drains: AtomicU64,
    drained: watch::Sender<u64>,
    ended: CancellationToken,
    counts: Mutex<Counts>,
    witness: witness::Witness,
}

impl Shared {
    fn bench(&self) -> MutexGuard<'_, Bench> {
        self.bench.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn env(&self) -> &crate::env::Env {
        self.builder.mill.env()
    }

    /// The log's topics that this worker looks at, each once, lanes included.
    fn topics(&self) -> Vec<Arc<Topic>> {
        let mut topics: Vec<Arc<Topic>> = self.sources.iter().map(|source| source.topic.clone()).collect();
        topics.dedup_by(|a, b| a.uid == b.uid);
        topics
    }

    /// The topics that this worker was asked to work, in their order, without lanes.
    fn bases(&self) -> Vec<Arc<Topic>> {
        let mut topics = self.topics();
        topics.retain(|topic| topic.name.as_lane().is_none());
        topics
    }

    /// Stops the worker: nothing starts from this moment on.
    fn stop_because(&self, reason: Option<String>) {
        self.bench().stop();
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
    /// Claims that were taken over from a former life of this worker, by its [journal](WorkerBuilder::journal).
    pub recovered: u64,
    /// How often the worker found itself declared dead and joined anew.
    pub rejoined: u64,
    /// How often the set of workers changed under its eyes.
    pub rebalances: u64,
    /// Reads of the log that were sent.
    pub reads: u64,
    /// Commits to the ledger that were sent.
    pub commits: u64,
    /// Commits that lost against another worker's.
    pub conflicts: u64,
    /// Why it stopped, if it was not asked to: a handler made it stop, its topic was deleted, or its journal
    /// could not be written.
    pub stopped_because: Option<String>,
}

/// What a worker is doing now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerState {
    /// Its id, if it is a member of its group at this moment.
    pub id: Option<WorkerId>,
    /// How many handlers it can run at once.
    pub slots: usize,
    /// How many run now.
    pub busy: usize,
    /// Messages it has claimed that are not settled.
    pub claimed: usize,
    /// What it waits for.
    pub waiting_on: WaitingOn,
}

/// What a worker waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitingOn {
    /// Slots are free: it would take more messages.
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

/// A running worker. Dropping it lets it run on; [`stop`](Worker::stop) and [`abort`](Worker::abort) end it.
pub struct Worker {
    shared: Arc<Shared>,
}

impl Worker {
    /// What it is doing now.
    pub fn state(&self) -> WorkerState {
        let bench = self.shared.bench();
        let (slots, busy) = (self.shared.builder.slots, bench.busy());
        WorkerState {
            id: bench.me().cloned(),
            slots,
            busy,
            claimed: bench.in_hand(),
            waiting_on: if busy < slots { WaitingOn::Messages } else { WaitingOn::Slots },
        }
    }

    /// What it has done since it started.
    pub fn counts(&self) -> Counts {
        let (started, done) = self.shared.bench().counts();
        Counts { started, done, ..self.shared.counts().clone() }
    }

    /// Waits until there is nothing left that this worker could do now. Messages that are not due do not count; those of
    /// ordered groups that wait in place for their next attempt do. Of topics that are [paused](crate::Sawmill::pause), or
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
        let bench = self.shared.bench();
        let now = self.shared.env().now();
        bench.next_wait(now).is_some() && bench.running() == 0 && bench.ready(now) == 0 && !bench.has_failed()
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
    /// ask whether it [is cancelled](crate::Context::is_cancelled).
    pub async fn abort(&self) -> Counts {
        self.shared.stop_because(None);
        self.shared.abort.cancel();
        self.ended().await
    }

    /// Waits until the worker has ended, for whatever reason, and says what it has done.
    pub async fn ended(&self) -> Counts {
        self.shared.ended.cancelled().await;
        self.counts()
    }
}

/// The name of a topic that a worker was asked to work, or why it is none.
pub(crate) fn base_name(name: &str) -> Result<TopicName> {
    let name: TopicName = name.parse()?;
    match name.as_lane() {
        None => Ok(name),
        Some(_) => Err(Error::invalid(format!(
            "{name} is a lane of {}: its group works it along with the topic itself",
            name.base()
        ))),
    }
}
