//! The library's front door: open a store, create topics, push, start workers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::dead::DeadLetters;
use crate::engine::{self, Capabilities, Engine, Namespace};
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{Bell, Events};
use crate::format::Formats;
use crate::ledger::{Commit, EntryKey, Ledger, Write};
use crate::log::Log;
use crate::memory::MemoryEngine;
use crate::message::{IdMaker, MessageId};
use crate::observe::{self, Door};
use crate::planted::{self, Bug};
use crate::shard::ShardState;
use crate::topic::{GroupName, Lane, Topic, TopicName, TopicSpec};
use crate::worker::{WorkerBuilder, base_name};

/// How often it is tried to delete what the ledger has of a topic, while workers still write to it.
const DELETE_TRIES: usize = 5;

/// A store that is open: push to it, and start workers on it. Clones share it.
#[derive(Clone)]
pub struct Sawmill {
    inner: Arc<Inner>,
}

struct Inner {
    log: Arc<dyn Log>,
    ledger: Arc<dyn Ledger>,
    env: Env,
    ids: IdMaker,
    /// Where the next message without a key goes.
    next_shard: AtomicUsize,
    topics: Mutex<BTreeMap<TopicName, Topic>>,
    /// Names of known engines that can do exactly-once, for the error of those that cannot.
    exactly_once: Vec<&'static str>,
    formats: Formats,
    door: Door,
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
    /// Adds an engine, so that its URLs can be opened.
    pub fn engine(mut self, engine: impl Engine) -> Self {
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
    /// [format](crate::Format) which this one does not understand is refused.
    pub async fn open(self, url: &str) -> Result<Sawmill> {
        let env = self.env.unwrap_or_else(Env::system);
        let began = env.now();
        let namespace = self.namespace.as_deref().map_or_else(|| Ok(Namespace::default()), str::parse)?;
        let store = engine::open(&self.engines, url, &namespace).await?;
        let ledger = match &self.ledger {
            None => store.ledger,
            Some(url) => engine::open(&self.engines, url, &namespace).await?.ledger,
        };
        let log =
            store.log.ok_or_else(|| Error::invalid("this engine keeps no messages: use it as a ledger"))?;
        let ledger =
            ledger.ok_or_else(|| Error::invalid("this engine keeps no ledger: name another one for it"))?;
        let able = self.engines.iter().filter(|engine| engine.capabilities().exactly_once);
        let able = able.map(|engine| engine.name()).collect();
        let mill = Sawmill::assemble(log, ledger, env.clone(), able);
        match mill.check_format().await {
            Err(error) if error.kind() == ErrorKind::Outdated => return Err(error),
            // Not fatal: a user without access to this entry may still do other things, and every shard entry carries its format.
            Err(error) => tracing::debug!(%error, "the store's format could not be read"),
            Ok(()) => {}
        }
        observe::opened(env.now().since(began));
        Ok(mill)
    }
}

impl Sawmill {
    /// Opens a store of the engines that this crate itself has; only `memory:` for now. For others see
    /// [`options`](Sawmill::options), or the engine's own `open`.
    pub async fn open(url: &str) -> Result<Self> {
        Self::options().open(url).await
    }

    /// How to open a store, when there is more to say than its URL.
    pub fn options() -> OpenOptions {
        OpenOptions { engines: vec![Arc::new(MemoryEngine)], namespace: None, ledger: None, env: None }
    }

    /// A log and a ledger put together by hand. Nothing is read: which [format](crate::Format) the store has is found out by the first
    /// worker that joins.
    pub fn from_parts(log: Arc<dyn Log>, ledger: Arc<dyn Ledger>, env: Env) -> Self {
        Self::assemble(log, ledger, env, Vec::new())
    }

    fn assemble(
        log: Arc<dyn Log>,
        ledger: Arc<dyn Ledger>,
        env: Env,
        exactly_once: Vec<&'static str>,
    ) -> Self {
        let next_shard = AtomicUsize::new(env.dice().roll() as usize);
        let inner = Inner {
            log,
            ledger,
            env,
            ids: IdMaker::new(),
            next_shard,
            topics: Mutex::default(),
            exactly_once,
            formats: Formats::default(),
            door: Door::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    // ── topics ──

    /// Creates a topic with the usual settings, or finds the one that is there.
    pub async fn create_topic(&self, name: &str) -> Result<Topic> {
        let name = base_name(name)?;
        let topic = match self.log().topic(&name).await? {
            Some(topic) => topic,
            None => self.log().create_topic(&TopicSpec::new(name)).await?,
        };
        self.cached().insert(topic.name.clone(), topic.clone());
        Ok(topic)
    }

    /// Creates a topic with settings of one's own. One that exists with another number of shards is an error.
    pub async fn create_topic_with(&self, spec: &TopicSpec) -> Result<Topic> {
        base_name(&spec.name.to_string())?;
        spec.check()?;
        self.log().create_topic(spec).await
    }

    /// All topics, without the lanes of their groups.
    pub async fn topics(&self) -> Result<Vec<Topic>> {
        let mut topics = self.log().topics().await?;
        topics.retain(|topic| topic.name.as_lane().is_none());
        Ok(topics)
    }

    /// Deletes a topic with all its messages, and all that its groups keep. Its workers stop. Until
    /// a worker notices the deletion, for at most its TTL, it may still start messages that it already holds.
    ///
    /// If this fails, call it again before you create a topic of the same name. Otherwise the new topic may take over lanes of the
    /// old one, with their messages.
    pub async fn delete_topic(&self, name: &str) -> Result<()> {
        let name = base_name(name)?;
        self.cached().retain(|other, _| other.base() != name.base());
        // The topic itself goes last: if this is cut short, it can be deleted again.
        if !planted::is(Bug::LanesOutliveTheirTopic) {
            self.delete_from_log(&self.lanes_in(&name, self.log().topics().await?)).await?;
        }
        let topic = self.log().topic(&name).await?;
        self.delete_from_log(topic.as_slice()).await?;
        // A worker that was starting may have created a lane again before the topic itself was deleted. Lanes of a topic that was
        // created since are not meant.
        let topics = self.log().topics().await?;
        let is_anew = topics.iter().any(|other| other.name == name);
        let lanes_stay = planted::is(Bug::RecreatedLanesRemain) || planted::is(Bug::LanesOutliveTheirTopic);
        if !is_anew && !lanes_stay {
            self.delete_from_log(&self.lanes_in(&name, topics)).await?;
        }
        match self.delete_entries(&name).await? {
            true => Ok(()),
            false => Err(missing(&name)),
        }
    }

    /// The lanes of a topic among these topics.
    fn lanes_in(&self, name: &TopicName, mut topics: Vec<Topic>) -> Vec<Topic> {
        topics.retain(|other| other.name.base() == name.base() && other.name.as_lane().is_some());
        topics
    }

    /// Deletes topics from the log. What the ledger has of them is noted before: whoever finishes the deletion finds it.
    async fn delete_from_log(&self, doomed: &[Topic]) -> Result<()> {
        for topic in doomed {
            let note = Write { key: EntryKey::deletion(topic), expect: None, value: Some("{}".into()) };
            // A conflict: it is noted already.
            while self.ledger().commit(note.clone()).await? == Commit::Unknown {
                self.pause_briefly().await;
            }
            self.log().delete_topic(topic).await?;
        }
        Ok(())
    }

    /// Deletes what the ledger has of topics of this name that are deleted, and of their lanes. True if there were any.
    async fn delete_entries(&self, name: &TopicName) -> Result<bool> {
        let deletions = self.ledger().list(&EntryKey::deletions(name)).await?;
        for deletion in &deletions {
            for prefix in EntryKey::all_of(deletion.key.last()) {
                self.delete_all(&prefix).await?;
            }
            let write = Write { key: deletion.key.clone(), expect: Some(deletion.version), value: None };
            self.ledger().commit(write).await?;
        }
        Ok(!deletions.is_empty())
    }

    /// Deletes the entries that begin with this. A worker that has not noticed that its topic is gone may write once more: what it
    /// leaves is small and never read.
    async fn delete_all(&self, prefix: &EntryKey) -> Result<()> {
        for _ in 0..DELETE_TRIES {
            let entries = self.ledger().list(prefix).await?;
            if entries.is_empty() {
                return Ok(());
            }
            for entry in entries {
                self.ledger()
                    .commit(Write { key: entry.key, expect: Some(entry.version), value: None })
                    .await?;
            }
        }
        Ok(())
    }

    /// The topic with this name, as it is now; an error if there is none.
    pub(crate) async fn find_topic(&self, name: &str) -> Result<Topic> {
        let name = base_name(name)?;
        self.find(&name).await
    }

    /// The topic with this name as it was last seen: for pushing, which notices if it is another by now.
    pub(crate) async fn find_cached(&self, name: &TopicName) -> Result<Topic> {
        let cached = self.cached().get(name).cloned();
        match cached {
            Some(topic) => Ok(topic),
            None => self.find(name).await,
        }
    }

    pub(crate) async fn find(&self, name: &TopicName) -> Result<Topic> {
        let found = self.log().topic(name).await?;
        let topic = found.ok_or_else(|| missing(name))?;
        self.cached().insert(name.clone(), topic.clone());
        Ok(topic)
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, BTreeMap<TopicName, Topic>> {
        self.inner.topics.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    // ── working ──

    /// A worker for one topic; see [`WorkerBuilder`] for its settings.
    pub fn worker(&self, topic: impl Into<String>) -> WorkerBuilder {
        self.worker_for([topic])
    }

    /// A worker for several topics, the first having priority over the second, and so on.
    pub fn worker_for<T: Into<String>>(&self, topics: impl IntoIterator<Item = T>) -> WorkerBuilder {
        WorkerBuilder::new(self.clone(), topics.into_iter().map(Into::into).collect())
    }

    /// The dead letters of a group of a topic.
    pub async fn dead_letters(&self, topic: &str, group: &str) -> Result<DeadLetters> {
        let topic = self.find_topic(topic).await?;
        let group: GroupName = group.parse()?;
        let lane = |lane| topic.name.lane(&group, lane);
        let missing = |error: Error| match error.kind() {
            ErrorKind::NotFound => Error::new(
                ErrorKind::NotFound,
                format!("topic {} has no group {group}: a group begins with its first worker", topic.name),
            ),
            _ => error,
        };
        let dead = self.find(&lane(Lane::Dead)).await.map_err(missing)?;
        let retry = self.find(&lane(Lane::Retry)).await.map_err(missing)?;
        Ok(DeadLetters::new(self.clone(), dead, retry))
    }

    /// What happens in this process from now on: pushes through this store or its clones, and all that workers started
    /// from them do. What falls behind misses events, and is told how many.
    ///
    /// ```
    /// use sawmill::{Context, Event, Sawmill};
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
        self.inner.door.bell.listen()
    }

    // ── for the rest of the library ──

    pub(crate) fn bell(&self) -> Arc<Bell> {
        self.inner.door.bell.clone()
    }

    pub(crate) fn door(&self) -> &Door {
        &self.inner.door
    }

    /// What the log of this store can do, and its limits.
    pub fn capabilities(&self) -> Capabilities {
        self.log().capabilities()
    }

    pub(crate) fn formats(&self) -> &Formats {
        &self.inner.formats
    }

    pub(crate) fn log(&self) -> &dyn Log {
        &*self.inner.log
    }

    pub(crate) fn ledger(&self) -> &dyn Ledger {
        &*self.inner.ledger
    }

    pub(crate) fn env(&self) -> &Env {
        &self.inner.env
    }

    /// This many new ids, in ascending order.
    pub(crate) fn new_ids(&self, count: usize) -> Vec<MessageId> {
        let mut ids = Vec::with_capacity(count);
        self.inner.ids.make(self.env(), count, |id| ids.push(id));
        ids
    }

    /// Where the next messages without a key go.
    pub(crate) fn next_shard(&self) -> usize {
        self.inner.next_shard.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn require_exactly_once(&self) -> Result<()> {
        if self.log().capabilities().exactly_once {
            return Ok(());
        }
        let able = match self.inner.exactly_once.as_slice() {
            [] => "no engine that was added can".to_owned(),
            able => format!("engines that can: {}", able.join(", ")),
        };
        let what = format!(
            "this engine cannot deliver exactly once ({able}): use at-least-once with a handler that may repeat, or at-most-once"
        );
        Err(Error::new(ErrorKind::Unsupported, what))
    }

    /// The groups that read a topic, or a lane.
    pub(crate) async fn groups_of(&self, topic: &Topic) -> Result<Vec<GroupName>> {
        match topic.name.as_lane() {
            Some((_, Lane::Dead)) => Ok(vec![crate::dead::readers()?]),
            Some((group, Lane::Retry)) => Ok(vec![group.clone()]),
            None => {
                let entries = self.ledger().list(&EntryKey::groups(topic)).await?;
                entries.iter().map(|entry| entry.key.last().parse()).collect()
            }
        }
    }

    /// What a group knows of each shard of a topic.
    pub(crate) async fn shard_states(&self, topic: &Topic, group: &GroupName) -> Result<Vec<ShardState>> {
        let mut states = vec![ShardState::default(); usize::from(topic.shards)];
        for entry in self.ledger().list(&EntryKey::shards(topic, group)).await? {
            let shard: Option<usize> = entry.key.last().parse().ok();
            if let Some(place) = shard.and_then(|shard| states.get_mut(shard)) {
                *place = self.decode_shard(&entry)?;
            }
        }
        Ok(states)
    }
}

fn missing(name: &TopicName) -> Error {
    Error::new(ErrorKind::NotFound, format!("topic {name} does not exist: create it first"))
}
