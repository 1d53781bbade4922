//! The client: open a store, create topics, push, schedule, and start workers.

mod draft;
mod engines;
mod producer;
mod topic;

use std::sync::Arc;

use sawmill_engine::model::{MessageId, Push, Schedule, Topic, TopicSpec, base_name};
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Capabilities, Engine, Ledger, Log, Namespace};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::admin::Admin;
use crate::store::push::CheckedPush;
pub use crate::store::schedules::Scheduled;
use crate::store::{Store, cancel, schedules};
use crate::telemetry::{self, Events, PushSpan};
use crate::worker::WorkerBuilder;
pub use producer::Producer;
pub use topic::TypedTopic;

/// An open store: push to it, and start workers on it. Clones share it.
#[derive(Clone)]
pub struct Sawmill {
    store: Arc<Store>,
}

/// How to open a store; made by [`Sawmill::options`].
#[derive(Clone)]
#[must_use = "nothing is opened before `open` is called"]
pub struct OpenOptions {
    engines: Vec<Arc<dyn Engine>>,
    namespace: Option<String>,
    ledger: Option<String>,
    env: Option<Env>,
}

impl OpenOptions {
    /// Adds an engine, so that its URLs can be opened. It replaces the one with the same scheme, if there is one.
    pub fn engine(mut self, engine: impl Engine) -> Self {
        self.engines.retain(|other| other.scheme() != engine.scheme());
        self.engines.push(Arc::new(engine));
        self
    }

    /// Keeps this installation apart from others in the same store; `default` if not set.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Keeps the ledger in another store than the messages.
    pub fn ledger(mut self, url: impl Into<String>) -> Self {
        self.ledger = Some(url.into());
        self
    }

    /// Takes time, randomness and tasks from elsewhere than the system.
    pub fn env(mut self, env: Env) -> Self {
        self.env = Some(env);
        self
    }

    /// Opens the store with this URL, creating or migrating what it needs. A store that newer programs have raised to a
    /// [format](crate::engine::model::Format) that this one does not understand is refused.
    pub async fn open(self, url: &str) -> Result<Sawmill> {
        let env = self.env.unwrap_or_else(Env::system);
        let began = env.now();
        let namespace = self.namespace.as_deref().map_or_else(|| Ok(Namespace::default()), str::parse)?;
        let parts = engines::open(&self.engines, url, &namespace).await?;
        let ledger = match &self.ledger {
            None => parts.ledger,
            Some(url) => engines::open(&self.engines, url, &namespace).await?.ledger,
        };
        let log =
            parts.log.ok_or_else(|| Error::invalid("this engine keeps no messages: use it as a ledger"))?;
        let ledger =
            ledger.ok_or_else(|| Error::invalid("this engine keeps no ledger: name another one for it"))?;
        let able = self.engines.iter().filter(|engine| engine.capabilities().exactly_once);
        let able = able.map(|engine| engine.name()).collect();
        let store = Arc::new(Store::new(log, ledger, env.clone(), able));
        match store.check_format().await {
            Err(error) if error.kind() == ErrorKind::Outdated => return Err(error),
            // Not fatal: a user without access to this entry may still do other things, and every shard entry carries its format.
            Err(error) => tracing::debug!(%error, "the store's format could not be read"),
            Ok(()) => {}
        }
        telemetry::opened(env.now().since(began));
        Ok(Sawmill { store })
    }
}

impl Sawmill {
    /// Opens the store with this URL: `memory:`, or one of an engine that is compiled in by its feature.
    ///
    /// | URL | feature |
    /// |---|---|
    /// | `memory:` | |
    /// | `sqlite:jobs.db` | `sqlite` |
    /// | `postgres://user:password@host/database` | `postgres` |
    /// | `mysql://user:password@host/database` | `mysql` |
    /// | `cassandra://host/keyspace` | `cassandra` |
    /// | `kafka://host:9092` | `kafka` |
    /// | `zookeeper://host:2181` | `zookeeper`: a ledger alone, see [`OpenOptions::ledger`] |
    ///
    /// A program that does not have the engine gets an error that names its feature.
    pub async fn open(url: &str) -> Result<Self> {
        Self::options().open(url).await
    }

    /// Returns options for opening a store, when there is more to say than its URL.
    pub fn options() -> OpenOptions {
        OpenOptions { engines: engines::compiled_in(), namespace: None, ledger: None, env: None }
    }

    /// Makes a store of a log and a ledger that are open already. Nothing is read: the first worker that joins finds out which
    /// [format](crate::engine::model::Format) the store has.
    pub fn from_parts(log: Arc<dyn Log>, ledger: Arc<dyn Ledger>, env: Env) -> Self {
        Self { store: Arc::new(Store::new(log, ledger, env, Vec::new())) }
    }

    /// Makes this program one that understands formats up to this one, as a newer version would.
    #[cfg(any(test, feature = "next-format"))]
    #[doc(hidden)]
    #[must_use]
    pub fn understanding(self, format: sawmill_engine::model::Format) -> Self {
        self.store.understand(format);
        self
    }

    /// Returns an operator's calls: look at groups and workers, pause, replay, dead letters, access keys.
    pub fn admin(&self) -> Admin<'_> {
        Admin::new(&self.store)
    }

    /// The open store, for tests.
    pub(crate) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    // ── topics ──

    /// Creates a topic with the default settings, or finds the one that is there.
    pub async fn create_topic(&self, name: &str) -> Result<Topic> {
        let name = base_name(name)?;
        let topic = match self.store.log().topic(&name).await? {
            Some(topic) => topic,
            None => self.store.log().create_topic(&TopicSpec::new(name)).await?,
        };
        self.store.cache(Arc::new(topic.clone()));
        Ok(topic)
    }

    /// Creates a topic with other settings than the default. One that exists with another number of shards is an error.
    pub async fn create_topic_with(&self, spec: &TopicSpec) -> Result<Topic> {
        base_name(&spec.name.to_string())?;
        spec.check()?;
        self.store.log().create_topic(spec).await
    }

    // ── pushing ──

    /// Pushes a message and returns its id. When this returns, the message is durable.
    ///
    /// A [`Producer`] is faster for single pushes from many tasks.
    pub async fn push(&self, topic: &str, message: impl Into<Push>) -> Result<MessageId> {
        let ids = self.push_many(topic, [message]).await?;
        ids.first().copied().ok_or_else(|| Error::invalid("nothing was pushed"))
    }

    /// Pushes messages and returns their ids, in the same order. When this returns, all are durable. If one of them cannot be
    /// pushed at all, none is.
    pub async fn push_many<M: Into<Push>>(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<MessageId>> {
        let (name, store) = (base_name(topic)?, &self.store);
        let messages: Vec<Push> = messages.into_iter().map(Into::into).collect();
        let (ids, now) = (store.new_ids(messages.len()), store.env().wall());
        let span = PushSpan::new(&name, messages.len());
        let checked: Result<Vec<CheckedPush>> = span
            .within(|| messages.into_iter().zip(ids).map(|(push, id)| store.check(push, id, now)).collect());
        let pushed = match checked {
            Ok(checked) => store.append(&name, checked).await,
            Err(error) => Err(error),
        };
        span.end(pushed.as_deref());
        pushed
    }

    /// Cancels a message of a topic, in all its groups.
    ///
    /// A waiting message is not started once this returns. A claimed message is skipped at its worker's next refresh (see
    /// [`poll`](crate::WorkerBuilder::poll)). If its handler runs, the handler is [told](crate::Context::cancelled) and
    /// dropped then, and the message is not tried again. A message that is done stays done.
    ///
    /// A message that was trimmed, or never pushed to this topic, is an error of kind `NotFound`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sawmill::{Push, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("reminders").await?;
    /// let reminder = mill.push("reminders", Push::new("Call Alice").after(Duration::from_secs(3600))).await?;
    /// mill.cancel("reminders", reminder).await?;
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&self, topic: &str, id: MessageId) -> Result<()> {
        let topic = self.store.find_topic(topic).await?;
        cancel::cancel(&self.store, &topic, id).await
    }

    // ── schedules ──

    /// Adds a schedule to a topic: it pushes a message at each of its times, as long as the topic has a worker.
    ///
    /// The worker that maintains the topic pushes the ticks, by its own clock. It notices the schedule within seconds. Each
    /// tick is pushed once; twice at times, on engines without idempotent appends. The first tick is the first after this
    /// call.
    ///
    /// A schedule of the same name is replaced, and continues from where it is unless its times have changed. So a program
    /// can call this each time it starts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sawmill::{Context, Sawmill, Schedule};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("reports").await?;
    /// let nightly = Schedule::cron("nightly", "0 3 * * *", "Europe/Berlin")?.message("all customers");
    /// mill.schedule("reports", nightly).await?;
    /// let worker = mill.worker("reports").start(|report: Context| async move {
    ///     println!("the report of {:?}", report.tick());
    /// }).await?;
    /// assert_eq!(mill.schedules("reports").await?.len(), 1);
    /// mill.unschedule("reports", "nightly").await?;
    /// # worker.stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn schedule(&self, topic: &str, schedule: Schedule) -> Result<()> {
        schedules::add(&self.store, topic, schedule).await
    }

    /// Lists the schedules of a topic, by name.
    pub async fn schedules(&self, topic: &str) -> Result<Vec<Scheduled>> {
        schedules::list(&self.store, topic).await
    }

    /// Removes a schedule. Messages that it has pushed stay. False if there is none with this name.
    pub async fn unschedule(&self, topic: &str, name: &str) -> Result<bool> {
        schedules::remove(&self.store, topic, name).await
    }

    // ── working ──

    /// Returns a worker for one topic, to be started; see [`WorkerBuilder`] for its settings.
    pub fn worker(&self, topic: impl Into<String>) -> WorkerBuilder {
        self.worker_for([topic])
    }

    /// Returns a worker for several topics, the first having priority over the second, and so on.
    pub fn worker_for<T: Into<String>>(&self, topics: impl IntoIterator<Item = T>) -> WorkerBuilder {
        WorkerBuilder::new(self.store.clone(), topics.into_iter().map(Into::into).collect())
    }

    /// Subscribes to what happens in this process from now on: pushes through this store or its clones, and everything that
    /// workers started from them do. A slow subscriber misses events, and learns how many.
    ///
    /// ```
    /// use sawmill::telemetry::Event;
    /// use sawmill::{Context, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// let mill = Sawmill::open("memory:").await?;
    /// mill.create_topic("emails").await?;
    /// let mut events = mill.events();
    /// mill.push("emails", "Hello").await?;
    /// let worker = mill.worker("emails").start(|_mail: Context| async {}).await?;
    ///
    /// while let Some(event) = events.next().await {
    ///     if let Event::Done { id, attempt, .. } = event {
    ///         println!("{id} is done after {attempt} attempts");
    ///         break;
    ///     }
    /// }
    /// worker.stop().await;
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> Events {
        self.store.events().subscribe()
    }

    /// Returns what the log of this store can do, and its limits.
    pub fn capabilities(&self) -> Capabilities {
        self.store.log().capabilities()
    }
}
