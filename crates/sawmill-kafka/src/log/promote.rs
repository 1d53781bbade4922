//! Promotion: one process at a time moves due messages to their shards.
//!
//! A process holds a lock while it promotes. The lock is an entry of the coordination topic; it is held
//! briefly, and taken over if it stays unchanged for long. Copying and removing are two steps: after a crash
//! in between, messages are promoted again.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::{Moment, Timestamp};
use sawmill_engine::storage::{Commit, Promoted, Version};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::brokers::send::OutgoingRecord;
use crate::log::aside::{Aside, Waiting};
use crate::log::open_topic::OpenTopic;
use crate::log::record;
use crate::store::Kafka;

/// A lock unchanged for this long is abandoned. Longer than a promotion can take.
const LOCK_TIMEOUT: Duration = Duration::from_secs(40);
/// How long a call waits for another process's lock.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const FREE: &[u8] = b"free";

/// The lock version last seen for each topic, and since when.
#[derive(Default)]
pub(crate) struct PromotionLocks(Mutex<HashMap<String, (Version, Moment)>>);

impl PromotionLocks {
    fn seen(&self) -> MutexGuard<'_, HashMap<String, (Version, Moment)>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn lock_key(topic: &Topic) -> String {
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
        let Some(lock) = self.acquire_promotion_lock(topic).await? else {
            return Ok(Promoted { moved: 0, next_due: aside.next_due() });
        };
        let moved = self.promote_locked(&open, &aside, now, limit).await;
        self.release_promotion_lock(topic, lock).await;
        let moved = moved?;
        if moved > 0 {
            self.notifier.notify_messages();
        }
        Ok(Promoted { moved, next_due: aside.next_due() })
    }

    async fn promote_locked(
        &self,
        open: &OpenTopic,
        aside: &Aside,
        now: Timestamp,
        limit: usize,
    ) -> Result<usize> {
        // The previous holder may have promoted some.
        aside.catch_up().await?;
        let due = aside.due(now, limit);
        let mut messages = Vec::with_capacity(due.len());
        for waiting in &due {
            messages.push((waiting.shard, aside.message(waiting, &self.scanner).await?));
        }
        self.send_messages(open, messages).await?;
        self.remove_aside(open, &due).await?;
        aside.forget(&due);
        Ok(due.len())
    }

    async fn remove_aside(&self, open: &OpenTopic, gone: &[Waiting]) -> Result<()> {
        let topic = open.listed.aside_topic();
        let names: Vec<String> = gone.iter().map(|waiting| format!("{:032x}", waiting.name)).collect();
        let records = names.iter().map(|name| OutgoingRecord {
            topic: &topic,
            partition: 0,
            key: Some(name.as_bytes()),
            payload: None,
            headers: None,
            time: None,
        });
        let report = self.sender.send(names.len(), records)?;
        if names.is_empty() {
            return Ok(());
        }
        let report = report.await.map_err(|_| unknown_outcome())?;
        report.outcome().map(|_| ())
    }

    /// Acquires the topic's lock; `None` if another process keeps it.
    async fn acquire_promotion_lock(&self, topic: &Topic) -> Result<Option<Version>> {
        let env = &self.cluster.env;
        let began = env.now();
        let mut changes = self.coordination.changes();
        loop {
            let known = self.coordination.known(&lock_key(topic));
            let free = match &known {
                None => true,
                Some((_, value)) if value == FREE => true,
                Some((version, _)) => {
                    let mut seen = self.promotion_locks.seen();
                    let first = seen.get(&topic.uid).filter(|(seen, _)| seen == version).map(|(_, at)| *at);
                    let first = first.unwrap_or_else(|| {
                        seen.insert(topic.uid.clone(), (*version, env.now()));
                        env.now()
                    });
                    env.now().since(first) >= LOCK_TIMEOUT
                }
            };
            if free {
                let expect = known.map(|(version, _)| version);
                let holder = format!("{:016x}", env.rng().next_u64());
                match self.coordination.commit(&lock_key(topic), expect, Some(Bytes::from(holder))).await? {
                    Commit::Done(version) => return Ok(Some(version)),
                    Commit::Conflict => {}
                    Commit::Unknown => return Err(unknown_outcome()),
                }
            }
            let left = LOCK_WAIT.saturating_sub(env.now().since(began));
            if left.is_zero() {
                return Ok(None);
            }
            env.within(left, changes.changed()).await;
        }
    }

    async fn release_promotion_lock(&self, topic: &Topic, lock: Version) {
        let free = Some(Bytes::from_static(FREE));
        match self.coordination.commit(&lock_key(topic), Some(lock), free).await {
            Ok(Commit::Done(_)) => {}
            answer => {
                tracing::debug!(?answer, topic = %topic.name, "a promotion lock was not released; it will be taken over")
            }
        }
    }

    /// Deletes the lock of a deleted topic.
    pub(crate) async fn delete_promotion_lock(&self, topic: &Topic) {
        self.promotion_locks.seen().remove(&topic.uid);
        if let Some((version, _)) = self.coordination.known(&lock_key(topic)) {
            // If this fails, a few bytes stay behind.
            let _ = self.coordination.commit(&lock_key(topic), Some(version), None).await;
        }
    }

    /// Sends messages to their shards, and waits until they are written.
    pub(crate) async fn send_messages(
        &self,
        open: &OpenTopic,
        messages: Vec<(u16, sawmill_engine::model::Message)>,
    ) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let (sender, topic) = (self.sender.clone(), open.listed.kafka.clone());
        let send = move || {
            let records = messages.iter().map(|(shard, message)| OutgoingRecord {
                topic: &topic,
                partition: i32::from(*shard),
                key: message.key.as_deref(),
                payload: Some(&message.payload[..]),
                headers: Some(record::headers(message, &[])),
                time: record::record_time(message),
            });
            sender.send(messages.len(), records)
        };
        // The driver copies its input, and may block until it has room.
        let sent =
            self.cluster.env.blocking(send).await.and_then(|sent| sent.ok()).ok_or_else(unknown_outcome)?;
        let report = sent?.await.map_err(|_| unknown_outcome())?.outcome();
        let report = report.map_err(|error| open.explain(error))?;
        for (partition, end) in report.ends {
            open.extend_known_end(partition, end);
        }
        Ok(())
    }
}

pub(crate) fn unknown_outcome() -> Error {
    Error::new(ErrorKind::Unknown, "it is unknown whether this was written: check before you send it again")
}
