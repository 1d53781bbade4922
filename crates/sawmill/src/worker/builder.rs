//! The settings of a worker, checked before it starts, and how it joins its group.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill_engine::model::{GroupName, Lane, Limit, RetryPolicy, Rules, Topic, TopicSpec, check_name};
use sawmill_engine::storage::EntryKey;
use sawmill_engine::{Error, Result};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::journal::{self, Journal};
use crate::handler::{self, Finishes, Hooks, IntoHandler, Layers, Notes, Site, States};
use crate::store::Store;
use crate::worker::inflight::gate::Gate;
use crate::worker::inflight::{InFlight, InFlightLimits};
use crate::worker::telemetry::WorkerTelemetry;
use crate::worker::unique_name::UniqueName;
use crate::worker::{
    Delivery, Lanes, MAX_BLOCK, OnFailure, ShardSource, Shared, Work, Worker, coordinator, heartbeat,
    maintenance,
};

/// The settings of a worker; made by [`Sawmill::worker`](crate::Sawmill::worker).
#[derive(Clone)]
#[must_use = "a worker runs when it is started"]
pub struct WorkerBuilder {
    pub(super) store: Arc<Store>,
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
    pub(super) max_in_flight: Option<usize>,
    pub(super) max_messages: Option<u64>,
    pub(super) timeout: Option<Duration>,
    pub(super) hooks: Hooks,
    pub(super) layers: Layers,
    pub(super) limit: Option<Limit>,
    pub(super) limit_per_key: Option<Limit>,
    pub(super) journal: Option<PathBuf>,
}

/// The shortest poll interval that is allowed.
const SHORTEST_POLL: Duration = Duration::from_millis(1);
/// The TTLs that are allowed.
const TTL_RANGE: std::ops::RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);

impl WorkerBuilder {
    pub(crate) fn new(store: Arc<Store>, topics: Vec<String>) -> Self {
        Self {
            store,
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
            max_in_flight: None,
            max_messages: None,
            timeout: None,
            hooks: Hooks::default(),
            layers: Layers::default(),
            limit: None,
            limit_per_key: None,
            journal: None,
        }
    }

    /// Sets the group that the worker belongs to; `default` if not set. Every group sees every message.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// Sets the beginning of the worker's id, for people to read. A new random part is added at each start.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets a name that no other living worker of the group may have, for workers that are started again and
    /// again, like the numbered instances of a supervisor. The worker starts once the last one of this name
    /// has left or was silent for its TTL; if that one lives, starting is an error. Messages that the last
    /// one left unfinished come first.
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

    /// Sets how many handlers the worker runs at once; the number of cores if not set. A batch counts as one.
    pub fn concurrency(mut self, concurrency: usize) -> Self {
        self.slots = concurrency;
        self
    }

    /// Keeps strict order per key across all workers of the group: a message waits until the one before it
    /// with the same key is done or dead. Other keys go on.
    pub fn ordered(mut self) -> Self {
        self.ordered = true;
        self
    }

    /// Sets how often a message may be run; at-least-once if not set.
    pub fn delivery(mut self, delivery: Delivery) -> Self {
        self.delivery = delivery;
        self
    }

    /// Sets when and how often failed messages are retried.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Sets what to do with messages that are out of attempts.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Sets how long this worker may be silent before others declare it dead; 10 seconds if not set.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = ttl;
        self
    }

    /// Sets how often to look for messages when no notification comes. The default is what the engine
    /// [suggests](sawmill_engine::storage::Capabilities::idle_poll).
    pub fn poll(mut self, poll: Duration) -> Self {
        self.poll = Some(poll);
        self
    }

    /// Sets the most messages to have claimed at once. Under at-most-once this is the most that one crash can
    /// lose without a [journal](WorkerBuilder::journal).
    pub fn max_in_flight(mut self, most: usize) -> Self {
        self.max_in_flight = Some(most);
        self
    }

    /// Sets the most messages to start, retries included. When the last of them has ended, the worker
    /// [leaves](Worker::stop).
    ///
    /// ```
    /// use sawmill::{Context, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("reports").await?;
    /// mill.push_many("reports", ["2026-01", "2026-02", "2026-03"]).await?;
    /// let worker = mill.worker("reports").max_messages(2).start(|_report: Context| async {}).await?;
    /// assert_eq!(worker.ended().await.started, 2);
    /// # Ok(()) }
    /// ```
    pub fn max_messages(mut self, most: u64) -> Self {
        self.max_messages = Some(most);
        self
    }

    /// Limits how many messages of a topic the whole group runs at once, or starts in a period, retries
    /// included. The limit applies to each topic of the worker separately.
    ///
    /// Each worker takes a share of the limit and leaves it when others come; starting a message needs no
    /// communication. At most as many workers work a topic as the limit has shares: with `Limit::running(1)`
    /// one does, and another takes over when it leaves or dies. A worker that joins starts once the others
    /// have refreshed (see [`poll`](WorkerBuilder::poll)) and their handlers beyond their share have ended.
    ///
    /// The limit on running messages is strict, except for handlers of a worker that was declared dead and
    /// runs on. A rate allows as many starts in any period as it says, plus those that workers save up while
    /// idle: one each, or as many as come in 100 ms. A worker that joins has saved up none.
    ///
    /// Give all workers of the group the same limit. If limits differ, each worker follows its own, and one
    /// with a lower limit starts nothing while the others hold more than that.
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

    /// Limits how many messages of each key start in a period. Messages without a key are not limited by it.
    ///
    /// Only for [`ordered`](WorkerBuilder::ordered) groups, where one worker at a time has a key. When its
    /// shard moves to another worker, the key begins there with the starts that come in 100 ms, at least one.
    pub fn limit_per_key(mut self, limit: Limit) -> Self {
        self.limit_per_key = Some(limit);
        self
    }

    /// Joins the group and starts handling messages, on the tokio runtime that this is called on.
    ///
    /// A handler is an `async` function or closure. Its arguments are the parts of the message that it needs:
    /// the [`Context`](crate::handler::Context), the payload as [`Json`](crate::Json), `Bytes` or `String`,
    /// shared values as [`State`](crate::handler::State), or a [custom type](crate::handler::FromContext).
    /// The types of a closure's arguments must be written out.
    ///
    /// Handlers share the runtime's threads with the task that keeps this worker a member of its group. A
    /// handler that blocks its thread, computing or waiting, for a large part of the TTL causes the worker to
    /// be declared dead: use [`start_blocking`](WorkerBuilder::start_blocking) for such work.
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
    ///     .concurrency(16)
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

    /// Starts a worker that handles its messages in this way.
    pub(super) async fn launch(self, work: Work) -> Result<Worker> {
        let group: GroupName = self.group.parse()?;
        check_name("worker", &self.name, 60)?;
        self.check()?;
        work.check(&self)?;
        let mut topics = Vec::new();
        for name in &self.topics {
            let topic = self.store.find_topic(name).await?;
            self.agree_on_group(&topic, &group).await?;
            topics.push(topic);
        }
        let journal = match &self.journal {
            Some(path) => Some(Journal::open(path, &group, &topics, &journal::boot_id()?)?),
            None => None,
        };
        let name = match self.unique_name {
            true => Some(UniqueName::free(&self.store, &group, &self.name, self.ttl).await?),
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
        topics: Vec<Arc<Topic>>,
        states: States,
        (journal, name): (Option<Journal>, Option<UniqueName>),
    ) -> Result<Worker> {
        work.check_states(&states)?;
        let stop = CancellationToken::new();
        let site = Arc::new(Site {
            store: self.store.clone(),
            states,
            notes: Notes::default(),
            finishes: Finishes::default(),
            cancellations: watch::Sender::default(),
            stopping: stop.clone(),
        });
        let mut sources = Vec::new();
        for (index, topic) in topics.into_iter().enumerate() {
            sources.extend(self.lanes(index, topic, &group, &site).await?);
        }
        let mut inflight = InFlight::new(
            self.limits(&work),
            self.topics.iter().map(|_| Gate::new(self.limit, self.limit_per_key)),
        );
        inflight.pulls = matches!(work, Work::Pull).then_some(0);
        let shared = Arc::new(Shared {
            inflight: Mutex::new(inflight),
            journal,
            name,
            wake: Notify::new(),
            more: Notify::new(),
            heartbeat_now: Notify::new(),
            check_duties: Notify::new(),
            poll: self.poll.unwrap_or_else(|| self.store.log().capabilities().idle_poll),
            stop,
            abort: CancellationToken::new(),
            coordinator_done: CancellationToken::new(),
            maintenance_done: CancellationToken::new(),
            drains: AtomicU64::new(0),
            drained: watch::Sender::new(0),
            ended: CancellationToken::new(),
            counts: Mutex::default(),
            telemetry: WorkerTelemetry::new(self.store.events().clone(), &group, &sources),
            work,
            site,
            sources,
            group,
            builder: self,
        });
        let env = shared.builder.store.env().clone();
        // The first registration is awaited, so that the caller gets an error if the store cannot be reached.
        let registered = heartbeat::register(&shared).await?;
        shared.builder.confirm_group(&shared, &registered).await?;
        env.spawn(heartbeat::run(shared.clone(), registered));
        env.spawn(coordinator::run(shared.clone()));
        env.spawn(maintenance::run(shared.clone()));
        Ok(Worker { shared, detached: false })
    }

    /// Computes how much the worker may have in hand.
    fn limits(&self, work: &Work) -> InFlightLimits {
        let slots = self.slots.saturating_mul(work.batch());
        // How far to claim ahead: several blocks, so that very quick handlers need not wait for the store.
        // Ordered groups hold more than they claim ahead, because messages wait behind others of their key.
        let ahead = (MAX_BLOCK * if self.ordered { 2 } else { 8 }).max(slots);
        let most = match self.ordered {
            true => ahead.saturating_mul(2),
            false => ahead.saturating_add(slots.saturating_mul(4)),
        };
        let starts = self.max_messages.unwrap_or(u64::MAX);
        let limit =
            self.max_in_flight.unwrap_or(usize::MAX).min(usize::try_from(starts).unwrap_or(usize::MAX));
        InFlightLimits {
            slots,
            batch: work.batch(),
            most: most.min(limit),
            ahead: ahead.min(limit),
            starts,
            strict: self.max_in_flight.is_some(),
            ordered: self.ordered,
        }
    }

    fn check(&self) -> Result<()> {
        if self.topics.is_empty() {
            return Err(Error::invalid("a worker needs at least one topic to work"));
        }
        if self.topics.iter().collect::<BTreeSet<_>>().len() < self.topics.len() {
            return Err(Error::invalid("a topic is named twice: name each one once"));
        }
        if self.slots == 0 || self.max_in_flight == Some(0) || self.max_messages == Some(0) {
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
            self.store.require_exactly_once()?;
        }
        Ok(())
    }

    /// Creates the topic's lanes, and lists the shards that a worker of this topic reads: the topic's, and
    /// those of its group's retry lane.
    async fn lanes(
        &self,
        index: usize,
        topic: Arc<Topic>,
        group: &GroupName,
        site: &Arc<Site>,
    ) -> Result<Vec<ShardSource>> {
        let log = self.store.log();
        let lane = |lane, shards| TopicSpec {
            shards,
            retention: Duration::ZERO,
            ..TopicSpec::new(topic.name.lane(group, lane))
        };
        let retry = Arc::new(log.create_topic(&lane(Lane::Retry, topic.shards.min(RETRY_SHARDS))).await?);
        let dead = Arc::new(log.create_topic(&lane(Lane::Dead, 1)).await?);
        let rules = Rules { ordered: self.ordered, once: self.delivery == Delivery::AtMostOnce };
        let (name, group_name) = (topic.name.clone(), group.clone());
        let origin = Arc::new(handler::Origin { topic: name, group: group_name, site: site.clone() });
        let lanes = Arc::new(Lanes { retry: retry.clone(), dead });
        let mut sources = Vec::new();
        for topic in [topic, retry] {
            for shard in 0..topic.shards {
                sources.push(ShardSource {
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

/// The most shards of a retry lane: failures are few.
const RETRY_SHARDS: u16 = 4;
