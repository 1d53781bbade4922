//! Planted bugs that show in what the core asks of its log. So the core need not know of them: this log makes the mistake.

use async_trait::async_trait;
use sawmill::engine::fault;
use sawmill::engine::model::{Lane, Topic, TopicName, shard_of};
use sawmill::engine::storage::{
    Backlog, Block, Capabilities, FoundMessage, Log, Notifications, Position, Promoted, ReadRequest, Record,
    Span,
};
use sawmill::{Message, MessageId, Result, Timestamp, TopicSpec};

use crate::log::SimLog;

/// A log that makes the mistake of the bug that is planted, if it is one of these.
pub(crate) struct FaultyLog(pub(crate) SimLog);

/// The due time that a copy on a retry lane gets.
fn retry_due(due: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    let wait = due?.since(now);
    match () {
        () if fault!(RetryWithoutDue) => None,
        () if fault!(RetriedAtOnce) => Some(now),
        () if fault!(RetriedLate) => Some(now + wait * 4),
        () => due,
    }
}

fn is_lane(topic: &Topic, lane: Lane) -> bool {
    topic.name.as_lane().is_some_and(|(_, other)| other == lane)
}

#[async_trait]
impl Log for FaultyLog {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        self.0.create_topic(spec).await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.0.topic(name).await
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        self.0.topics().await
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        if fault!(LanesOutliveTheirTopic) && topic.name.as_lane().is_some() {
            return Ok(true);
        }
        self.0.delete_topic(topic).await
    }

    async fn append(&self, topic: &Topic, now: Timestamp, mut records: Vec<Record>) -> Result<()> {
        for record in &mut records {
            if is_lane(topic, Lane::Retry) {
                record.message.due = retry_due(record.message.due, now);
            }
            if fault!(ShardIgnoresKey) && record.repeatable {
                record.shard = shard_of(&record.message.id.as_u128().to_be_bytes(), topic.shards);
            }
        }
        self.0.append(topic, now, records).await
    }

    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let mut blocks = self.0.read(topic, wants).await?;
        if fault!(CursorTooFar) && !is_lane(topic, Lane::Dead) {
            for block in blocks.iter_mut().filter(|block| block.messages.len() > 1) {
                block.messages.pop();
            }
        }
        Ok(blocks)
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        self.0.reread(topic, shard, span).await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.0.promote(topic, now, limit).await
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        self.0.find(topic, id).await
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        let since = if fault!(SeekTooFar) { Timestamp::LATEST } else { since };
        self.0.positions(topic, since).await
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        self.0.backlog(topic, after).await
    }

    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        if fault!(TrimsNothing) {
            return Ok(vec![0; upto.len()]);
        }
        let before = if fault!(TrimIgnoresRetention) { before + topic.retention } else { before };
        self.0.trim(topic, upto, before).await
    }

    fn message_notifications(&self, topic: &Topic) -> Notifications {
        self.0.message_notifications(topic)
    }

    fn notify(&self) {
        self.0.notify();
    }
}
