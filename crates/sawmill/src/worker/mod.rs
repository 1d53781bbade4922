//! The worker: a running member of a group, with a number of slots.
//!
//! Four kinds of tasks share one [bench](bench). The *foreman* grabs blocks, adopts what the dead left, and reports progress.
//! The *slots* run handlers. The *beat* keeps the member entry alive. The *tender* does what one worker does for all.

mod beat;
mod bench;
mod decide;
mod foreman;
mod grab;
mod look;

mod pace;
mod report;
mod slot;
mod tender;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::claim::WorkerId;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::{self, Handler};
use crate::ledger::{Commit, EntryKey, Write};
use crate::mill::Sawmill;
use crate::retry::RetryPolicy;
use crate::shard::Rules;
use crate::topic::{GroupName, Lane, Topic, TopicName, TopicSpec};
use bench::Bench;

/// How often a message may be run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Delivery {
    /// A message is run until its handler has ended; again if its worker died meanwhile.
    #[default]
    AtLeastOnce,
    /// A message is started once at most. What a dead worker had claimed and not done goes to the dead letters as lost,
    /// and so does every failure: nothing is tried again unless a person resends it.
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

/// The settings of a worker; made by [`Sawmill::worker`].
#[derive(Clone)]
#[must_use = "a worker runs when it is started"]
pub struct WorkerBuilder {
    mill: Sawmill,
    topics: Vec<String>,
    group: String,
    name: String,
    slots: usize,
    ordered: bool,
    delivery: Delivery,
    retry: RetryPolicy,
    on_failure: OnFailure,
    ttl: Duration,
    poll: Duration,
    most_claimed: Option<usize>,
}

/// The limits within which a TTL makes sense.
const TTL_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// The most messages in one block, unless the builder says less.
const GRAB_MOST: usize = 1000;

impl WorkerBuilder {
    pub(crate) fn new(mill: Sawmill, topics: Vec<String>) -> Self {
        Self {
            mill,
            topics,
            group: "default".to_owned(),
            name: "worker".to_owned(),
            slots: std::thread::available_parallelism().map_or(1, usize::from),
            ordered: false,
            delivery: Delivery::AtLeastOnce,
            retry: RetryPolicy::default(),
            on_failure: OnFailure::Dead,
            ttl: Duration::from_secs(10),
            poll: Duration::from_secs(1),
            most_claimed: None,
        }
    }

    /// The group it belongs to; `default` if not set. Every group sees every message.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// What its id begins with, for people. A random part is added, new at each start.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How many messages it runs at once; the number of cores if not set.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// Strict order per key across all workers of the group: a message waits until the one before it with the same key is
    /// done or dead. Other keys go on.
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// How often a message may be run; at-least-once if not set.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// When and how often failed messages are tried again.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// What to do with messages that are out of attempts.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// How long this worker may be silent before others declare it dead; 10 seconds if not set. It must be the same for
    /// all workers of a group.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How often to look for messages when no hint comes; 1 second if not set.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = poll;
        self
    }

    /// The most messages to have claimed at once. Under at-most-once this is the most that one crash can lose.
    pub fn most_claimed(mut self, most: usize) -> Self {
        self.most_claimed = Some(most);
        self
    }

    /// Joins the group and starts handling messages.
    pub async fn start(self, handler: impl Handler) -> Result<Worker> {
        let group: GroupName = self.group.parse()?;
        crate::topic::check_name("worker", &self.name, 60)?;
        self.check()?;
        let mut sources = Vec::new();
        for (index, name) in self.topics.iter().enumerate() {
            let topic = self.mill.find_topic(name).await?;
            self.agree_on_group(&topic, &group).await?;
            sources.extend(self.lanes(index, topic, &group).await?);
        }
        // How far to grab ahead; ordered groups hold more, since messages wait in line behind others with their key.
        let ahead = (2 * GRAB_MOST).max(self.slots);
        let most = match self.ordered {
            true => ahead.saturating_mul(2),
            false => ahead.saturating_add(self.slots.saturating_mul(4)),
        };
        let (ahead, most) = match self.most_claimed {
            Some(limit) => (ahead.min(limit), most.min(limit)),
            None => (ahead, most),
        };
        let bench = Bench::new(self.slots, most, ahead, self.most_claimed.is_some());
        let shared = Arc::new(Shared {
            bench: Mutex::new(bench),
            wake: Notify::new(),
            stop: CancellationToken::new(),
            abort: CancellationToken::new(),
            foreman_done: CancellationToken::new(),
            drains: AtomicU64::new(0),
            drained: watch::Sender::new(0),
            ended: watch::Sender::new(None),
            counts: Mutex::default(),
            handler: Box::new(handler),
            sources,
            group,
            builder: self,
        });
        let env = shared.builder.mill.env().clone();
        // The first registration is awaited, so that a store that cannot be reached is the caller's to see.
        let registered = beat::register(&shared).await?;
        env.spawn(beat::run(shared.clone(), registered));
        env.spawn(foreman::run(shared.clone()));
        env.spawn(tender::run(shared.clone()));
        Ok(Worker { shared })
    }

    fn check(&self) -> Result<()> {
        if self.topics.is_empty() {
            return Err(Error::invalid("a worker needs at least one topic to work"));
        }
        if self.topics.iter().collect::<BTreeSet<_>>().len() < self.topics.len() {
            return Err(Error::invalid("a topic is named twice: name each one once"));
        }
        if self.slots == 0 || self.most_claimed == Some(0) {
            return Err(Error::invalid(
                "a worker needs at least one slot, and must be allowed to claim one message",
            ));
        }
        if !TTL_RANGE.contains(&self.ttl) {
            return Err(Error::invalid(format!(
                "a TTL of {:?} makes no sense: choose one from {:?} to {:?}",
                self.ttl,
                TTL_RANGE.start(),
                TTL_RANGE.end()
            )));
        }
        if self.poll.is_zero() {
            return Err(Error::invalid(
                "polling without a pause would load the store: choose a longer interval",
            ));
        }
        if self.delivery == Delivery::ExactlyOnce {
            self.mill.require_exactly_once()?;
        }
        Ok(())
    }

    /// Workers of one group must follow the same rules: the first one writes them down, the others must agree, unless
    /// nobody is left who follows the old ones.
    async fn agree_on_group(&self, topic: &Topic, group: &GroupName) -> Result<()> {
        let ledger = self.mill.ledger();
        let key = EntryKey::group(topic, group);
        let mine = GroupSettings { ordered: self.ordered, delivery: self.delivery };
        loop {
            let entry = ledger.get(&key).await?;
            if let Some(entry) = &entry {
                let theirs: Option<GroupSettings> = serde_json::from_slice(&entry.value).ok();
                if theirs.as_ref() == Some(&mine) {
                    return Ok(());
                }
                let members = ledger.list(&EntryKey::members(group)).await?;
                let works_it =
                    |entry| crate::member::Member::decode(entry).is_ok_and(|m| m.topics.contains(&topic.uid));
                if let (Some(theirs), true) = (theirs, members.iter().any(works_it)) {
                    return Err(Error::invalid(format!(
                        "group {group} of topic {} is at work with {theirs}, and this worker wants {mine}: use the same \
                         settings, choose another group, or stop its workers first",
                        topic.name
                    )));
                }
            }
            let value = serde_json::to_vec(&mine).unwrap_or_default().into();
            let write =
                Write { key: key.clone(), expect: entry.map(|entry| entry.version), value: Some(value) };
            match ledger.commit(write).await? {
                Commit::Done(_) => return Ok(()),
                // Someone else was faster, or nobody knows: look again.
                Commit::Conflict | Commit::Unknown => {}
            }
        }
    }

    /// The shards that a worker of this topic looks at: the topic's, and those of its group's retry lane.
    async fn lanes(&self, index: usize, topic: Topic, group: &GroupName) -> Result<Vec<SourceSpec>> {
        let log = self.mill.log();
        let lane = |lane, shards| TopicSpec {
            shards,
            retention: Duration::ZERO,
            ..TopicSpec::new(topic.name.lane(group, lane))
        };
        let retry = log.create_topic(&lane(Lane::Retry, topic.shards.min(RETRY_SHARDS))).await?;
        let dead = log.create_topic(&lane(Lane::Dead, 1)).await?;
        let rules = Rules { ordered: self.ordered, once: self.delivery == Delivery::AtMostOnce };
        let origin = Arc::new(handler::Source { topic: topic.name.clone(), group: group.clone() });
        let lanes = Arc::new(Lanes { retry: retry.clone(), dead });
        let mut sources = Vec::new();
        for topic in [topic, retry] {
            let topic = Arc::new(topic);
            for shard in 0..topic.shards {
                sources.push(SourceSpec {
                    topic: topic.clone(),
                    topic_index: index,
                    shard,
                    key: EntryKey::shard(&topic, group, shard),
                    rules,
                    origin: origin.clone(),
                    lanes: lanes.clone(),
                });
            }
        }
        Ok(sources)
    }
}

/// How many shards a retry lane has at most: failures are the few.
const RETRY_SHARDS: u16 = 4;

/// What the workers of a group must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupSettings {
    pub(crate) ordered: bool,
    pub(crate) delivery: Delivery,
}

impl std::fmt::Display for GroupSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let delivery = match self.delivery {
            Delivery::AtLeastOnce => "at-least-once",
            Delivery::AtMostOnce => "at-most-once",
            Delivery::ExactlyOnce => "exactly-once",
        };
        write!(f, "{delivery}, {}", if self.ordered { "ordered" } else { "not ordered" })
    }
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

/// What the tasks of one worker share.
struct Shared {
    builder: WorkerBuilder,
    group: GroupName,
    sources: Vec<SourceSpec>,
    handler: Box<dyn Handler>,
    bench: Mutex<Bench>,
    /// Wakes the foreman.
    wake: Notify,
    /// Finish what runs, then leave.
    stop: CancellationToken,
    /// Drop what runs, then leave.
    abort: CancellationToken,
    foreman_done: CancellationToken,
    drains: AtomicU64,
    drained: watch::Sender<u64>,
    ended: watch::Sender<Option<Ended>>,
    counts: Mutex<Counts>,
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

    /// Stops the worker because of something that happened inside.
    fn stop_because(&self, reason: Option<String>) {
        if let Some(reason) = reason {
            self.counts().stopped_because.get_or_insert(reason);
        }
        self.stop.cancel();
        self.wake.notify_one();
    }
}

/// What a worker has done since it started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
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
    /// How often the worker found itself declared dead and joined anew.
    pub rejoined: u64,
    /// How often the set of workers changed under its eyes.
    pub rebalances: u64,
    /// Reads of the log and commits to the ledger that were sent.
    pub reads: u64,
    /// Commits to the ledger that were sent.
    pub commits: u64,
    /// Commits that lost against another worker's.
    pub conflicts: u64,
    /// Why it stopped, if a handler made it stop.
    pub stopped_because: Option<String>,
}

#[derive(Debug, Clone)]
struct Ended;

/// What a worker is doing now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerState {
    /// Its id, if it is a member of its group at this moment.
    pub id: Option<WorkerId>,
    /// How many messages it can run at once.
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
        let free = bench.running() < bench.slots();
        WorkerState {
            id: bench.me().cloned(),
            slots: bench.slots(),
            busy: bench.running(),
            claimed: bench.in_hand(),
            waiting_on: if free { WaitingOn::Messages } else { WaitingOn::Slots },
        }
    }

    /// What it has done since it started.
    pub fn counts(&self) -> Counts {
        let (started, done) = self.shared.bench().counts();
        Counts { started, done, ..self.shared.counts().clone() }
    }

    /// Waits until there is nothing left that this worker could do now. Messages that are not due do not count.
    pub async fn drained(&self) {
        let mark = self.shared.drains.fetch_add(1, Ordering::SeqCst) + 1;
        let mut drained = self.shared.drained.subscribe();
        let mut ended = self.shared.ended.subscribe();
        self.shared.wake.notify_one();
        tokio::select! {
            biased;
            _ = drained.wait_for(|drained| *drained >= mark) => {}
            _ = ended.wait_for(Option::is_some) => {}
        }
    }

    /// Finishes what runs, gives back what was not started, leaves the group, and says what it has done.
    pub async fn stop(self) -> Counts {
        self.shared.stop_because(None);
        self.ended().await
    }

    /// Drops what runs, gives it back (under at-most-once it becomes a dead letter), leaves the group, and says what it
    /// has done.
    pub async fn abort(self) -> Counts {
        self.shared.abort.cancel();
        self.shared.stop_because(None);
        self.ended().await
    }

    /// Waits until the worker has ended, because a handler made it stop, and says what it has done.
    pub async fn ended(&self) -> Counts {
        let mut ended = self.shared.ended.subscribe();
        // The sender lives as long as `self.shared`, so waiting cannot fail.
        let _ = ended.wait_for(Option::is_some).await;
        self.counts()
    }
}

/// The name of a topic that a worker was asked to work, or why it is none.
pub(crate) fn base_name(name: &str) -> Result<TopicName> {
    let name: TopicName = name.parse()?;
    match name.as_lane() {
        None => Ok(name),
        Some(_) => Err(Error::new(
            ErrorKind::Invalid,
            format!("{name} is a lane of {}: its group works it along with the topic itself", name.base()),
        )),
    }
}
