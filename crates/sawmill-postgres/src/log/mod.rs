//! The log on PostgreSQL.

pub(crate) mod append;
pub(crate) mod pack;
pub(crate) mod place;
pub(crate) mod read;
pub(crate) mod row;
pub(crate) mod search;
pub(crate) mod snapshot;
pub(crate) mod topics;
pub(crate) mod trim;

use std::time::Duration;

use async_trait::async_trait;
use sawmill_engine::Result;
use sawmill_engine::model::{Message, MessageId, Topic, TopicName, TopicSpec};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{
    Backlog, Block, Capabilities, Finding, FoundMessage, Log, Notifications, Position, Promoted, ReadRequest,
    Record, Span,
};

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

    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        self.read_blocks(topic, wants).await
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        self.reread_block(topic, shard, span).await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.promote_due(topic, now, limit).await
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
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

    fn message_notifications(&self, topic: &Topic) -> Notifications {
        self.notifier().message_notifications(&topic.uid)
    }

    fn notify(&self) {
        self.notifier().messages_changed(None);
    }

    async fn diagnose(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.findings(patience).await
    }
}
