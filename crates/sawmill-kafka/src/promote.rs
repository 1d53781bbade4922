//! Promoting: one at a time takes what is due from aside to its shard.
//!
//! Who promotes holds a turn, which is an entry of the coordination topic. It is short; one that is seen unchanged for long is taken
//! over. Copying and removing are two steps: who dies in between leaves messages that are promoted again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use sawmill::clock::{Moment, Timestamp};
use sawmill::ledger::{Commit, Version};
use sawmill::log::Promoted;
use sawmill::topic::Topic;
use sawmill::{Error, ErrorKind, Result};

use crate::aside::{Aside, Waiting};
use crate::open_topic::OpenTopic;
use crate::record;
use crate::send::Parcel;
use crate::store::Kafka;

/// A turn that does not change for so long belongs to nobody: longer than a promotion can take.
const TURN: Duration = Duration::from_secs(40);
/// How long somebody else's turn is waited for.
const WAIT: Duration = Duration::from_secs(2);
const FREE: &[u8] = b"free";

/// Whose turn was seen, and since when.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<String, (Version, Moment)>>);

impl Turns {
    fn seen(&self) -> MutexGuard<'_, HashMap<String, (Version, Moment)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn key(topic: &Topic) -> String {
    format!("p/{}", topic.uid)
}

impl Kafka {
    pub(crate) async fn promote_due(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        self.coordination.catch_up().await?;
        let open = self.open_topic(topic).await?;
        let Some(aside) = self.aside(topic, &open)? else { return Ok(Promoted::default()) };
        aside.catch_up().await?;
        if aside.due(now, limit.min(1)).is_empty() {
            return Ok(Promoted { moved: 0, next_due: aside.next_due() });
        }
        let Some(turn) = self.take_turn(topic).await? else {
            return Ok(Promoted { moved: 0, next_due: aside.next_due() });
        };
        let moved = self.promote_in_turn(&open, &aside, now, limit).await;
        self.end_turn(topic, turn).await;
        let moved = moved?;
        if moved > 0 {
            self.bells.ring_messages();
        }
        Ok(Promoted { moved, next_due: aside.next_due() })
    }

    async fn promote_in_turn(
        &self,
        open: &OpenTopic,
        aside: &Aside,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize> {
        // Who had the turn before may have promoted some.
        aside.catch_up().await?;
        let due = aside.due(now, limit);
        let mut messages = Vec::with_capacity(due.len());
        for waiting in &due {
            messages.push((waiting.shard, aside.message(waiting, &self.lookback).await?));
        }
        self.send_messages(open, messages).await?;
        self.remove_aside(open, &due).await?;
        aside.forget(&due);
        Ok(due.len())
    }

    async fn remove_aside(&self, open: &OpenTopic, gone: &[Waiting]) -> Result<()> {
        let topic = open.listed.aside_topic();
        let names: Vec<String> = gone.iter().map(|waiting| format!("{:032x}", waiting.name)).collect();
        let parcels = names.iter().map(|name| Parcel {
            topic: &topic,
            partition: 0,
            key: Some(name.as_bytes()),
            payload: None,
            headers: None,
            time: None,
        });
        let report = self.outbox.send(names.len(), parcels)?;
        if names.is_empty() {
            return Ok(());
        }
        let report = report.await.map_err(|_| lost())?;
        report.outcome().map(|_| ())
    }

    /// The turn of this topic, if nobody else has it.
    async fn take_turn(&self, topic: &Topic) -> Result<Option<Version>> {
        let env = &self.cluster.env;
        let began = env.now();
        let mut changes = self.coordination.changes();
        loop {
            let known = self.coordination.known(&key(topic));
            let free = match &known {
                None => true,
                Some((_, value)) if value == FREE => true,
                Some((version, _)) => {
                    let mut seen = self.turns.seen();
                    let first = seen.get(&topic.uid).filter(|(seen, _)| seen == version).map(|(_, at)| *at);
                    let first = first.unwrap_or_else(|| {
                        seen.insert(topic.uid.clone(), (*version, env.now()));
                        env.now()
                    });
                    env.now().since(first) >= TURN
                }
            };
            if free {
                let expect = known.map(|(version, _)| version);
                let holder = format!("{:016x}", env.dice().roll());
                match self.coordination.commit(&key(topic), expect, Some(Bytes::from(holder))).await? {
                    Commit::Done(version) => return Ok(Some(version)),
                    Commit::Conflict => {}
                    Commit::Unknown => return Err(lost()),
                }
            }
            let left = WAIT.saturating_sub(env.now().since(began));
            if left.is_zero() {
                return Ok(None);
            }
            env.within(left, changes.changed()).await;
        }
    }

    async fn end_turn(&self, topic: &Topic, turn: Version) {
        let free = Some(Bytes::from_static(FREE));
        match self.coordination.commit(&key(topic), Some(turn), free).await {
            Ok(Commit::Done(_)) => {}
            answer => {
                tracing::debug!(?answer, topic = %topic.name, "a turn did not end as it should; it will be taken over")
            }
        }
    }

    /// Forgets whose turn it is in a topic that is deleted.
    pub(crate) async fn forget_turn(&self, topic: &Topic) {
        self.turns.seen().remove(&topic.uid);
        if let Some((version, _)) = self.coordination.known(&key(topic)) {
            // If it stays, it is a few bytes.
            let _ = self.coordination.commit(&key(topic), Some(version), None).await;
        }
    }

    /// Sends messages to their shards, and waits until they are written.
    pub(crate) async fn send_messages(
        &self,
        open: &OpenTopic,
        messages: Vec<(u16, sawmill::Message)>,
    ) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let (outbox, topic) = (self.outbox.clone(), open.listed.kafka.clone());
        let send = move || {
            let parcels = messages.iter().map(|(shard, message)| Parcel {
                topic: &topic,
                partition: i32::from(*shard),
                key: message.key.as_deref(),
                payload: Some(&message.payload[..]),
                headers: Some(record::headers(message, &[])),
                time: record::record_time(message),
            });
            outbox.send(messages.len(), parcels)
        };
        // The driver copies what it is given, and may wait until it has room.
        let sent = self.cluster.env.blocking(send).await.and_then(|sent| sent.ok()).ok_or_else(lost)?;
        let report = sent?.await.map_err(|_| lost())?.outcome();
        let report = report.map_err(|error| open.explain(error))?;
        for (partition, end) in report.ends {
            open.know(partition, end);
        }
        Ok(())
    }
}

pub(crate) fn lost() -> Error {
    Error::new(ErrorKind::Unknown, "nobody knows whether this was written: look before you send it again")
}
