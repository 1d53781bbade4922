//! Messages that are not due. They are kept in a second topic with one partition; an index in memory holds
//! their due times.
//!
//! Kafka reads in the order of writing only, so each process that promotes keeps the due times in memory,
//! with the messages themselves up to a limit. The topic is compacted: promoting a message removes it by its
//! record key.

use std::collections::{BTreeMap, HashMap};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use rdkafka::message::Message as _;
use sawmill_engine::model::{Message, MessageId};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::{Error, ErrorKind, Result};

use crate::brokers::cluster::Cluster;
use crate::brokers::tail::{Follower, Tail, TailRecord};
use crate::ledger::coordination::LONGEST_CALL;
use crate::log::record::{FIELDS, Place, headers_of, message_of, time_of};
use crate::log::scan::Scanner;

/// Header with the message's shard.
pub(crate) const SHARD: &str = "sawmill-shard";
/// Header with the message's key. The record's own key is the record's name.
pub(crate) const KEY: &str = "sawmill-key";
/// The most bytes of messages held in memory.
const MAX_MEMORY_BYTES: usize = 32 << 20;

/// The messages of one topic that are not due.
pub(crate) struct Aside {
    index: Arc<Index>,
    tail: Tail,
    topic: String,
}

#[derive(Default)]
struct Index(Mutex<IndexState>);

#[derive(Default)]
struct IndexState {
    /// By due time, then by the order of appending.
    times: BTreeMap<(Timestamp, u64), Waiting>,
    names: HashMap<u128, (Timestamp, u64)>,
    bytes: usize,
}

/// A message that is not due yet.
#[derive(Clone)]
pub(crate) struct Waiting {
    /// The record's name, which is its record key.
    pub(crate) name: u128,
    pub(crate) offset: u64,
    pub(crate) shard: u16,
    id: MessageId,
    /// The message, if it is held in memory.
    message: Option<Message>,
}

impl IndexState {
    fn remove(&mut self, name: u128) {
        let removed = self.names.remove(&name).and_then(|place| self.times.remove(&place));
        self.bytes -= removed.and_then(|waiting| waiting.message).map_or(0, |message| size(&message));
    }

    fn add(&mut self, due: Timestamp, mut waiting: Waiting) {
        self.remove(waiting.name);
        let bytes = waiting.message.as_ref().map_or(0, size);
        if self.bytes + bytes > MAX_MEMORY_BYTES {
            waiting.message = None;
        } else {
            self.bytes += bytes;
        }
        self.names.insert(waiting.name, (due, waiting.offset));
        self.times.insert((due, waiting.offset), waiting);
    }
}

fn size(message: &Message) -> usize {
    100 + message.payload.len()
        + message.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
}

impl Index {
    fn kept(&self) -> MutexGuard<'_, IndexState> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Follower for Index {
    fn reset(&self) {
        *self.kept() = IndexState::default();
    }

    fn take(&self, record: &TailRecord<'_>) {
        let name = record.key.and_then(|key| std::str::from_utf8(key).ok());
        let Some(name) = name.and_then(|name| u128::from_str_radix(name, 16).ok()) else { return };
        let Some(payload) = record.payload else { return self.kept().remove(name) };
        let Some((shard, message)) = waiting_message(payload, &record.headers, record.offset, record.time)
        else {
            tracing::warn!(offset = record.offset, "ignoring a record that Sawmill did not write");
            return;
        };
        let due = message.due.unwrap_or_default();
        let waiting = Waiting { name, offset: record.offset, shard, id: message.id, message: Some(message) };
        self.kept().add(due, waiting);
    }

    fn on_idle(&self) {}
}

fn waiting_message(
    payload: &[u8],
    headers: &[(&str, &[u8])],
    offset: u64,
    time: u64,
) -> Option<(u16, Message)> {
    let header = |name: &str| headers.iter().find(|(other, _)| *other == name).map(|(_, value)| *value);
    header(FIELDS)?;
    let shard = u16::from_be_bytes(header(SHARD)?.try_into().ok()?);
    let place = Place { partition: 0, offset, time };
    let message = message_of(header(KEY), Some(payload), headers, place, &[SHARD, KEY]);
    Some((shard, message))
}

impl Aside {
    pub(crate) fn new(cluster: &Cluster, topic: String) -> Result<Self> {
        let index = Arc::new(Index::default());
        let tail = Tail::follow(cluster, &topic, index.clone())?;
        Ok(Self { index, tail, topic })
    }

    /// Reads every change that was made before this call.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        self.tail.catch_up(LONGEST_CALL).await
    }

    pub(crate) fn count(&self) -> u64 {
        self.index.kept().times.len() as u64
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.index.kept().times.keys().next().map(|(due, _)| *due)
    }

    /// Returns the messages that are due, earliest first, at most `limit`.
    pub(crate) fn due(&self, now: Timestamp, limit: usize) -> Vec<Waiting> {
        let kept = self.index.kept();
        let due = kept.times.iter().take_while(|((due, _), _)| *due <= now).take(limit);
        due.map(|(_, waiting)| waiting.clone()).collect()
    }

    /// Removes promoted messages from the index.
    pub(crate) fn forget(&self, gone: &[Waiting]) {
        let mut kept = self.index.kept();
        gone.iter().for_each(|waiting| kept.remove(waiting.name));
    }

    /// Finds a message by its id.
    pub(crate) fn find(&self, id: MessageId) -> Option<Waiting> {
        self.index.kept().times.values().find(|waiting| waiting.id == id).cloned()
    }

    /// Returns the message, from memory or from the broker.
    pub(crate) async fn message(&self, waiting: &Waiting, scanner: &Scanner) -> Result<Message> {
        if let Some(message) = &waiting.message {
            return Ok(message.clone());
        }
        let range = (waiting.offset, waiting.offset + 1);
        let found = scanner.visit(&self.topic, 0, range, None, |found, record| {
            let (payload, headers) = (record.payload().unwrap_or_default(), headers_of(record));
            let offset = u64::try_from(record.offset()).unwrap_or(0);
            *found = waiting_message(payload, &headers, offset, time_of(record)).map(|(_, message)| message);
            ControlFlow::Break(())
        });
        found.await?.ok_or_else(|| {
            Error::new(
                ErrorKind::Corrupt,
                format!("a message that is kept aside in {} cannot be read", self.topic),
            )
        })
    }
}

/// Returns the extra headers of a message that is kept aside.
pub(crate) fn more_headers<'a>(shard: &'a [u8; 2], key: Option<&'a Bytes>) -> Vec<(&'static str, &'a [u8])> {
    let mut more = vec![(SHARD, &shard[..])];
    more.extend(key.map(|key| (KEY, &key[..])));
    more
}
