//! Implements the log in terms of rows and segments.

pub(crate) mod append;
pub(crate) mod ids;
pub(crate) mod pack;
pub(crate) mod promote;
pub(crate) mod queries;
pub(crate) mod read;
pub(crate) mod row;
pub(crate) mod scan;
pub(crate) mod seal;
pub(crate) mod segment;
pub(crate) mod stamp;
pub(crate) mod tail;
pub(crate) mod topics;

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use sawmill_engine::Result;
use sawmill_engine::model::{Message, MessageId, Topic, TopicName, TopicSpec};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{
    Backlog, Block, Capabilities, Finding, FoundMessage, Log, Notifications, Position, Promoted, ReadRequest,
    Record, Span,
};

use crate::CAPABILITIES;
use crate::log::segment::{Place, PlaceRange};
use crate::store::Cassandra;

#[async_trait]
impl Log for Cassandra {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        self.make_topic(spec).await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.get_topic(name).await
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        self.list_topics().await
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        self.drop_topic(topic).await
    }

    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        self.add(topic, now, records).await
    }

    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        self.read_with_check(topic, async |shape| {
            if let Some(want) = wants.iter().find(|want| want.shard >= shape.shards) {
                return Err(topic.no_shard(want.shard));
            }
            try_join_all(wants.iter().map(|want| self.read_one(shape, want))).await
        })
        .await
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let shape = self.check(topic).await?;
        if shard >= shape.shards {
            return Err(topic.no_shard(shard));
        }
        self.read_again(topic, &shape, shard, PlaceRange::of(span)?).await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.change_with_check(topic, async |shape| self.promote_due(shape, now, limit).await).await
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        let shape = self.check(topic).await?;
        self.search(&shape, id).await
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        let shape = self.check(topic).await?;
        self.places_since(&shape, since).await
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        let shape = self.check(topic).await?;
        if let Some((shard, _)) = after.iter().find(|(shard, _)| *shard >= shape.shards) {
            return Err(topic.no_shard(*shard));
        }
        self.count(&shape, after).await
    }

    /// Deletes nothing: rows expire by themselves, and deletions would leave tombstones that every read has
    /// to skip.
    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], _before: Timestamp) -> Result<Vec<u64>> {
        let shape = self.check(topic).await?;
        if upto.len() > usize::from(shape.shards) {
            return Err(topic.no_shard(shape.shards));
        }
        for position in upto.iter().flatten() {
            Place::of(position)?;
        }
        Ok(vec![0; upto.len()])
    }

    fn message_notifications(&self, _topic: &Topic) -> Notifications {
        self.notifier().message_notifications()
    }

    fn notify(&self) {
        self.notifier().notify_messages();
    }

    async fn diagnose(&self, _patience: Duration) -> Result<Vec<Finding>> {
        self.ring_findings().await
    }
}
