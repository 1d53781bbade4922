//! The log on MySQL.

pub(crate) mod append;
pub(crate) mod counter;
pub(crate) mod promote;
pub(crate) mod read;
pub(crate) mod row;
pub(crate) mod search;
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

use crate::Mysql;
use crate::log::append::Target;
use crate::log::read::ShardRequest;

impl Mysql {
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
            let part = self
                .work(move || async move {
                    let mut connection = self.connection().await?;
                    let done =
                        trim::trim(&mut connection, self.tables(), topic, shard, (start, upto), before).await;
                    connection.roll_back_on_error(done).await
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

    fn target<'a>(&'a self, topic: &'a Topic) -> Target<'a> {
        Target { tables: self.tables(), topic, packet: self.packet(), token: self.env().rng().next_u64() }
    }
}

#[async_trait]
impl Log for Mysql {
    fn capabilities(&self) -> Capabilities {
        self.server_capabilities()
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        spec.check()?;
        self.work(move || async move {
            let mut connection = self.connection().await?;
            let done = topics::create(&mut connection, self.tables(), spec).await;
            connection.roll_back_on_error(done).await
        })
        .await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.work(
            move || async move { topics::find(&mut self.connection().await?, self.tables(), name).await },
        )
        .await
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        self.work(move || async move { topics::all(&mut self.connection().await?, self.tables()).await })
            .await
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        let deleted = self
            .work(move || async move {
                let mut connection = self.connection().await?;
                let done = topics::delete(&mut connection, self.tables(), topic).await;
                connection.roll_back_on_error(done).await
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
            let mut connection = self.connection().await?;
            let done = append::append(&mut connection, self.target(topic), now, records).await;
            connection.roll_back_on_error(done).await
        })
        .await?;
        self.notifier().notify_messages();
        Ok(())
    }

    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let request = |want: &ReadRequest| {
            Ok(ShardRequest { shard: want.shard, after: want.after.number()?, limit: want.limit })
        };
        let requests = wants.iter().map(request).collect::<Result<Vec<ShardRequest>>>()?;
        let requests = &requests[..];
        self.work(move || async move {
            read::read(&mut self.connection().await?, self.tables(), topic, requests).await
        })
        .await
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let range = span.range()?;
        self.work(move || async move {
            read::reread(&mut self.connection().await?, self.tables(), topic, shard, range).await
        })
        .await
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        // Usually nothing is due, and then nothing needs to be written.
        let next_due = self
            .work(move || async move {
                promote::next_due(&mut self.connection().await?, self.tables(), topic).await
            })
            .await?;
        let mut whole = Promoted { moved: 0, next_due };
        while whole.moved < limit && whole.next_due.is_some_and(|due| due <= now) {
            let left = limit - whole.moved;
            let part = self
                .work(move || async move {
                    let mut connection = self.connection().await?;
                    let done = promote::promote(&mut connection, self.target(topic), now, left).await;
                    connection.roll_back_on_error(done).await
                })
                .await;
            match part {
                Ok(part) => {
                    whole = Promoted { moved: whole.moved + part.moved, next_due: part.next_due };
                    self.notifier().notify_messages();
                    // Another client is promoting too, so leave it to that one.
                    if part.moved == 0 {
                        break;
                    }
                }
                // Moved messages stay moved; the next call continues from there.
                Err(_) if whole.moved > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(whole)
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        self.work(move || async move {
            search::find(&mut self.connection().await?, self.tables(), topic, id).await
        })
        .await
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        self.work(move || async move {
            search::positions(&mut self.connection().await?, self.tables(), topic, since).await
        })
        .await
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        let number = |(shard, position): &(u16, Position)| Ok((*shard, position.number()?));
        let after = after.iter().map(number).collect::<Result<Vec<(u16, u64)>>>()?;
        let after = &after[..];
        self.work(move || async move {
            search::backlog(&mut self.connection().await?, self.tables(), topic, after).await
        })
        .await
    }

    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        // A process that deleted a topic may have ended before everything was removed.
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

    fn message_notifications(&self, _topic: &Topic) -> Notifications {
        self.notifier().message_notifications()
    }

    fn notify(&self) {
        self.notifier().notify_messages();
    }

    async fn diagnose(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.findings(patience).await
    }
}
