//! The first seam on PostgreSQL.

use std::time::Duration;

use async_trait::async_trait;
use sawmill::clock::Timestamp;
use sawmill::engine::Capabilities;
use sawmill::log::{Backlog, Block, Found, Hints, Log, Position, Promoted, Record, Span, Want};
use sawmill::topic::{Topic, TopicName, TopicSpec};
use sawmill::{Finding, Message, MessageId, Result};

use crate::CAPABILITIES;
use crate::store::Postgres;

#[async_trait]
impl Log for Postgres {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        spec.check()?;
        match self.find_topics(Some(&spec.name)).await?.pop() {
            Some(topic) if topic.shards == spec.shards => Ok(topic),
            Some(topic) => Err(spec.exists_with(topic.shards)),
            None => self.make_topic(spec).await,
        }
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        Ok(self.find_topics(Some(name)).await?.pop())
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        self.find_topics(None).await
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        self.remove_topic(topic).await
    }

    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        self.append_records(topic, now, &records).await
    }

    async fn read(&self, topic: &Topic, wants: &[Want]) -> Result<Vec<Block>> {
        self.read_blocks(topic, wants).await
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        self.reread_block(topic, shard, span).await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.promote_due(topic, now, limit).await
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<Found>> {
        self.find_message(topic, id).await
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        self.find_positions(topic, since).await
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        self.count_backlog(topic, after).await
    }

    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        self.trim_topic(topic, upto, before).await
    }

    fn news(&self, topic: &Topic) -> Hints {
        self.news_desk().message_hints(&topic.uid)
    }

    fn announce(&self) {
        self.news_desk().messages_changed(None);
    }

    async fn check_up(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.troubles(patience).await
    }
}
