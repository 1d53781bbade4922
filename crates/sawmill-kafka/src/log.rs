//! The log: a shard is a partition, a position is the offset to go on from.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::error::RDKafkaErrorCode as Code;
use sawmill::clock::Timestamp;
use sawmill::engine::Capabilities;
use sawmill::log::{Backlog, Block, Found, Hints, Log, Position, Promoted, Record, Span, Want};
use sawmill::message::{Message, MessageId};
use sawmill::topic::{Topic, TopicName, TopicSpec};
use sawmill::{Error, ErrorKind, Finding, Result};

use crate::CAPABILITIES;
use crate::aside::more_headers;
use crate::murmur::partition_of;
use crate::open_topic::OpenTopic;
use crate::promote::lost;
use crate::record;
use crate::send::Parcel;
use crate::store::Kafka;

/// How much earlier than its id says a message may have been written, by another clock.
const CLOCKS_DIFFER: Duration = Duration::from_secs(600);

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
            self.forget_turn(topic).await;
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
        // What is kept aside goes first: its topic may have to be made, which can fail without harm.
        if !aside.is_empty() {
            self.keep_aside(topic, &open, aside).await?;
        }
        let some_are_written = !ready.is_empty();
        let ready = ready.into_iter().map(|record| (record.shard, record.message)).collect();
        self.send_messages(&open, ready).await.map_err(|error| match some_are_written {
            true => error,
            false => Error::new(ErrorKind::Unknown, error.to_string()),
        })?;
        self.bells.ring_messages();
        Ok(())
    }

    async fn read(&self, topic: &Topic, wants: &[Want]) -> Result<Vec<Block>> {
        let open = self.open_topic(topic).await?;
        for want in wants {
            open.check_shard(want.shard)?;
        }
        let fetcher = self.fetcher(&open)?;
        if let Some(code) = fetcher.trouble() {
            self.look_into(&open, code).await?;
        }
        let mut blocks = fetcher.read(wants, |shard| open.known_end(shard)).await?;
        for (want, block) in wants.iter().zip(&mut blocks) {
            let known = open.known_end(want.shard);
            if !block.more && block.end.number()? < known {
                // That there is no more was said before our own last push; unless what was pushed is trimmed by now.
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
        let found = self.lookback.visit(&open.listed.kafka, shard, range, Vec::new(), |found, message| {
            found.extend(record::read(message).map(|(_, message)| message));
            ControlFlow::Continue(())
        });
        let found = found.await.map_err(|error| open.explain(error))?;
        if found.len() == count { Ok(found) } else { Err(topic.gone(count, found.len())) }
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.promote_due(topic, now, limit).await
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<Found>> {
        self.coordination.catch_up().await?;
        let open = self.open_topic(topic).await?;
        if let Some(aside) = self.aside(topic, &open)? {
            aside.catch_up().await?;
            if let Some(waiting) = aside.find(id) {
                let message = aside.message(&waiting, &self.lookback).await?;
                return Ok(Some(Found { shard: waiting.shard, message, before: None }));
            }
        }
        let ends = self.all_ends(&open).await?;
        // Most likely it was written at the time that its id begins with. If not, all is searched.
        let near =
            self.cluster.ends.since(&open.listed.kafka, topic.shards, id.created() - CLOCKS_DIFFER).await;
        let near = near.map_err(|error| open.explain(error))?;
        for later in [true, false] {
            for (shard, (near, (low, high))) in (0..).zip(near.iter().zip(&ends)) {
                let middle = near.unwrap_or(*high).clamp(*low, *high);
                let range = if later { (middle, *high) } else { (*low, middle) };
                let found =
                    self.lookback.visit(&open.listed.kafka, shard, range, None, move |found, message| {
                        match record::read(message).filter(|(_, message)| message.id == id) {
                            Some(read) => {
                                *found = Some(read);
                                ControlFlow::Break(())
                            }
                            None => ControlFlow::Continue(()),
                        }
                    });
                if let Some((offset, message)) = found.await.map_err(|error| open.explain(error))? {
                    return Ok(Some(Found { shard, message, before: Some(Position::from_number(offset)) }));
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
        let found = self.cluster.ends.since(&open.listed.kafka, topic.shards, since).await;
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

    fn news(&self, _topic: &Topic) -> Hints {
        self.bells.message_hints()
    }

    async fn check_up(&self, _patience: Duration) -> Result<Vec<Finding>> {
        self.troubles().await
    }
}

impl Kafka {
    /// What [`Log::trim`] does to one shard.
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
        // Only a beginning can be dropped: it ends before the first that is young.
        let young = self.cluster.ends.since(&open.listed.kafka, topic.shards, before).await;
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
        let ends = self.cluster.ends.of(&open.listed.kafka, shard).await;
        ends.map_err(|error| open.explain(error))
    }

    async fn all_ends(&self, open: &OpenTopic) -> Result<Vec<(u64, u64)>> {
        let ends = self.cluster.ends.all(&open.listed.kafka, open.topic.shards).await;
        ends.map_err(|error| open.explain(error))
    }

    /// When the first message from an offset on was created.
    async fn first(&self, open: &OpenTopic, shard: u16, from: u64, high: u64) -> Result<Option<Timestamp>> {
        let at_hand = self.open_fetcher(open).and_then(|fetcher| fetcher.first(shard, from));
        if let Some(created) = at_hand {
            return Ok(Some(created));
        }
        let first = self.lookback.visit(&open.listed.kafka, shard, (from, high), None, |found, message| {
            *found = record::read(message).map(|(_, message)| message.created);
            ControlFlow::Break(())
        });
        first.await.map_err(|error| open.explain(error))
    }

    /// Keeps messages aside until they are due.
    async fn keep_aside(&self, topic: &Topic, open: &OpenTopic, records: Vec<Record>) -> Result<()> {
        let listed = self.make_aside(topic).await?;
        let name = || {
            let dice = self.cluster.env.dice();
            format!("{:016x}{:016x}", dice.roll(), dice.roll())
        };
        let named: Vec<(String, [u8; 2], Record)> =
            records.into_iter().map(|record| (name(), record.shard.to_be_bytes(), record)).collect();
        let (outbox, aside) = (self.outbox.clone(), listed.aside_topic());
        let send = move || {
            let parcels = named.iter().map(|(name, shard, record)| Parcel {
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
            outbox.send(named.len(), parcels)
        };
        let sent = self.cluster.env.blocking(send).await.and_then(|sent| sent.ok()).ok_or_else(lost)?;
        sent?.await.map_err(|_| lost())?.outcome().map_err(|error| open.explain(error))?;
        Ok(())
    }

    /// Whether the driver's trouble with a topic is still there.
    async fn look_into(&self, open: &OpenTopic, code: Code) -> Result<()> {
        match self.cluster.partitions(&open.listed.kafka).await? {
            Some(_) => {
                tracing::debug!(?code, topic = %open.topic.name, "the trouble has passed");
                Ok(())
            }
            None => Err(open.topic.missing()),
        }
    }

    /// The topics that are in use, by their uid.
    pub(crate) fn opened(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<OpenTopic>>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
