//! The settings of a worker, checked before it starts, and how it joins its group.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, Limits};
use super::gate::Gate;
use super::journal::{self, Journal};
use super::name::Name;
use super::witness::Witness;
use super::{Delivery, GRAB_MOST, Lanes, OnFailure, Shared, SourceSpec, Work, Worker, beat, foreman, tender};
use crate::draft::Finishes;
use crate::error::{Error, Result};
use crate::handler::{self, Hooks, IntoHandler, Layers, Notes, Site, States};
use crate::ledger::{Commit, Entry, EntryKey, Write};
use crate::limit::Limit;
use crate::member::{Member, Sightings};
use crate::mill::Sawmill;
use crate::observe;
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
    pub(super) unique_name: bool,
    pub(super) slots: usize,
    pub(super) ordered: bool,
    pub(super) delivery: Delivery,
    pub(super) retry: RetryPolicy,
    pub(super) on_failure: OnFailure,
    pub(super) ttl: Duration,
    pub(super) poll: Option<Duration>,
    pub(super) most_claimed: Option<usize>,
    pub(super) most_started: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) hooks: Hooks,
    pub(super) layers: Layers,
    pub(super) limit: Option<Limit>,
    pub(super) limit_per_key: Option<Limit>,
    pub(super) journal: Option<PathBuf>,
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
            unique_name: false,
            slots: std::thread::available_parallelism().map_or(1, usize::from),
            ordered: false,
            delivery: Delivery::AtLeastOnce,
            retry: RetryPolicy::default(),
            on_failure: OnFailure::Dead,
            ttl: Duration::from_secs(10),
            poll: None,
            most_claimed: None,
            most_started: None,
            timeout: None,
            hooks: Hooks::default(),
            layers: Layers::default(),
            limit: None,
            limit_per_key: None,
            journal: None,
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

    /// No other living worker of the group may have this name: for workers that somebody starts again and again, like the
    /// numbered instances of a supervisor. It starts when the last one of this name has left or was silent for its TTL; if
    /// that one lives, starting is an error. What its former self left unfinished comes first.
    ///
    /// ```
    /// use sawmill::{ErrorKind, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("orders").await?;
    /// let third = || mill.worker("orders").unique_name("instance-3");
    /// let worker = third().start(async || ()).await?;
    /// assert_eq!(third().start(async || ()).await.err().map(|error| error.kind()), Some(ErrorKind::InUse));
    /// worker.stop().await;
    /// third().start(async || ()).await?.stop().await;
    /// # Ok(()) }
    /// ```
    pub fn unique_name(mut self, name: impl Into<String>) -> Self {
        self.unique_name = true;
        self.name(name)
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

    /// The most messages to have claimed at once. Under at-most-once this is the most that one crash can lose
    /// without a [journal](WorkerBuilder::journal).
    pub fn most_claimed(mut self, most: usize) -> Self {
        self.most_claimed = Some(most);
        self
    }

    /// The most messages to start, retries included: when the last of them has ended, the worker [leaves](Worker::stop). For
    /// processes that are to do so much and no more.
    ///
    /// ```
    /// use sawmill::{Context, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("reports").await?;
    /// mill.push_many("reports", ["2026-01", "2026-02", "2026-03"]).await?;
    /// let worker = mill.worker("reports").most_started(2).start(|_report: Context| async {}).await?;
    /// assert_eq!(worker.ended().await.started, 2);
    /// # Ok(()) }
    /// ```
    pub fn most_started(mut self, most: u64) -> Self {
        self.most_started = Some(most);
        self
    }

    /// Limits how many messages of a topic the whole group runs at once, or starts in a time, retries included. Each topic of
    /// the worker has the limit for itself.
    ///
    /// The workers share the limit without asking one another each time: each takes its part, and leaves it when others come.
    /// No more of them work a topic than the limit has parts: with `Limit::running(1)` one does, and another takes over when
    /// it leaves or dies. A worker that joins starts as soon as the others have made room, that is when they have looked around
    /// (see [`poll`](WorkerBuilder::poll)) and what they run beyond their part has ended.
    ///
    /// The limit on what runs at once is strict, but for the handlers of a worker that was declared dead and runs on. At a
    /// rate no more start in any time than it allows, and what workers save up while they are idle: one each, or what
    /// 100 ms bring. A worker that joins has saved nothing up.
    ///
    /// Give all workers of the group the same limit. Where they differ each goes by its own, and one with a lower limit starts
    /// nothing while the others hold more than that.
    ///
    /// ```
    /// use sawmill::{Context, Limit, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// let worker = mill
    ///     .worker("emails")
    ///     .limit(Limit::running(3).and(Limit::per_second(50)))
    ///     .start(|_mail: Context| async {})
    ///     .await?;
    /// worker.stop().await;
    /// # Ok(()) }
    /// ```
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Limits how many messages of each key start in a time. Messages without a key are not limited by it.
    ///
    /// Only in [`ordered`](WorkerBuilder::ordered) groups, where one worker at a time has a key. When its shard moves to
    /// another worker, the key begins there with what 100 ms bring, or one start.
    pub fn limit_per_key(mut self, limit: Limit) -> Self {
        self.limit_per_key = Some(limit);
        self
    }

    /// Joins the group and starts handling messages, on the tokio runtime that this is called on.
    ///
    /// A handler is an `async` function or closure whose arguments say what it wants to know: the [`Context`](crate::Context)
    /// of the message, its payload as [`Json`](crate::Json), `Bytes` or `String`, what all handlers share as
    /// [`State`](crate::State), or a [type of one's own](crate::FromContext). The types of a closure's arguments have to be
    /// written out.
    ///
    /// Handlers share the runtime's threads with the task that keeps this worker a member of its group. One that blocks its
    /// thread, computing or waiting, for a good part of the TTL gets the worker declared dead: such work is for
    /// [`start_blocking`](WorkerBuilder::start_blocking).
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
    pub async fn start<Args>(self, handler: impl IntoHandler<Args>) -> Result<Worker> {
        let handler = self.layers.around(handler.into_handler());
        self.launch(Work::Each(handler)).await
    }

    /// Starts a worker that does this with its messages.
    pub(super) async fn launch(self, work: Work) -> Result<Worker> {
        let group: GroupName = self.group.parse()?;
        check_name("worker", &self.name, 60)?;
        self.check()?;
        work.check(&self)?;
        let mut topics = Vec::new();
        for name in &self.topics {
            let topic = self.mill.find_topic(name).await?;
            self.agree_on_group(&topic, &group).await?;
            topics.push(topic);
        }
        let journal = match &self.journal {
            Some(path) => Some(Journal::open(path, &group, &topics, &journal::boot_id()?)?),
            None => None,
        };
        let name = match self.unique_name {
            true => {
                Some(Name::free(self.mill.ledger(), self.mill.env(), &group, &self.name, self.ttl).await?)
            }
            false => None,
        };
        let hooks = self.hooks.clone();
        let states = hooks.start().await?;
        let joined = self.join(work, group, topics, states.clone(), (journal, name)).await;
        if joined.is_err() {
            hooks.stop(&states).await;
        }
        joined
    }

    async fn join(
        self,
        work: Work,
        group: GroupName,
        topics: Vec<Topic>,
        states: States,
        (journal, name): (Option<Journal>, Option<Name>),
    ) -> Result<Worker> {
        work.check_states(&states)?;
        let stop = CancellationToken::new();
        let site = Arc::new(Site {
            mill: self.mill.clone(),
            states,
            notes: Notes::default(),
            finishes: Finishes::default(),
            cancels: watch::Sender::default(),
            stopping: stop.clone(),
        });
        let mut sources = Vec::new();
        for (index, topic) in topics.into_iter().enumerate() {
            sources.extend(self.lanes(index, topic, &group, &site).await?);
        }
        let mut bench = Bench::new(
            self.limits(&work),
            self.topics.iter().map(|_| Gate::new(self.limit, self.limit_per_key)),
        );
        bench.pulls = matches!(work, Work::Pull).then_some(0);
        let shared = Arc::new(Shared {
            bench: Mutex::new(bench),
            journal,
            name,
            wake: Notify::new(),
            more: Notify::new(),
            beat_now: Notify::new(),
            tend: Notify::new(),
            poll: self.poll.unwrap_or_else(|| self.mill.log().capabilities().idle_poll),
            stop,
            abort: CancellationToken::new(),
            foreman_done: CancellationToken::new(),
            tender_done: CancellationToken::new(),
            drains: AtomicU64::new(0),
            drained: watch::Sender::new(0),
            ended: CancellationToken::new(),
            counts: Mutex::default(),
            witness: Witness::new(self.mill.bell(), &group, &sources),
            work,
            site,
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

    /// How much the worker may have in hand.
    fn limits(&self, work: &Work) -> Limits {
        let slots = self.slots.saturating_mul(work.batch());
        // How far to grab ahead: several blocks, so that handlers that take no time need not wait for the store. Ordered groups
        // hold more than they grab ahead, since messages wait in line behind others with their key.
        let ahead = (GRAB_MOST * if self.ordered { 2 } else { 8 }).max(slots);
        let most = match self.ordered {
            true => ahead.saturating_mul(2),
            false => ahead.saturating_add(slots.saturating_mul(4)),
        };
        let starts = self.most_started.unwrap_or(u64::MAX);
        let limit =
            self.most_claimed.unwrap_or(usize::MAX).min(usize::try_from(starts).unwrap_or(usize::MAX));
        Limits {
            slots,
            batch: work.batch(),
            most: most.min(limit),
            ahead: ahead.min(limit),
            starts,
            strict: self.most_claimed.is_some(),
            hoards: self.ordered,
        }
    }

    fn check(&self) -> Result<()> {
        if self.topics.is_empty() {
            return Err(Error::invalid("a worker needs at least one topic to work"));
        }
        if self.topics.iter().collect::<BTreeSet<_>>().len() < self.topics.len() {
            return Err(Error::invalid("a topic is named twice: name each one once"));
        }
        if self.slots == 0 || self.most_claimed == Some(0) || self.most_started == Some(0) {
            return Err(Error::invalid(
                "a worker needs at least one slot, and must be allowed to claim one message and to start it",
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
        if self.timeout == Some(Duration::ZERO) {
            return Err(Error::invalid("a timeout of no time at all lets nothing run: choose a longer one"));
        }
        if let Some(limit) = &self.limit {
            limit.check()?;
        }
        if let Some(limit) = &self.limit_per_key {
            limit.check_per_key()?;
            if !self.ordered {
                return Err(Error::invalid(
                    "a limit per key needs an ordered group, where one worker at a time has a key: use .ordered(), or \
                     .limit() for the group as a whole",
                ));
            }
        }
        if self.journal.is_some() && self.delivery != Delivery::AtMostOnce {
            return Err(Error::invalid(
                "a journal is for groups that deliver at most once: others run again what a dead worker held, started or \
                 not; leave it out, or set `delivery(Delivery::AtMostOnce)`",
            ));
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
                let write = Write { key: silent.key.clone(), expect: Some(silent.version), value: None };
                if let Commit::Done(_) = ledger.commit(write).await? {
                    observe::declared_dead(&silent.key);
                }
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
    async fn lanes(
        &self,
        index: usize,
        topic: Topic,
        group: &GroupName,
        site: &Arc<Site>,
    ) -> Result<Vec<SourceSpec>> {
        let log = self.mill.log();
        let lane = |lane, shards| TopicSpec {
            shards,
            retention: Duration::ZERO,
            ..TopicSpec::new(topic.name.lane(group, lane))
        };
        let retry = log.create_topic(&lane(Lane::Retry, topic.shards.min(RETRY_SHARDS))).await?;
        let dead = log.create_topic(&lane(Lane::Dead, 1)).await?;
        let rules = Rules { ordered: self.ordered, once: self.delivery == Delivery::AtMostOnce };
        let (name, group_name) = (topic.name.clone(), group.clone());
        let origin = Arc::new(handler::Source { topic: name, group: group_name, site: site.clone() });
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
