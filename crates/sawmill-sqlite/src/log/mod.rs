//! The log on SQLite. Every call is a read on a reader thread or a write on the writer thread.

pub(crate) mod append;
pub(crate) mod read;
pub(crate) mod row;
pub(crate) mod tail;
pub(crate) mod topics;

use std::time::Duration;

use async_trait::async_trait;
use sawmill_engine::Result;
use sawmill_engine::model::{Message, MessageId, Topic, TopicName, TopicSpec};
use sawmill_engine::runtime::{Clock, SystemClock, Timestamp};
use sawmill_engine::storage::{
    Backlog, Block, Capabilities, Finding, FoundMessage, Log, Notifications, Position, Promoted, ReadRequest,
    Record, Span,
};

use crate::log::read::ShardRequest;
use crate::log::row::topic_id;
use crate::{CAPABILITIES, Sqlite, transaction};

/// Messages promoted in one transaction.
const PROMOTE: usize = 2_000;
/// Estimated bytes of a small write, and of one whose size is bounded otherwise.
const LIGHT: usize = 1 << 10;
const MEDIUM: usize = 1 << 20;

#[async_trait]
impl Log for Sqlite {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        spec.check()?;
        let spec = spec.clone();
        self.writer().write(LIGHT, move |batch| topics::create(batch, &spec)).await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        let (namespace, name) = (self.namespace(), name.clone());
        self.readers().read_lightly(move |connection| topics::find(connection, &namespace, &name)).await
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        let namespace = self.namespace();
        self.readers().read(move |connection| topics::all(connection, &namespace)).await
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        let topic = topic.clone();
        self.writer().write(LIGHT, move |batch| topics::delete(batch, &topic)).await
    }

    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        let (topic, weight) = (topic.clone(), append::weight(&records));
        self.writer().write(weight, move |batch| append::append(batch, &topic, now, &records)).await
    }

    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let request = |want: &ReadRequest| {
            Ok(ShardRequest { shard: want.shard, after: want.after.number()?, limit: want.limit })
        };
        let requests = wants.iter().map(request).collect::<Result<Vec<ShardRequest>>>()?;
        // Most reads follow an append of a moment ago.
        if requests.iter().all(|request| request.shard < topic.shards)
            && let Ok(id) = topic_id(topic)
            && let Some(blocks) = self.tail().read(id, &requests, SystemClock.now())
        {
            return Ok(blocks);
        }
        let (namespace, topic) = (self.namespace(), topic.clone());
        self.readers().read(move |connection| read::read(connection, &namespace, &topic, &requests)).await
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let (namespace, topic, range) = (self.namespace(), topic.clone(), span.range()?);
        self.readers()
            .read(move |connection| read::reread(connection, &namespace, &topic, shard, range))
            .await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        let mut whole = Promoted::default();
        // Usually nothing is due and nothing needs to be written.
        let (namespace, asked) = (self.namespace(), topic.clone());
        let next = self
            .readers()
            .read_lightly(move |connection| read::next_due(connection, &namespace, &asked))
            .await?;
        if next.is_none_or(|due| due > now) {
            return Ok(Promoted { moved: 0, next_due: next });
        }
        loop {
            let (topic, step) = (topic.clone(), PROMOTE.min(limit - whole.moved));
            let part =
                self.writer().write(MEDIUM, move |batch| append::promote(batch, &topic, now, step)).await;
            match part {
                Ok(part) => {
                    whole = Promoted { moved: whole.moved + part.moved, next_due: part.next_due };
                    if part.moved < PROMOTE || whole.moved >= limit {
                        return Ok(whole);
                    }
                }
                // Moved messages stay moved; the next call continues from there.
                Err(_) if whole.moved > 0 => return Ok(whole),
                Err(error) => return Err(error),
            }
        }
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        let (namespace, topic) = (self.namespace(), topic.clone());
        self.readers().read(move |connection| read::find(connection, &namespace, &topic, id)).await
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        let (namespace, topic) = (self.namespace(), topic.clone());
        self.readers().read(move |connection| read::positions(connection, &namespace, &topic, since)).await
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        let number = |(shard, position): &(u16, Position)| Ok((*shard, position.number()?));
        let after = after.iter().map(number).collect::<Result<Vec<(u16, u64)>>>()?;
        let (namespace, topic) = (self.namespace(), topic.clone());
        self.readers().read(move |connection| read::backlog(connection, &namespace, &topic, &after)).await
    }

    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        let mut dropped = Vec::with_capacity(upto.len());
        for (shard, upto) in (0..).zip(upto) {
            dropped.push(match upto.is_empty() {
                true => 0,
                false => self.trim_shard(topic, shard, upto, before).await?,
            });
        }
        Ok(dropped)
    }

    fn message_notifications(&self, _topic: &Topic) -> Notifications {
        self.message_notifications()
    }

    fn notify(&self) {
        self.announce_messages();
    }

    async fn diagnose(&self, _patience: Duration) -> Result<Vec<Finding>> {
        self.find_problems().await
    }
}

impl Sqlite {
    /// Trims one shard for [`Log::trim`].
    async fn trim_shard(
        &self,
        topic: &Topic,
        shard: u16,
        upto: &[Position],
        before: Timestamp,
    ) -> Result<u64> {
        let upto = Position::least_number(upto)?;
        let (mut dropped, mut from) = (0, Some(0));
        while let Some(start) = from {
            let topic = topic.clone();
            let part = self
                .writer()
                .write(MEDIUM, move |batch| {
                    if start == 0 {
                        transaction::forget(batch, SystemClock.wall())?;
                    }
                    append::trim(batch, &topic, shard, start, upto, before)
                })
                .await;
            match part {
                Ok(part) => {
                    dropped += part.dropped;
                    from = part.next;
                }
                // Dropped messages stay dropped; the next call continues from there.
                Err(_) if dropped > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(dropped)
    }
}
