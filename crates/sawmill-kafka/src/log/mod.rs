//! The log: a shard is a partition, a position is the next offset to read.

pub(crate) mod aside;
pub(crate) mod fetch;
pub(crate) mod murmur;
pub(crate) mod open_topic;
pub(crate) mod promote;
pub(crate) mod record;
pub(crate) mod scan;
pub(crate) mod topics;

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::error::RDKafkaErrorCode as Code;
use sawmill_engine::model::{Message, MessageId, Topic, TopicName, TopicSpec};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{
    Backlog, Block, Capabilities, Finding, FoundMessage, Log, Notifications, Position, Promoted, ReadRequest,
    Record, Span,
};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::CAPABILITIES;
use crate::brokers::send::OutgoingRecord;
use crate::log::aside::more_headers;
use crate::log::murmur::partition_of;
use crate::log::open_topic::OpenTopic;
use crate::log::promote::unknown_outcome;
use crate::store::Kafka;

/// How far a record's timestamp may precede the time in its id, since clocks differ.
const MAX_CLOCK_DIFFERENCE: Duration = Duration::from_secs(600);

#[async_trait]
impl Log for Kafka {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    fn shard_of(&self, key: &[u8], shards: u16) -> u16 {
        partition_of(key, shards)
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        self.make_topic(spec).await
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.find_topic(name).await
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        self.all_topics().await
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        let removed = self.remove_topic(topic).await?;
        if removed {
            self.delete_promotion_lock(topic).await;
        }
        Ok(removed)
    }

    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        let open = self.open_topic(topic).await?;
        for record in &records {
            open.check_shard(record.shard)?;
            open.check_size(&record.message)?;
        }
        let waits = |record: &Record| record.message.due.is_some_and(|due| due > now);
        let (aside, ready): (Vec<Record>, Vec<Record>) = records.into_iter().partition(waits);
        // Delayed messages go first: their topic may have to be created, which can fail without harm.
        if !aside.is_empty() {
            self.keep_aside(topic, &open, aside).await?;
        }
        let some_are_written = !ready.is_empty();
        let ready = ready.into_iter().map(|record| (record.shard, record.message)).collect();
        self.send_messages(&open, ready).await.map_err(|error| match some_are_written {
            true => error,
            false => Error::new(ErrorKind::Unknown, error.to_string()),
        })?;
        self.notifier.notify_messages();
        Ok(())
    }

    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let open = self.open_topic(topic).await?;
        for want in wants {
            open.check_shard(want.shard)?;
        }
        let fetcher = self.fetcher(&open)?;
        if let Some(code) = fetcher.take_error() {
            self.check_error(&open, code).await?;
        }
        let mut blocks = fetcher.read(wants, |shard| open.known_end(shard)).await?;
        for (want, block) in wants.iter().zip(&mut blocks) {
            let known = open.known_end(want.shard);
            if !block.more && block.end.number()? < known {
                // The fetcher reported the end before our own last push. Exception: what was pushed may be
                // trimmed by now.
                block.more = !block.messages.is_empty() || self.ends(&open, want.shard).await?.0 < known;
            }
        }
        Ok(blocks)
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let (from, upto, count) = span.range()?;
        let open = self.open_topic(topic).await?;
        open.check_shard(shard)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let at_hand = self.open_fetcher(&open).and_then(|fetcher| fetcher.past(shard, from, upto, count));
        if let Some(messages) = at_hand {
            return Ok(messages);
        }
        let (low, high) = self.ends(&open, shard).await?;
        let range = (from.max(low), upto.min(high));
        let found = self.scanner.visit(&open.listed.kafka, shard, range, Vec::new(), |found, message| {
            found.extend(record::read(message).map(|(_, message)| message));
            ControlFlow::Continue(())
        });
        let found = found.await.map_err(|error| open.explain(error))?;
        if found.len() == count { Ok(found) } else { Err(topic.gone(count, found.len())) }
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.promote_due(topic, now, limit).await
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        self.coordination.catch_up().await?;
        let open = self.open_topic(topic).await?;
        if let Some(aside) = self.aside(topic, &open)? {
            aside.catch_up().await?;
            if let Some(waiting) = aside.find(id) {
                let message = aside.message(&waiting, &self.scanner).await?;
                return Ok(Some(FoundMessage { shard: waiting.shard, message, before: None }));
            }
        }
        let ends = self.all_ends(&open).await?;
        // It was most likely written at the time in its id. If not found there, all is searched.
        let near = self
            .cluster
            .offsets
            .since(&open.listed.kafka, topic.shards, id.created() - MAX_CLOCK_DIFFERENCE)
            .await;
        let near = near.map_err(|error| open.explain(error))?;
        for later in [true, false] {
            for (shard, (near, (low, high))) in (0..).zip(near.iter().zip(&ends)) {
                let middle = near.unwrap_or(*high).clamp(*low, *high);
                let range = if later { (middle, *high) } else { (*low, middle) };
                let found =
                    self.scanner.visit(&open.listed.kafka, shard, range, None, move |found, message| {
                        match record::read(message).filter(|(_, message)| message.id == id) {
                            Some(read) => {
                                *found = Some(read);
                                ControlFlow::Break(())
                            }
                            None => ControlFlow::Continue(()),
                        }
                    });
                if let Some((offset, message)) = found.await.map_err(|error| open.explain(error))? {
                    return Ok(Some(FoundMessage {
                        shard,
                        message,
                        before: Some(Position::from_number(offset)),
                    }));
                }
            }
        }
        Ok(None)
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        let open = self.open_topic(topic).await?;
        let ends = self.all_ends(&open).await?;
        if since == Timestamp::LATEST {
            return Ok(ends.into_iter().map(|(_, high)| Position::from_number(high)).collect());
        }
        let found = self.cluster.offsets.since(&open.listed.kafka, topic.shards, since).await;
        let found = found.map_err(|error| open.explain(error))?;
        let position =
            |(found, (_, high)): (Option<u64>, (u64, u64))| Position::from_number(found.unwrap_or(high));
        Ok(found.into_iter().zip(ends).map(position).collect())
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        self.coordination.catch_up().await?;
        let open = self.open_topic(topic).await?;
        let mut backlog = Backlog::default();
        if let Some(aside) = self.aside(topic, &open)? {
            aside.catch_up().await?;
            backlog.aside = aside.count();
        }
        let ends = self.all_ends(&open).await?;
        let mut firsts: HashMap<u16, u64> = HashMap::new();
        for (shard, position) in after {
            open.check_shard(*shard)?;
            let (low, high) = ends.get(usize::from(*shard)).copied().unwrap_or_default();
            let from = position.number()?.max(low);
            backlog.ready.push(high.saturating_sub(from));
            if from < high {
                firsts.entry(*shard).and_modify(|first| *first = from.min(*first)).or_insert(from);
            }
        }
        for (shard, from) in firsts {
            let first = self.first(&open, shard, from, ends[usize::from(shard)].1).await?;
            backlog.oldest = [backlog.oldest, first].into_iter().flatten().min();
        }
        Ok(backlog)
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
        self.notifier.message_notifications()
    }

    async fn diagnose(&self, _patience: Duration) -> Result<Vec<Finding>> {
        self.durability_findings().await
    }
}

impl Kafka {
    /// Trims one shard; see [`Log::trim`].
    async fn trim_shard(
        &self,
        topic: &Topic,
        shard: u16,
        upto: &[Position],
        before: Timestamp,
    ) -> Result<u64> {
        let upto = Position::least_number(upto)?;
        let open = self.open_topic(topic).await?;
        open.check_shard(shard)?;
        let (low, high) = self.ends(&open, shard).await?;
        if upto <= low || before == Timestamp::default() {
            return Ok(0);
        }
        // Only a prefix can be dropped: it ends before the first record younger than `before`.
        let young = self.cluster.offsets.since(&open.listed.kafka, topic.shards, before).await;
        let young = young.map_err(|error| open.explain(error))?;
        let young = young.get(usize::from(shard)).copied().flatten().unwrap_or(high);
        let cut = upto.min(young).min(high);
        if cut <= low {
            return Ok(0);
        }
        self.cluster
            .drop_before(&open.listed.kafka, shard, cut)
            .await
            .map_err(|error| open.explain(error))?;
        if let Some(fetcher) = self.open_fetcher(&open) {
            fetcher.trimmed(shard, cut);
        }
        Ok(cut - low)
    }

    async fn ends(&self, open: &OpenTopic, shard: u16) -> Result<(u64, u64)> {
        let ends = self.cluster.offsets.of(&open.listed.kafka, shard).await;
        ends.map_err(|error| open.explain(error))
    }

    async fn all_ends(&self, open: &OpenTopic) -> Result<Vec<(u64, u64)>> {
        let ends = self.cluster.offsets.all(&open.listed.kafka, open.topic.shards).await;
        ends.map_err(|error| open.explain(error))
    }

    /// Returns when the first message from an offset on was created.
    async fn first(&self, open: &OpenTopic, shard: u16, from: u64, high: u64) -> Result<Option<Timestamp>> {
        let at_hand = self.open_fetcher(open).and_then(|fetcher| fetcher.first(shard, from));
        if let Some(created) = at_hand {
            return Ok(Some(created));
        }
        let first = self.scanner.visit(&open.listed.kafka, shard, (from, high), None, |found, message| {
            *found = record::read(message).map(|(_, message)| message.created);
            ControlFlow::Break(())
        });
        first.await.map_err(|error| open.explain(error))
    }

    /// Keeps messages aside until they are due.
    async fn keep_aside(&self, topic: &Topic, open: &OpenTopic, records: Vec<Record>) -> Result<()> {
        let listed = self.make_aside(topic).await?;
        let name = || {
            let rng = self.cluster.env.rng();
            format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64())
        };
        let named: Vec<(String, [u8; 2], Record)> =
            records.into_iter().map(|record| (name(), record.shard.to_be_bytes(), record)).collect();
        let (sender, aside) = (self.sender.clone(), listed.aside_topic());
        let send = move || {
            let records = named.iter().map(|(name, shard, record)| OutgoingRecord {
                topic: &aside,
                partition: 0,
                key: Some(name.as_bytes()),
                payload: Some(&record.message.payload[..]),
                headers: Some(record::headers(
                    &record.message,
                    &more_headers(shard, record.message.key.as_ref()),
                )),
                time: record::record_time(&record.message),
            });
            sender.send(named.len(), records)
        };
        let sent =
            self.cluster.env.blocking(send).await.and_then(|sent| sent.ok()).ok_or_else(unknown_outcome)?;
        sent?.await.map_err(|_| unknown_outcome())?.outcome().map_err(|error| open.explain(error))?;
        Ok(())
    }

    /// Checks whether the driver's error with a topic persists.
    async fn check_error(&self, open: &OpenTopic, code: Code) -> Result<()> {
        match self.cluster.partitions(&open.listed.kafka).await? {
            Some(_) => {
                tracing::debug!(?code, topic = %open.topic.name, "the trouble has passed");
                Ok(())
            }
            None => Err(open.topic.missing()),
        }
    }

    /// Returns the open topics, by uid.
    pub(crate) fn opened(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<OpenTopic>>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
