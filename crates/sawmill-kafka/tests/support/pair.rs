//! A log on Kafka and a ledger in PostgreSQL, as one store with both seams.

use async_trait::async_trait;
use sawmill::clock::Timestamp;
use sawmill::engine::Capabilities;
use sawmill::ledger::{Commit, Entry, EntryKey, Ledger, Write};
use sawmill::log::{Backlog, Block, Found, Hints, Log, Position, Promoted, Record, Span, Want};
use sawmill::topic::{Topic, TopicName, TopicSpec};
use sawmill::{Message, MessageId, Result};
use sawmill_kafka::Kafka;
use sawmill_postgres::Postgres;

#[derive(Clone)]
pub(crate) struct Pair {
    pub(crate) log: Kafka,
    pub(crate) ledger: Postgres,
}

#[async_trait]
impl Log for Pair {
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
    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        self.log.append(topic, now, records).await
    }
    async fn read(&self, topic: &Topic, wants: &[Want]) -> Result<Vec<Block>> {
        self.log.read(topic, wants).await
    }
    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        self.log.reread(topic, shard, span).await
    }
    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.log.promote(topic, now, limit).await
    }
    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<Found>> {
        self.log.find(topic, id).await
    }
    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        self.log.positions(topic, since).await
    }
    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        self.log.backlog(topic, after).await
    }
    async fn trim(&self, topic: &Topic, shard: u16, upto: &[Position], before: Timestamp) -> Result<u64> {
        self.log.trim(topic, shard, upto, before).await
    }
    fn news(&self, topic: &Topic) -> Hints {
        self.log.news(topic)
    }
    fn announce(&self) {
        self.log.announce();
    }
}

#[async_trait]
impl Ledger for Pair {
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
    fn watch(&self) -> Hints {
        self.ledger.watch()
    }
}
