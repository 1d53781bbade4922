//! The open store: the log, the ledger, and what everything above them shares.
//!
//! [`Store`] finds topics and reads the ledger's entries of a group. Each of the other files covers one kind
//! of entry: what the ledger keeps, and how it is changed.

pub(crate) mod cancel;
mod cell;
pub(crate) mod deletion;
#[cfg(test)]
pub(crate) mod faulty_ledger;
mod format;
mod liveness;
pub(crate) mod pause;
pub(crate) mod push;
pub(crate) mod schedules;
pub(crate) mod trim;
pub(crate) mod unique;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use sawmill_engine::model::{GroupName, IdMaker, Lane, MessageId, ShardState, Topic, TopicName, base_name};
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{EntryKey, Ledger, Log};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::telemetry::{EventBus, StoreTelemetry};
pub(crate) use cell::{
    Backoff, Cell, CellValue, Edit, decode_json, decode_shared_json, encode_json, json_cell,
};
use format::Formats;
pub(crate) use liveness::{LivenessTracker, remove_silent};

/// A store that is open.
pub(crate) struct Store {
    log: Arc<dyn Log>,
    ledger: Arc<dyn Ledger>,
    env: Env,
    /// Topics as they were last read.
    topics: Mutex<BTreeMap<TopicName, Arc<Topic>>>,
    formats: Formats,
    ids: IdMaker,
    /// Counts pushes, to choose the shard of messages without a key.
    next_shard: AtomicUsize,
    telemetry: StoreTelemetry,
    /// The names of the known engines that deliver exactly once, for an error message.
    exactly_once_engines: Vec<&'static str>,
}

impl Store {
    pub(crate) fn new(
        log: Arc<dyn Log>,
        ledger: Arc<dyn Ledger>,
        env: Env,
        exactly_once_engines: Vec<&'static str>,
    ) -> Self {
        Self {
            ids: IdMaker::default(),
            next_shard: AtomicUsize::new(env.rng().next_u64() as usize),
            log,
            ledger,
            env,
            topics: Mutex::default(),
            formats: Formats::default(),
            telemetry: StoreTelemetry::default(),
            exactly_once_engines,
        }
    }

    pub(crate) fn log(&self) -> &dyn Log {
        &*self.log
    }

    pub(crate) fn shared_log(&self) -> Arc<dyn Log> {
        self.log.clone()
    }

    pub(crate) fn ledger(&self) -> &dyn Ledger {
        &*self.ledger
    }

    pub(crate) fn env(&self) -> &Env {
        &self.env
    }

    pub(crate) fn events(&self) -> &Arc<EventBus> {
        &self.telemetry.events
    }

    pub(crate) fn telemetry(&self) -> &StoreTelemetry {
        &self.telemetry
    }

    // ── pushing ──

    /// Makes this many new ids, in ascending order.
    pub(crate) fn new_ids(&self, count: usize) -> Vec<MessageId> {
        let mut ids = Vec::with_capacity(count);
        self.ids.make(self.env(), count, |id| ids.push(id));
        ids
    }

    /// Makes a new id.
    pub(crate) fn new_id(&self) -> MessageId {
        let mut made = MessageId::from_u128(0);
        self.ids.make(self.env(), 1, |id| made = id);
        made
    }

    /// Chooses where the next messages without a key go. The number is taken modulo the topic's shards.
    pub(crate) fn next_shard(&self) -> usize {
        self.next_shard.fetch_add(1, Ordering::Relaxed)
    }

    // ── topics ──

    /// Finds the topic with this name. Fails for a lane, and if the topic does not exist.
    pub(crate) async fn find_topic(&self, name: &str) -> Result<Arc<Topic>> {
        self.find(&base_name(name)?).await
    }

    /// Finds the topic or lane with this name. Fails if it does not exist.
    pub(crate) async fn find(&self, name: &TopicName) -> Result<Arc<Topic>> {
        let found = self.log().topic(name).await?;
        let topic = found.map(Arc::new).ok_or_else(|| no_such_topic(name))?;
        self.cache(topic.clone());
        Ok(topic)
    }

    /// Returns the topic as it was last read. It may have been deleted and created anew since; pushes notice
    /// that.
    pub(crate) async fn find_cached(&self, name: &TopicName) -> Result<Arc<Topic>> {
        let cached = self.cached().get(name).cloned();
        match cached {
            Some(topic) => Ok(topic),
            None => self.find(name).await,
        }
    }

    /// Remembers a topic that was just read.
    pub(crate) fn cache(&self, topic: Arc<Topic>) {
        self.cached().insert(topic.name.clone(), topic);
    }

    /// Removes a topic and its lanes from the cache.
    pub(crate) fn forget(&self, name: &TopicName) {
        self.cached().retain(|other, _| other.base() != name.base());
    }

    fn cached(&self) -> MutexGuard<'_, BTreeMap<TopicName, Arc<Topic>>> {
        self.topics.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Lists all topics, without the lanes of their groups.
    pub(crate) async fn topics(&self) -> Result<Vec<Topic>> {
        let mut topics = self.log().topics().await?;
        topics.retain(|topic| topic.name.as_lane().is_none());
        Ok(topics)
    }

    // ── groups ──

    /// Lists the groups that read a topic, or a lane.
    pub(crate) async fn groups_of(&self, topic: &Topic) -> Result<Vec<GroupName>> {
        match topic.name.as_lane() {
            Some((_, Lane::Dead)) => Ok(vec![dead_letter_readers()?]),
            Some((group, Lane::Retry)) => Ok(vec![group.clone()]),
            None => {
                let entries = self.ledger().list(&EntryKey::groups(topic)).await?;
                entries.iter().map(|entry| entry.key.last().parse()).collect()
            }
        }
    }

    /// Reads the state of a group for each shard of a topic.
    pub(crate) async fn shard_states(&self, topic: &Topic, group: &GroupName) -> Result<Vec<ShardState>> {
        let mut states = vec![ShardState::default(); usize::from(topic.shards)];
        for entry in self.ledger().list(&EntryKey::shards(topic, group)).await? {
            let shard: Option<usize> = entry.key.last().parse().ok();
            if let Some(place) = shard.and_then(|shard| states.get_mut(shard)) {
                *place = self.decode_shard(&entry)?;
            }
        }
        Ok(states)
    }

    /// Fails unless the engine can deliver exactly once.
    pub(crate) fn require_exactly_once(&self) -> Result<()> {
        if self.log().capabilities().exactly_once {
            return Ok(());
        }
        let able = match self.exactly_once_engines.as_slice() {
            [] => "no engine that was added can".to_owned(),
            able => format!("engines that can: {}", able.join(", ")),
        };
        let what = format!(
            "this engine cannot deliver exactly once ({able}): use at-least-once with a handler that may repeat, or at-most-once"
        );
        Err(Error::new(ErrorKind::Unsupported, what))
    }
}

/// The group that reads every dead-letter lane: the operators.
pub(crate) fn dead_letter_readers() -> Result<GroupName> {
    "people".parse()
}

/// The error for a topic that does not exist.
pub(crate) fn no_such_topic(name: &TopicName) -> Error {
    Error::new(ErrorKind::NotFound, format!("topic {name} does not exist: create it first"))
}
