//! The first seam on SQLite: every call is a read on a reading thread or a write on the writing one.

use std::time::Duration;

use async_trait::async_trait;
use sawmill::clock::{Clock, SystemClock, Timestamp};
use sawmill::engine::Capabilities;
use sawmill::log::{Backlog, Block, Found, Hints, Log, Position, Promoted, Record, Span, Want};
use sawmill::topic::{Topic, TopicName, TopicSpec};
use sawmill::{Finding, Message, MessageId, Result};

use crate::read::Wish;
use crate::row::topic_id;
use crate::{CAPABILITIES, Sqlite, append, read, topics, within};

/// How many messages are promoted in one transaction.
const PROMOTE: usize = 2_000;
/// About how much a write weighs that is small, or bounded by itself.
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

    async fn read(&self, topic: &Topic, wants: &[Want]) -> Result<Vec<Block>> {
        let wish =
            |want: &Want| Ok(Wish { shard: want.shard, after: want.after.number()?, limit: want.limit });
        let wishes = wants.iter().map(wish).collect::<Result<Vec<Wish>>>()?;
        // Most often somebody reads because something was appended a moment ago.
        if wishes.iter().all(|wish| wish.shard < topic.shards)
            && let Ok(id) = topic_id(topic)
            && let Some(blocks) = self.tail().read(id, &wishes, SystemClock.now())
        {
            return Ok(blocks);
        }
        let (namespace, topic) = (self.namespace(), topic.clone());
        self.readers().read(move |connection| read::read(connection, &namespace, &topic, &wishes)).await
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let (namespace, topic, range) = (self.namespace(), topic.clone(), span.range()?);
        self.readers()
            .read(move |connection| read::reread(connection, &namespace, &topic, shard, range))
            .await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        let mut whole = Promoted::default();
        // Most often nothing is due: then there is nothing to write.
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
                // What was moved stays moved; the next call goes on from there.
                Err(_) if whole.moved > 0 => return Ok(whole),
                Err(error) => return Err(error),
            }
        }
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<Found>> {
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

    fn news(&self, _topic: &Topic) -> Hints {
        self.message_hints()
    }

    fn announce(&self) {
        self.announce_messages();
    }

    async fn check_up(&self, _patience: Duration) -> Result<Vec<Finding>> {
        self.troubles().await
    }
}

impl Sqlite {
    /// What [`Log::trim`] does to one shard.
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
                        within::forget(batch, SystemClock.wall())?;
                    }
                    append::trim(batch, &topic, shard, start, upto, before)
                })
                .await;
            match part {
                Ok(part) => {
                    dropped += part.dropped;
                    from = part.next;
                }
                // What was dropped stays dropped; the next call goes on from there.
                Err(_) if dropped > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(dropped)
    }
}
