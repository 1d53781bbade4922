//! Stores in memory and on a real engine, for behaviours that are tested on both: with an adjustable clock, a
//! count of appends, and switches that make calls fail.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use sawmill::engine::model::{Topic, TopicName};
use sawmill::engine::runtime::{Clock, Env, Moment, Spawn, SystemClock, SystemRng};
use sawmill::engine::storage::{
    Backlog, Block, Capabilities, Commit, Entry, EntryKey, FoundMessage, Ledger, Log, Memory, Notifications,
    Position, Promoted, ReadRequest, Record, Span, Write,
};
use sawmill::{Error, ErrorKind, Message, MessageId, Result, Sawmill, Timestamp, TopicSpec};

use super::support::{Place, Subject, eventually, key_per_shard};

/// A store of one of the engines. Clones share it.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) engine: &'static str,
    log: Arc<dyn Log>,
    ledger: Arc<dyn Ledger>,
    pub(crate) clock: MovedClock,
    switches: Arc<Switches>,
    _place: Arc<Option<Place>>,
}

#[derive(Default)]
struct Switches {
    appends: AtomicUsize,
    appends_fail: Mutex<Option<(ErrorKind, bool)>>,
    /// Commits to entries with this key prefix are refused.
    refused: Mutex<Option<String>>,
    /// Reads of this shard return nothing.
    hidden: Mutex<Option<u16>>,
    promotes_slowly: AtomicBool,
    promoting: AtomicUsize,
    /// The topics of all promotions so far, by uid.
    promotes: Mutex<Vec<String>>,
    refusals: AtomicUsize,
}

/// Opens one store of each engine.
pub(crate) fn both(on: Subject) -> [Store; 2] {
    let (memory, place) = (Arc::new(Memory::new()), on.place());
    let seams = place.store();
    [
        Store::new("memory", memory.clone(), memory, None),
        Store::new(on.engine, seams.log, seams.ledger, Some(place)),
    ]
}

impl Store {
    fn new(engine: &'static str, log: Arc<dyn Log>, ledger: Arc<dyn Ledger>, place: Option<Place>) -> Self {
        let clock = MovedClock::default();
        Self { engine, log, ledger, clock, switches: Arc::default(), _place: Arc::new(place) }
    }

    /// Returns the library on top of the store.
    pub(crate) fn mill(&self) -> Sawmill {
        let env = Env::new(self.clock.clone(), SystemRng, TokioSpawn);
        Sawmill::from_parts(Arc::new(self.clone()), Arc::new(self.clone()), env)
    }

    /// Returns the number of appends.
    pub(crate) fn appends(&self) -> usize {
        self.switches.appends.load(Ordering::SeqCst)
    }

    /// Makes the next append fail with an error of this kind; it takes effect or not.
    pub(crate) fn next_append_fails(&self, kind: ErrorKind, takes_effect: bool) {
        *self.switches.appends_fail.lock().unwrap() = Some((kind, takes_effect));
    }

    /// Refuses commits to entries with this key prefix from now on; `None` accepts all.
    pub(crate) fn refuse_commits(&self, prefix: Option<&str>) {
        *self.switches.refused.lock().unwrap() = prefix.map(str::to_owned);
    }

    /// Hides a shard from reads from now on; `None` shows all.
    pub(crate) fn hide_shard(&self, shard: Option<u16>) {
        *self.switches.hidden.lock().unwrap() = shard;
    }

    /// Slows down promotion from now on.
    pub(crate) fn promote_slowly(&self) {
        self.switches.promotes_slowly.store(true, Ordering::SeqCst);
    }

    /// Returns how many promotions are running.
    pub(crate) fn promoting(&self) -> usize {
        self.switches.promoting.load(Ordering::SeqCst)
    }

    /// Waits for three maintenance passes over a topic, so that everything due at the call has been pushed.
    pub(crate) async fn maintained_again(&self, topic: &Topic) {
        let passes =
            || self.switches.promotes.lock().unwrap().iter().filter(|uid| **uid == topic.uid).count();
        let enough = passes() + 3;
        eventually("the topic is maintained three times", async || passes() >= enough).await;
    }

    /// Returns the number of refused commits.
    pub(crate) fn refusals(&self) -> usize {
        self.switches.refusals.load(Ordering::SeqCst)
    }

    /// Returns a key for each shard.
    pub(crate) fn key_per_shard(&self, shards: u16) -> Vec<String> {
        key_per_shard(shards, |key, shards| self.log.shard_of(key, shards))
    }

    /// Returns all ledger keys with this prefix.
    pub(crate) async fn keys(&self, prefix: &str) -> Vec<String> {
        let entries = self.ledger.list(&EntryKey::raw(prefix)).await.unwrap();
        entries.iter().map(|entry| entry.key.to_string()).collect()
    }
}

/// The system's clock, with a wall clock that can be moved ahead.
#[derive(Clone, Default)]
pub(crate) struct MovedClock(Arc<AtomicU64>);

impl MovedClock {
    pub(crate) fn move_on(&self, time: Duration) {
        self.0.fetch_add(time.as_millis() as u64, Ordering::SeqCst);
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Moment {
        SystemClock.now()
    }
    fn wall(&self) -> Timestamp {
        SystemClock.wall() + Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration)
    }
}

/// Spawns on tokio, for an [`Env`] with another clock.
pub(crate) struct TokioSpawn;

impl Spawn for TokioSpawn {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        Env::system().spawn(task);
    }
}

#[async_trait]
impl Log for Store {
    fn capabilities(&self) -> Capabilities {
        self.log.capabilities()
    }
    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        self.log.create_topic(spec).await
    }
    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.log.topic(name).await
    }
    async fn topics(&self) -> Result<Vec<Topic>> {
        self.log.topics().await
    }
    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        self.log.delete_topic(topic).await
    }
    fn shard_of(&self, key: &[u8], shards: u16) -> u16 {
        self.log.shard_of(key, shards)
    }
    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        self.switches.appends.fetch_add(1, Ordering::SeqCst);
        let fails = self.switches.appends_fail.lock().unwrap().take();
        match fails {
            None => self.log.append(topic, now, records).await,
            Some((kind, takes_effect)) => {
                if takes_effect {
                    self.log.append(topic, now, records).await?;
                }
                Err(Error::new(kind, "this append fails"))
            }
        }
    }
    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let hidden = *self.switches.hidden.lock().unwrap();
        let mut blocks = self.log.read(topic, wants).await?;
        for (block, want) in blocks.iter_mut().zip(wants).filter(|(_, want)| Some(want.shard) == hidden) {
            let (messages, span, end) = (Vec::new(), Span::default(), want.after.clone());
            *block = Block { messages, span, end, more: false };
        }
        Ok(blocks)
    }
    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        self.log.reread(topic, shard, span).await
    }
    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.switches.promotes.lock().unwrap().push(topic.uid.clone());
        self.switches.promoting.fetch_add(1, Ordering::SeqCst);
        if self.switches.promotes_slowly.load(Ordering::SeqCst) {
            SystemClock.sleep(Duration::from_millis(300)).await;
        }
        let promoted = self.log.promote(topic, now, limit).await;
        self.switches.promoting.fetch_sub(1, Ordering::SeqCst);
        promoted
    }
    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        self.log.find(topic, id).await
    }
    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        self.log.positions(topic, since).await
    }
    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        self.log.backlog(topic, after).await
    }
    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        self.log.trim(topic, upto, before).await
    }
    fn message_notifications(&self, topic: &Topic) -> Notifications {
        self.log.message_notifications(topic)
    }
}

#[async_trait]
impl Ledger for Store {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        self.ledger.get(key).await
    }
    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        self.ledger.list(prefix).await
    }
    async fn commit(&self, write: Write) -> Result<Commit> {
        let refused = self.switches.refused.lock().unwrap().clone();
        if refused.is_some_and(|prefix| write.key.as_str().starts_with(&prefix)) {
            self.switches.refusals.fetch_add(1, Ordering::SeqCst);
            return Err(Error::new(ErrorKind::Unavailable, "this entry cannot be written"));
        }
        self.ledger.commit(write).await
    }
    fn entry_notifications(&self) -> Notifications {
        self.ledger.entry_notifications()
    }
}
