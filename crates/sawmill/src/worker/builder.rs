//! The settings of a worker, checked before it starts, and how it joins its group.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, Limits};
use super::{Delivery, GRAB_MOST, Lanes, OnFailure, Shared, SourceSpec, Worker, beat, foreman, tender};
use crate::error::{Error, Result};
use crate::handler::{self, Handler};
use crate::ledger::{Commit, Entry, EntryKey, Write};
use crate::member::{Member, Sightings};
use crate::mill::Sawmill;
use crate::retry::RetryPolicy;
use crate::shard::Rules;
use crate::topic::{GroupName, Lane, Topic, TopicSpec, check_name};

/// The settings of a worker; made by [`Sawmill::worker`].
#[derive(Clone)]
#[must_use = "a worker runs when it is started"]
pub struct WorkerBuilder {
    pub(super) mill: Sawmill,
    pub(super) topics: Vec<String>,
    pub(super) group: String,
    pub(super) name: String,
    pub(super) slots: usize,
    pub(super) ordered: bool,
    pub(super) delivery: Delivery,
    pub(super) retry: RetryPolicy,
    pub(super) on_failure: OnFailure,
    pub(super) ttl: Duration,
    pub(super) poll: Option<Duration>,
    pub(super) most_claimed: Option<usize>,
}

/// The shortest interval at which polling makes sense.
const SHORTEST_POLL: Duration = Duration::from_millis(1);
/// The limits within which a TTL makes sense.
const TTL_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

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
            poll: None,
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

    /// How long this worker may be silent before others declare it dead; 10 seconds if not set.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// How often to look for messages when no hint comes; what the engine [suggests](crate::Capabilities::idle_poll) if
    /// not set.
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = Some(poll);
        self
    }

    /// The most messages to have claimed at once. Under at-most-once this is the most that one crash can lose.
    pub fn most_claimed(mut self, most: usize) -> Self {
        self.most_claimed = Some(most);
        self
    }

    /// Joins the group and starts handling messages, on the tokio runtime that this is called on.
    ///
    /// Handlers share the runtime's threads with the task that keeps this worker a member of its group. One that blocks its
    /// thread, computing or waiting, for a good part of the TTL gets the worker declared dead; put such work into
    /// `tokio::task::spawn_blocking`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sawmill::{Context, RetryPolicy, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("thumbnails").await?;
    /// let worker = mill
    ///     .worker("thumbnails")
    ///     .name("resizer")
    ///     .slots(16)
    ///     .retry(RetryPolicy::retries(3).backoff(Duration::from_secs(1), Duration::from_secs(60)))
    ///     .start(|image: Context| async move {
    ///         if image.payload().is_empty() { Err("there is no image") } else { Ok(()) }
    ///     })
    ///     .await?;
    /// worker.stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn start(self, handler: impl Handler) -> Result<Worker> {
        let group: GroupName = self.group.parse()?;
        check_name("worker", &self.name, 60)?;
        self.check()?;
        let mut sources = Vec::new();
        for (index, name) in self.topics.iter().enumerate() {
            let topic = self.mill.find_topic(name).await?;
            self.agree_on_group(&topic, &group).await?;
            sources.extend(self.lanes(index, topic, &group).await?);
        }
        // How far to grab ahead: several blocks, so that handlers that take no time need not wait for the store. Ordered groups
        // hold more than they grab ahead, since messages wait in line behind others with their key.
        let ahead = GRAB_MOST * if self.ordered { 2 } else { 8 };
        let ahead = ahead.max(self.slots);
        let most = match self.ordered {
            true => ahead.saturating_mul(2),
            false => ahead.saturating_add(self.slots.saturating_mul(4)),
        };
        let limit = self.most_claimed.unwrap_or(usize::MAX);
        let limits = Limits {
            slots: self.slots,
            most: most.min(limit),
            ahead: ahead.min(limit),
            strict: self.most_claimed.is_some(),
            hoards: self.ordered,
        };
        let shared = Arc::new(Shared {
            bench: Mutex::new(Bench::new(limits)),
            wake: Notify::new(),
            tend: Notify::new(),
            poll: self.poll.unwrap_or_else(|| self.mill.log().capabilities().idle_poll),
            stop: Arc::default(),
            abort: CancellationToken::new(),
            foreman_done: CancellationToken::new(),
            drains: AtomicU64::new(0),
            drained: watch::Sender::new(0),
            ended: CancellationToken::new(),
            counts: Mutex::default(),
            handler: Box::new(handler),
            sources,
            group,
            builder: self,
        });
        let env = shared.builder.mill.env().clone();
        // The first registration is awaited, so that a store that cannot be reached is the caller's to see.
        let registered = beat::register(&shared).await?;
        shared.builder.confirm_group(&shared, &registered).await?;
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
        if let Some(poll) = self.poll
            && poll < SHORTEST_POLL
        {
            return Err(Error::invalid(format!(
                "polling every {poll:?} is next to no pause and would load the store: choose {SHORTEST_POLL:?} or longer"
            )));
        }
        if self.delivery == Delivery::ExactlyOnce {
            self.mill.require_exactly_once()?;
        }
        Ok(())
    }

    fn settings(&self) -> GroupSettings {
        GroupSettings { ordered: self.ordered, delivery: self.delivery }
    }

    /// Workers of one group must follow the same rules: the first one writes them down, the others must agree, unless
    /// nobody is left who follows the old ones.
    async fn agree_on_group(&self, topic: &Topic, group: &GroupName) -> Result<()> {
        let ledger = self.mill.ledger();
        let key = EntryKey::group(topic, group);
        let mine = self.settings();
        loop {
            let entry = ledger.get(&key).await?;
            if let Some(entry) = &entry {
                let theirs = GroupSettings::decode(&entry.value);
                if theirs.as_ref() == Some(&mine) {
                    return Ok(());
                }
                if self.is_at_work(topic, group).await? {
                    return Err(mine.disagree(theirs, topic, group));
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

    /// True if some worker of this topic is alive. Entries of workers that died without anybody left to notice are watched
    /// for their TTL, and removed when they stay silent.
    async fn is_at_work(&self, topic: &Topic, group: &GroupName) -> Result<bool> {
        let (ledger, env) = (self.mill.ledger(), self.mill.env());
        let works_it =
            |entry: &Entry| Member::decode(entry).is_ok_and(|member| member.topics.contains(&topic.uid));
        let mut sightings = Sightings::default();
        let mut first: Option<Vec<Entry>> = None;
        loop {
            let mut members = ledger.list(&EntryKey::members(group)).await?;
            members.retain(works_it);
            let seen = first.get_or_insert_with(|| members.clone());
            if members.iter().any(|member| !seen.contains(member)) {
                // One has joined, or beaten.
                return Ok(true);
            }
            if members.is_empty() {
                return Ok(false);
            }
            for silent in sightings.look(&members, env.now(), self.ttl) {
                let write = Write { key: silent.key, expect: Some(silent.version), value: None };
                ledger.commit(write).await?;
            }
            env.sleep(self.ttl / 10).await;
        }
    }

    /// Two workers with different rules may have joined an empty group at the same moment: the one whose rules are not
    /// those of the group leaves again.
    async fn confirm_group(&self, shared: &Shared, registered: &beat::Registered) -> Result<()> {
        for topic in shared.topics().iter().filter(|topic| topic.name.as_lane().is_none()) {
            let entry = self.mill.ledger().get(&EntryKey::group(topic, &shared.group)).await?;
            let theirs = entry.and_then(|entry| GroupSettings::decode(&entry.value));
            if theirs.as_ref() != Some(&self.settings()) {
                beat::leave(shared, registered).await;
                return Err(self.settings().disagree(theirs, topic, &shared.group));
            }
        }
        Ok(())
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
struct GroupSettings {
    ordered: bool,
    delivery: Delivery,
}

impl GroupSettings {
    fn decode(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    /// The error of a worker that wants these rules in a group that has others.
    fn disagree(&self, theirs: Option<GroupSettings>, topic: &Topic, group: &GroupName) -> Error {
        let theirs =
            theirs.map_or_else(|| "settings of a newer version".to_owned(), |theirs| theirs.to_string());
        Error::invalid(format!(
            "group {group} of topic {} is at work with {theirs}, and this worker wants {self}: use the same settings, \
             choose another group, or stop its workers first",
            topic.name
        ))
    }
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
