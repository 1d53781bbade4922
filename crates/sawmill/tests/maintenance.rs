//! Tests of maintenance: its tasks do not wait for one another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use sawmill::testing::TestClock;
use sawmill::{Context, Message, MessageId, Push, Result, Sawmill, Timestamp, TopicSpec};
use sawmill_engine::model::{Topic, TopicName};
use sawmill_engine::runtime::{Env, Spawn, SystemRng};
use sawmill_engine::storage::{
    Backlog, Block, Capabilities, FoundMessage, Log, Memory, Notifications, Position, Promoted, ReadRequest,
    Record, Span,
};

/// A log whose trim never ends.
struct EndlessTrim {
    memory: Memory,
    trims: AtomicUsize,
}

#[async_trait]
impl Log for EndlessTrim {
    fn capabilities(&self) -> Capabilities {
        self.memory.capabilities()
    }
    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        self.memory.create_topic(spec).await
    }
    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.memory.topic(name).await
    }
    async fn topics(&self) -> Result<Vec<Topic>> {
        self.memory.topics().await
    }
    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        self.memory.delete_topic(topic).await
    }
    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        self.memory.append(topic, now, records).await
    }
    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        self.memory.read(topic, wants).await
    }
    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        self.memory.reread(topic, shard, span).await
    }
    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.memory.promote(topic, now, limit).await
    }
    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        self.memory.find(topic, id).await
    }
    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        self.memory.positions(topic, since).await
    }
    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        self.memory.backlog(topic, after).await
    }
    async fn trim(&self, _: &Topic, _: &[Vec<Position>], _: Timestamp) -> Result<Vec<u64>> {
        self.trims.fetch_add(1, Ordering::SeqCst);
        std::future::pending().await
    }
    fn message_notifications(&self, topic: &Topic) -> Notifications {
        self.memory.message_notifications(topic)
    }
}

struct OnTokio;

impl Spawn for OnTokio {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        Env::system().spawn(task);
    }
}

/// Lets test time pass, half a second per millisecond, until a condition holds.
async fn pass_until(clock: &TestClock, what: &str, holds: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if holds() {
            return;
        }
        clock.pass(Duration::from_millis(500));
        Env::system().sleep(Duration::from_millis(1)).await;
    }
    panic!("test timed out: {what}");
}

#[tokio::test]
async fn what_is_due_does_not_wait_for_a_trim_that_takes_long() {
    let (memory, clock) = (Memory::new(), TestClock::new());
    let log = Arc::new(EndlessTrim { memory: memory.clone(), trims: AtomicUsize::new(0) });
    let env = Env::new(clock.clone(), SystemRng, OnTokio);
    let mill = Sawmill::from_parts(log.clone(), Arc::new(memory), env);
    mill.create_topic("t").await.unwrap();
    mill.push("t", "now").await.unwrap();
    let worker = mill.worker("t").start(|_: Context| async {}).await.unwrap();
    pass_until(&clock, "the first message", || worker.counts().done == 1).await;
    pass_until(&clock, "a trim", || log.trims.load(Ordering::SeqCst) > 0).await;
    mill.push("t", Push::new("later").after(Duration::from_secs(5))).await.unwrap();
    pass_until(&clock, "the message that was due later", || worker.counts().done == 2).await;
    worker.stop().await;
}
