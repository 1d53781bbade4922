//! The first seam: messages in tables.

use std::time::Duration;

use async_trait::async_trait;
use sawmill::clock::Timestamp;
use sawmill::engine::Capabilities;
use sawmill::log::{Backlog, Block, Found, Hints, Log, Position, Promoted, Record, Span, Want};
use sawmill::topic::{Topic, TopicName, TopicSpec};
use sawmill::{Finding, Message, MessageId, Result};

use crate::append::{self, Shelf};
use crate::read::{self, Wish};
use crate::{Mysql, look, promote, topics, trim};

impl Mysql {
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
            let part = self
                .work(move || async move {
                    let mut line = self.line().await?;
                    let done =
                        trim::trim(&mut line, self.tables(), topic, shard, (start, upto), before).await;
                    line.settle(done).await
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

    fn shelf<'a>(&'a self, topic: &'a Topic) -> Shelf<'a> {
        Shelf { tables: self.tables(), topic, packet: self.packet(), token: self.env().dice().roll() }
    }
}

#[async_trait]
impl Log for Mysql {
    fn capabilities(&self) -> Capabilities {
        self.able()
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        spec.check()?;
        self.work(move || async move {
            let mut line = self.line().await?;
            let done = topics::create(&mut line, self.tables(), spec).await;
            line.settle(done).await
        })
        .await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.work(move || async move { topics::find(&mut self.line().await?, self.tables(), name).await })
            .await
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        self.work(move || async move { topics::all(&mut self.line().await?, self.tables()).await }).await
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        let deleted = self
            .work(move || async move {
                let mut line = self.line().await?;
                let done = topics::delete(&mut line, self.tables(), topic).await;
                line.settle(done).await
            })
            .await?;
        if deleted {
            self.sweep();
        }
        Ok(deleted)
    }

    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        let records = &records[..];
        self.work(move || async move {
            let mut line = self.line().await?;
            let done = append::append(&mut line, self.shelf(topic), now, records).await;
            line.settle(done).await
        })
        .await?;
        self.bells().ring_messages();
        Ok(())
    }

    async fn read(&self, topic: &Topic, wants: &[Want]) -> Result<Vec<Block>> {
        let wish =
            |want: &Want| Ok(Wish { shard: want.shard, after: want.after.number()?, limit: want.limit });
        let wishes = wants.iter().map(wish).collect::<Result<Vec<Wish>>>()?;
        let wishes = &wishes[..];
        self.work(
            move || async move { read::read(&mut self.line().await?, self.tables(), topic, wishes).await },
        )
        .await
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let range = span.range()?;
        self.work(move || async move {
            read::reread(&mut self.line().await?, self.tables(), topic, shard, range).await
        })
        .await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        // Most often nothing is due: then there is nothing to write.
        let next_due = self
            .work(
                move || async move { promote::next_due(&mut self.line().await?, self.tables(), topic).await },
            )
            .await?;
        let mut whole = Promoted { moved: 0, next_due };
        while whole.moved < limit && whole.next_due.is_some_and(|due| due <= now) {
            let left = limit - whole.moved;
            let part = self
                .work(move || async move {
                    let mut line = self.line().await?;
                    let done = promote::promote(&mut line, self.shelf(topic), now, left).await;
                    line.settle(done).await
                })
                .await;
            match part {
                Ok(part) => {
                    whole = Promoted { moved: whole.moved + part.moved, next_due: part.next_due };
                    self.bells().ring_messages();
                    // Somebody else promotes as well: let them.
                    if part.moved == 0 {
                        break;
                    }
                }
                // What was moved stays moved; the next call goes on from there.
                Err(_) if whole.moved > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(whole)
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<Found>> {
        self.work(move || async move { look::find(&mut self.line().await?, self.tables(), topic, id).await })
            .await
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        self.work(move || async move {
            look::positions(&mut self.line().await?, self.tables(), topic, since).await
        })
        .await
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        let number = |(shard, position): &(u16, Position)| Ok((*shard, position.number()?));
        let after = after.iter().map(number).collect::<Result<Vec<(u16, u64)>>>()?;
        let after = &after[..];
        self.work(
            move || async move { look::backlog(&mut self.line().await?, self.tables(), topic, after).await },
        )
        .await
    }

    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        // Who deleted a topic may have ended before everything of it was removed.
        self.sweep();
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
        self.bells().message_hints()
    }

    fn announce(&self) {
        self.bells().ring_messages();
    }

    async fn check_up(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.troubles(patience).await
    }
}
