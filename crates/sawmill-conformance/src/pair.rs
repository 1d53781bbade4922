//! Tests of a log of one engine with the ledger of another.

use std::time::Duration;

use async_trait::async_trait;
use sawmill::engine::model::{Topic, TopicName};
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{
    Backlog, Block, Capabilities, Commit, Entry, EntryKey, Finding, FoundMessage, Ledger, Log, Notifications,
    Position, Promoted, ReadRequest, Record, Span, Write,
};
use sawmill::{Context, Message, MessageId, Outcome, Push, Result, Sawmill, Timestamp, TopicSpec};

use crate::waits::timeout_message;

/// Both seams in one, for tests that need a single store.
#[derive(Debug, Clone)]
pub struct Pair<L, G> {
    /// The seam for messages.
    pub log: L,
    /// The seam for entries.
    pub ledger: G,
}

#[async_trait]
impl<L: Log, G: Send + Sync + 'static> Log for Pair<L, G> {
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
        self.log.append(topic, now, records).await
    }
    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        self.log.read(topic, wants).await
    }
    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        self.log.reread(topic, shard, span).await
    }
    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.log.promote(topic, now, limit).await
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
    fn notify(&self) {
        self.log.notify();
    }
    async fn diagnose(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.log.diagnose(patience).await
    }
}

#[async_trait]
impl<L: Send + Sync + 'static, G: Ledger> Ledger for Pair<L, G> {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        self.ledger.get(key).await
    }
    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        self.ledger.list(prefix).await
    }
    async fn commit(&self, write: Write) -> Result<Commit> {
        self.ledger.commit(write).await
    }
    async fn commit_lightly(&self, write: Write) -> Result<Commit> {
        self.ledger.commit_lightly(write).await
    }
    fn entry_notifications(&self) -> Notifications {
        self.ledger.entry_notifications()
    }
    async fn diagnose(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.ledger.diagnose(patience).await
    }
}

/// Two workers, each on its own opening of the store, run messages that are due now, that are due later, and
/// that fail at first.
pub async fn all_is_worked(open: impl AsyncFn() -> Sawmill) {
    const TOPIC: &str = "orders";
    let mill = open().await;
    mill.create_topic(TOPIC).await.expect("a topic");
    let handler = |context: Context| {
        let fails = context.payload().starts_with(b"fails") && context.attempt() == 1;
        async move { if fails { Outcome::retry("not yet") } else { Outcome::Done } }
    };
    let mut workers = Vec::new();
    for _ in 0..2 {
        workers.push(open().await.worker(TOPIC).concurrency(4).start(handler).await.expect("a worker"));
    }
    let now = (0..300).map(|n| Push::new(format!("now {n}")).key(format!("key {}", n % 20)));
    mill.push_many(TOPIC, now).await.expect("a push");
    mill.push_many(TOPIC, (0..20).map(|n| format!("fails {n}"))).await.expect("a push");
    let later = (0..30).map(|n| Push::new(format!("later {n}")).after(Duration::from_millis(500 + n)));
    mill.push_many(TOPIC, later).await.expect("a push");
    let all_done = async {
        loop {
            let status = mill.admin().status(TOPIC, "default").await.expect("a status");
            if status.done >= 350 && status.waiting + status.claimed + status.retrying == 0 {
                return status.done;
            }
            Env::system().sleep(Duration::from_millis(50)).await;
        }
    };
    match Env::system().within(Duration::from_secs(60), all_done).await {
        Some(done) => assert_eq!(done, 350, "some were done twice"),
        None => {
            let done = async || mill.admin().status(TOPIC, "default").await.expect("a status").done;
            let missing = async || 350usize.saturating_sub(done().await as usize);
            panic!("{}", timeout_message("all is worked", &mill, TOPIC, "default", missing).await);
        }
    }
    for worker in workers {
        worker.stop().await;
    }
}
