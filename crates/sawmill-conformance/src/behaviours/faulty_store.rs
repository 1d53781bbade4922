//! The two seams of a real store, within a layer that can cut it off, counts calls, and records writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sawmill::engine::model::{ShardState, Topic, TopicName};
use sawmill::engine::runtime::{Env, Moment};
use sawmill::engine::storage::{
    Backlog, Block, Capabilities, Commit, Entry, EntryKey, FoundMessage, Ledger, Log, Notifications,
    Position, Promoted, ReadRequest, Record, Span, Version, Write,
};
use sawmill::{Error, ErrorKind, Message, MessageId, Result, Sawmill, Timestamp, TopicSpec};

use super::place::Seams;
use super::support::eventually;

/// A real store that a test can cut off and observe. Clones share it.
#[derive(Clone)]
pub struct FaultyStore {
    store: Seams,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    log_is_down: AtomicBool,
    ledger_is_down: AtomicBool,
    is_deaf: AtomicBool,
    slow_reads: AtomicUsize,
    refused: AtomicUsize,
    reads: Mutex<Vec<(Topic, Moment)>>,
    lists: Mutex<Vec<EntryKey>>,
    writes: Mutex<Vec<(Write, Commit)>>,
    rival: Mutex<Option<Rival>>,
}

/// Inspects a write that is about to be sent, and may commit one of its own first.
type Rival = Box<dyn FnMut(&Write) -> Option<Write> + Send>;

impl FaultyStore {
    pub fn new(store: Seams) -> Self {
        Self { store, shared: Arc::default() }
    }

    /// Returns the library on top of this store.
    pub fn mill(&self) -> Sawmill {
        self.mill_in(Env::system())
    }

    pub fn mill_in(&self, env: Env) -> Sawmill {
        Sawmill::from_parts(Arc::new(self.clone()), Arc::new(self.clone()), env)
    }

    /// Makes the log unreachable from now on, or reachable again.
    pub fn log_is_down(&self, down: bool) {
        self.shared.log_is_down.store(down, Ordering::SeqCst);
    }

    /// Makes the ledger unreachable from now on, or reachable again.
    pub fn ledger_is_down(&self, down: bool) {
        self.shared.ledger_is_down.store(down, Ordering::SeqCst);
    }

    /// Makes both unreachable or reachable. A worker that stays cut off is as good as dead.
    pub fn is_down(&self, down: bool) {
        self.log_is_down(down);
        self.ledger_is_down(down);
    }

    /// Workers that start from now on receive no notifications.
    pub fn is_deaf(&self) {
        self.shared.is_deaf.store(true, Ordering::SeqCst);
    }

    /// The next `reads` reads return an empty block with `more` set.
    pub fn is_slow(&self, reads: usize) {
        self.shared.slow_reads.store(reads, Ordering::SeqCst);
    }

    /// Returns how many calls failed while the store was down.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }

    /// Returns the times at which this topic was read.
    pub fn reads(&self, topic: &Topic) -> Vec<Moment> {
        let reads = self.shared.reads.lock().unwrap();
        reads.iter().filter(|(read, _)| read.uid == topic.uid).map(|(_, at)| *at).collect()
    }

    /// Returns how often the worker has listed the shards of this topic in the ledger.
    fn shard_lists(&self, topic: &Topic) -> usize {
        let shards = format!("shards/{}/", topic.uid);
        self.shared.lists.lock().unwrap().iter().filter(|list| list.as_str().starts_with(&shards)).count()
    }

    /// Waits until the only worker on this store has listed the shards three more times. Each list sees the
    /// current state, and when the third begins, the worker has finished its reactions to the first two.
    /// Anything it has not done by then, it does not do.
    pub async fn looks_again(&self, topic: &Topic) {
        let enough = self.shard_lists(topic) + 3;
        eventually("the worker lists the shards three times", async || self.shard_lists(topic) >= enough)
            .await;
    }

    /// Returns the writes to this entry with their outcomes.
    pub fn writes(&self, key: &EntryKey) -> Vec<(Write, Commit)> {
        self.shared.writes.lock().unwrap().iter().filter(|(write, _)| write.key == *key).cloned().collect()
    }

    /// Returns the number of commits sent in all.
    pub fn commits(&self) -> usize {
        self.shared.writes.lock().unwrap().len()
    }

    /// Installs a rival that may commit first.
    pub fn rival(&self, rival: impl FnMut(&Write) -> Option<Write> + Send + 'static) {
        *self.shared.rival.lock().unwrap() = Some(Box::new(rival));
    }

    fn log(&self) -> Result<&Seams> {
        self.check(&self.shared.log_is_down)
    }

    fn ledger(&self) -> Result<&Seams> {
        self.check(&self.shared.ledger_is_down)
    }

    fn check(&self, down: &AtomicBool) -> Result<&Seams> {
        if down.load(Ordering::SeqCst) {
            self.shared.refused.fetch_add(1, Ordering::SeqCst);
            return Err(Error::new(ErrorKind::Unavailable, "the store is down"));
        }
        Ok(&self.store)
    }

    fn notifications(&self, notifications: Notifications) -> Notifications {
        if self.shared.is_deaf.load(Ordering::SeqCst) { Notifications::never() } else { notifications }
    }
}

/// Returns all states of a shard's entry, in order, as written through any of these stores.
pub fn history(stores: &[&FaultyStore], key: &EntryKey) -> Vec<ShardState> {
    let mut states: BTreeMap<Version, ShardState> = BTreeMap::new();
    for (write, commit) in stores.iter().flat_map(|faulty| faulty.writes(key)) {
        if let (Some(value), Commit::Done(version)) = (write.value, commit) {
            states.insert(version, ShardState::decode(key, &value).unwrap());
        }
    }
    states.into_values().collect()
}

#[async_trait]
impl Log for FaultyStore {
    fn capabilities(&self) -> Capabilities {
        self.store.log.capabilities()
    }
    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        self.log()?.log.create_topic(spec).await
    }
    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.log()?.log.topic(name).await
    }
    async fn topics(&self) -> Result<Vec<Topic>> {
        self.log()?.log.topics().await
    }
    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        self.log()?.log.delete_topic(topic).await
    }
    fn shard_of(&self, key: &[u8], shards: u16) -> u16 {
        self.store.log.shard_of(key, shards)
    }
    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        self.log()?.log.append(topic, now, records).await
    }
    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        self.shared.reads.lock().unwrap().push((topic.clone(), Env::system().now()));
        let less = |reads: usize| reads.checked_sub(1);
        if self.shared.slow_reads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            let nothing = |want: &ReadRequest| Block {
                messages: Vec::new(),
                span: Span::default(),
                end: want.after.clone(),
                more: true,
            };
            return Ok(wants.iter().map(nothing).collect());
        }
        self.log()?.log.read(topic, wants).await
    }
    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        self.log()?.log.reread(topic, shard, span).await
    }
    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.log()?.log.promote(topic, now, limit).await
    }
    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        self.log()?.log.find(topic, id).await
    }
    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        self.log()?.log.positions(topic, since).await
    }
    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        self.log()?.log.backlog(topic, after).await
    }
    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        self.log()?.log.trim(topic, upto, before).await
    }
    fn message_notifications(&self, topic: &Topic) -> Notifications {
        self.notifications(self.store.log.message_notifications(topic))
    }
}

#[async_trait]
impl Ledger for FaultyStore {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        self.ledger()?.ledger.get(key).await
    }
    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let store = self.ledger()?;
        self.shared.lists.lock().unwrap().push(prefix.clone());
        store.ledger.list(prefix).await
    }
    async fn commit(&self, write: Write) -> Result<Commit> {
        let rival = self.shared.rival.lock().unwrap().as_mut().and_then(|rival| rival(&write));
        if let Some(faster) = rival {
            assert!(matches!(self.store.ledger.commit(faster).await?, Commit::Done(_)));
        }
        let commit = self.ledger()?.ledger.commit(write.clone()).await?;
        self.shared.writes.lock().unwrap().push((write, commit));
        Ok(commit)
    }
    fn entry_notifications(&self) -> Notifications {
        self.notifications(self.store.ledger.entry_notifications())
    }
}
