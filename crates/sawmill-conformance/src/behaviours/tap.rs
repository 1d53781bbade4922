//! A tap on the two seams: the real store behind it, and in front of it switches that cut it off, counters, and a record
//! of what was written.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use sawmill::clock::{Moment, Timestamp};
use sawmill::engine::Capabilities;
use sawmill::env::Env;
use sawmill::ledger::{Commit, Entry, EntryKey, Ledger, Version, Write};
use sawmill::log::{Backlog, Block, Found, Hints, Log, Position, Promoted, Record, Span, Want};
use sawmill::shard::ShardState;
use sawmill::topic::{TopicName, TopicSpec};
use sawmill::{Error, ErrorKind, Message, MessageId, Result, Sawmill, Topic};

use super::place::Seams;
use super::support::eventually;

/// The store with a tap on it. Clones share it.
#[derive(Clone)]
pub struct Tap {
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

/// Looks at a write that is about to be sent, and may be faster with one of its own.
type Rival = Box<dyn FnMut(&Write) -> Option<Write> + Send>;

impl Tap {
    pub fn new(store: Seams) -> Self {
        Self { store, shared: Arc::default() }
    }

    /// The library on top of it.
    pub fn mill(&self) -> Sawmill {
        self.mill_in(Env::system())
    }

    pub fn mill_in(&self, env: Env) -> Sawmill {
        Sawmill::from_parts(Arc::new(self.clone()), Arc::new(self.clone()), env)
    }

    /// From now on the log cannot be reached, or can again.
    pub fn log_is_down(&self, down: bool) {
        self.shared.log_is_down.store(down, Ordering::SeqCst);
    }

    /// From now on the ledger cannot be reached, or can again.
    pub fn ledger_is_down(&self, down: bool) {
        self.shared.ledger_is_down.store(down, Ordering::SeqCst);
    }

    /// Nothing can be reached, or everything can again. A worker that is cut off for good is as good as dead.
    pub fn is_down(&self, down: bool) {
        self.log_is_down(down);
        self.ledger_is_down(down);
    }

    /// Workers that start from now on hear no hints.
    pub fn is_deaf(&self) {
        self.shared.is_deaf.store(true, Ordering::SeqCst);
    }

    /// The next reads, so many of them, have nothing at hand.
    pub fn is_slow(&self, reads: usize) {
        self.shared.slow_reads.store(reads, Ordering::SeqCst);
    }

    /// How many calls were refused while it was down.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }

    /// When this topic was read.
    pub fn reads(&self, topic: &Topic) -> Vec<Moment> {
        let reads = self.shared.reads.lock().unwrap();
        reads.iter().filter(|(read, _)| read.uid == topic.uid).map(|(_, at)| *at).collect()
    }

    /// How often the worker has looked at the shards of this topic in the ledger.
    fn looks(&self, topic: &Topic) -> usize {
        let shards = format!("shards/{}/", topic.uid);
        self.shared.lists.lock().unwrap().iter().filter(|list| list.as_str().starts_with(&shards)).count()
    }

    /// Waits until the only worker behind this tap has looked around three times from now on. Each look sees what is there now, and
    /// when the third one begins, what the worker does because of the first two is done. What it has not done by then, it does not do.
    pub async fn looks_again(&self, topic: &Topic) {
        let enough = self.looks(topic) + 3;
        eventually("the worker looks around three times", async || self.looks(topic) >= enough).await;
    }

    /// What was sent to this entry, and what came of it.
    pub fn writes(&self, key: &EntryKey) -> Vec<(Write, Commit)> {
        self.shared.writes.lock().unwrap().iter().filter(|(write, _)| write.key == *key).cloned().collect()
    }

    /// How many commits were sent in all.
    pub fn commits(&self) -> usize {
        self.shared.writes.lock().unwrap().len()
    }

    /// Somebody who may be faster.
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

    fn hints(&self, hints: Hints) -> Hints {
        if self.shared.is_deaf.load(Ordering::SeqCst) { Hints::never() } else { hints }
    }
}

/// All states that a shard's entry has had, in order, as written through any of these taps.
pub fn history(taps: &[&Tap], key: &EntryKey) -> Vec<ShardState> {
    let mut states: BTreeMap<Version, ShardState> = BTreeMap::new();
    for (write, commit) in taps.iter().flat_map(|tap| tap.writes(key)) {
        if let (Some(value), Commit::Done(version)) = (write.value, commit) {
            states.insert(version, ShardState::decode(key, &value).unwrap());
        }
    }
    states.into_values().collect()
}

#[async_trait]
impl Log for Tap {
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
    async fn read(&self, topic: &Topic, wants: &[Want]) -> Result<Vec<Block>> {
        self.shared.reads.lock().unwrap().push((topic.clone(), Env::system().now()));
        let less = |reads: usize| reads.checked_sub(1);
        if self.shared.slow_reads.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            let nothing = |want: &Want| Block {
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
    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<Found>> {
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
    fn news(&self, topic: &Topic) -> Hints {
        self.hints(self.store.log.news(topic))
    }
}

#[async_trait]
impl Ledger for Tap {
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
    fn watch(&self) -> Hints {
        self.hints(self.store.ledger.watch())
    }
}
