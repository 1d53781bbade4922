//! The in-memory engine: the reference implementation of both storage interfaces, and the store of tests.
//!
//! It keeps nothing when the process ends. The code favours readability over speed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

use crate::model::{Message, MessageId, Topic, TopicName, TopicSpec};
use crate::runtime::Timestamp;
use crate::storage::{
    Backlog, Block, Capabilities, Commit, Engine, Entry, EntryKey, FoundMessage, Ledger, Log, Namespace,
    Notifications, OpenedStore, Position, Promoted, ReadRequest, Record, Span, StoreUrl, Version, Write,
};
use crate::{Error, Result};

const CAPABILITIES: Capabilities = Capabilities {
    max_payload_bytes: 16 << 20,
    idempotent_append: true,
    exactly_once: false,
    idle_poll: Duration::from_secs(5),
};

/// The engine of `memory:` URLs. Each opening creates a separate store.
#[derive(Debug, Clone, Copy, Default)]
pub struct MemoryEngine;

#[async_trait]
impl Engine for MemoryEngine {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn scheme(&self) -> &'static str {
        "memory"
    }

    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn open(&self, url: &StoreUrl, _namespace: &Namespace) -> Result<OpenedStore> {
        if !url.rest().is_empty() {
            return Err(Error::invalid(format!("{url}: a store in memory has no name; write memory:")));
        }
        let memory = Memory::new();
        Ok(OpenedStore { log: Some(Arc::new(memory.clone())), ledger: Some(Arc::new(memory)) })
    }
}

/// A log and a ledger in memory. Clones share their content.
#[derive(Clone)]
pub struct Memory {
    held: Arc<Mutex<Held>>,
    messages_changed: watch::Sender<()>,
    entries_changed: watch::Sender<()>,
}

#[derive(Default)]
struct Held {
    topics: BTreeMap<TopicName, Topic>,
    shelves: BTreeMap<String, Shelf>,
    topics_made: u64,
    entries: BTreeMap<EntryKey, (Version, bytes::Bytes)>,
}

/// The messages of one topic.
struct Shelf {
    shards: Vec<Shard>,
    aside: BTreeMap<(Timestamp, u64), Record>,
    /// A counter that numbers the messages kept aside, so that equal due times keep the order of appending.
    kept_aside: u64,
    /// The ids of repeatable records.
    ids: BTreeSet<u128>,
}

#[derive(Default)]
struct Shard {
    last: u64,
    messages: BTreeMap<u64, Message>,
}

impl Shard {
    fn push(&mut self, message: Message) {
        self.last += 1;
        self.messages.insert(self.last, message);
    }
}

impl Memory {
    /// Creates an empty store.
    pub fn new() -> Self {
        Self {
            held: Arc::default(),
            messages_changed: watch::Sender::new(()),
            entries_changed: watch::Sender::new(()),
        }
    }

    /// Returns all messages of a topic, including those that are kept aside.
    pub fn all(&self, topic: &Topic) -> Result<Vec<Message>> {
        let mut held = self.held();
        let shelf = held.shelf(topic)?;
        let aside = shelf.aside.values().map(|record| &record.message);
        Ok(shelf.shards.iter().flat_map(|shard| shard.messages.values()).chain(aside).cloned().collect())
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

impl Held {
    fn shelf(&mut self, topic: &Topic) -> Result<&mut Shelf> {
        self.shelves.get_mut(&topic.uid).ok_or_else(|| topic.missing())
    }
}

impl Shelf {
    fn shard(&mut self, topic: &Topic, shard: u16) -> Result<&mut Shard> {
        self.shards.get_mut(usize::from(shard)).ok_or_else(|| topic.no_shard(shard))
    }
}

#[async_trait]
impl Log for Memory {
    fn capabilities(&self) -> Capabilities {
        CAPABILITIES
    }

    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        spec.check()?;
        let mut held = self.held();
        if let Some(topic) = held.topics.get(&spec.name) {
            return if topic.shards == spec.shards {
                Ok(topic.clone())
            } else {
                Err(spec.exists_with(topic.shards))
            };
        }
        held.topics_made += 1;
        let uid = format!("t{}", held.topics_made);
        let topic = Topic {
            name: spec.name.clone(),
            uid: uid.clone(),
            shards: spec.shards,
            retention: spec.retention,
            drops_unread: spec.drops_unread,
        };
        let shards = (0..spec.shards).map(|_| Shard::default()).collect();
        held.shelves
            .insert(uid, Shelf { shards, aside: BTreeMap::new(), kept_aside: 0, ids: BTreeSet::new() });
        held.topics.insert(spec.name.clone(), topic.clone());
        Ok(topic)
    }

    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        Ok(self.held().topics.get(name).cloned())
    }

    async fn topics(&self) -> Result<Vec<Topic>> {
        Ok(self.held().topics.values().cloned().collect())
    }

    async fn delete_topic(&self, topic: &Topic) -> Result<bool> {
        let mut held = self.held();
        held.topics.retain(|_, other| other.uid != topic.uid);
        Ok(held.shelves.remove(&topic.uid).is_some())
    }

    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        let mut held = self.held();
        let shelf = held.shelf(topic)?;
        for record in &records {
            shelf.shard(topic, record.shard)?;
        }
        for record in records {
            if record.repeatable && !shelf.ids.insert(record.message.id.as_u128()) {
                continue;
            }
            match record.message.due {
                Some(due) if due > now => {
                    shelf.kept_aside += 1;
                    shelf.aside.insert((due, shelf.kept_aside), record);
                }
                _ => shelf.shard(topic, record.shard)?.push(record.message),
            }
        }
        drop(held);
        self.messages_changed.send_replace(());
        Ok(())
    }

    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let mut held = self.held();
        let shelf = held.shelf(topic)?;
        wants
            .iter()
            .map(|want| {
                let shard = shelf.shard(topic, want.shard)?;
                let after = want.after.number()?;
                let found = shard.messages.range(after.saturating_add(1)..).take(want.limit);
                let (numbers, messages): (Vec<u64>, Vec<Message>) =
                    found.map(|(n, m)| (*n, m.clone())).unzip();
                let end = numbers.last().copied().unwrap_or(after);
                let span = Span::from_range(after, end, messages.len());
                let more = shard.messages.range(end.saturating_add(1)..).next().is_some();
                Ok(Block { messages, span, end: Position::from_number(end), more })
            })
            .collect()
    }

    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        let (after, upto, count) = span.range()?;
        let mut held = self.held();
        let shard = held.shelf(topic)?.shard(topic, shard)?;
        let messages: Vec<Message> = shard
            .messages
            .range(after.saturating_add(1)..upto.max(after).saturating_add(1))
            .map(|(_, m)| m.clone())
            .collect();
        if messages.len() == count { Ok(messages) } else { Err(topic.gone(count, messages.len())) }
    }

    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        let mut held = self.held();
        let shelf = held.shelf(topic)?;
        let mut moved = 0;
        while moved < limit {
            match shelf.aside.first_entry() {
                Some(first) if first.key().0 <= now => {
                    let record = first.remove();
                    shelf.shard(topic, record.shard)?.push(record.message);
                    moved += 1;
                }
                _ => break,
            }
        }
        let next_due = shelf.aside.keys().next().map(|(due, _)| *due);
        drop(held);
        if moved > 0 {
            self.messages_changed.send_replace(());
        }
        Ok(Promoted { moved, next_due })
    }

    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>> {
        let mut held = self.held();
        let shelf = held.shelf(topic)?;
        let aside = shelf.aside.values().find(|record| record.message.id == id);
        if let Some(Record { shard, message, .. }) = aside {
            return Ok(Some(FoundMessage { shard: *shard, message: message.clone(), before: None }));
        }
        for (number, shard) in (0..).zip(&shelf.shards) {
            if let Some((at, message)) = shard.messages.iter().find(|(_, message)| message.id == id) {
                let before = Some(Position::from_number(at - 1));
                return Ok(Some(FoundMessage { shard: number, message: message.clone(), before }));
            }
        }
        Ok(None)
    }

    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>> {
        let mut held = self.held();
        let before = |shard: &Shard| {
            let first = shard.messages.iter().find(|(_, message)| message.created >= since);
            Position::from_number(first.map_or(shard.last, |(number, _)| number - 1))
        };
        Ok(held.shelf(topic)?.shards.iter().map(before).collect())
    }

    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog> {
        let mut held = self.held();
        let shelf = held.shelf(topic)?;
        let mut backlog = Backlog { aside: shelf.aside.len() as u64, ..Backlog::default() };
        for (shard, position) in after {
            let waiting = shelf.shard(topic, *shard)?.messages.range(position.number()?.saturating_add(1)..);
            let oldest = waiting.clone().next().map(|(_, message)| message.created);
            backlog.ready.push(waiting.count() as u64);
            backlog.oldest = [backlog.oldest, oldest].into_iter().flatten().min();
        }
        Ok(backlog)
    }

    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>> {
        let mut held = self.held();
        let shelf = held.shelf(topic)?;
        let mut counts = Vec::with_capacity(upto.len());
        for (shard, upto) in (0..).zip(upto) {
            let upto = Position::least_number(upto)?;
            let shard = shelf.shard(topic, shard)?;
            let old = |(number, message): (&u64, &Message)| {
                (message.created < before).then_some((*number, message.id))
            };
            let dropped: Vec<_> = shard.messages.range(..=upto).filter_map(old).collect();
            for (number, _) in &dropped {
                shard.messages.remove(number);
            }
            for (_, id) in &dropped {
                shelf.ids.remove(&id.as_u128());
            }
            counts.push(dropped.len() as u64);
        }
        Ok(counts)
    }

    fn message_notifications(&self, _topic: &Topic) -> Notifications {
        Notifications::new(self.messages_changed.subscribe())
    }
}

#[async_trait]
impl Ledger for Memory {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        let entry = |(version, value): &(Version, bytes::Bytes)| Entry {
            key: key.clone(),
            version: *version,
            value: value.clone(),
        };
        Ok(self.held().entries.get(key).map(entry))
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let held = self.held();
        let from = held.entries.range(prefix.clone()..);
        Ok(from
            .take_while(|(key, _)| key.as_str().starts_with(prefix.as_str()))
            .map(|(key, (version, value))| Entry {
                key: key.clone(),
                version: *version,
                value: value.clone(),
            })
            .collect())
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        let mut held = self.held();
        let current = held.entries.get(&write.key).map(|(version, _)| *version);
        if current != write.expect {
            return Ok(Commit::Conflict);
        }
        let version = match write.value {
            Some(value) => {
                let version = Version(current.map_or(1, |version| version.0 + 1));
                held.entries.insert(write.key, (version, value));
                version
            }
            None => {
                held.entries.remove(&write.key);
                current.unwrap_or(Version(0))
            }
        };
        drop(held);
        self.entries_changed.send_replace(());
        Ok(Commit::Done(version))
    }

    fn entry_notifications(&self) -> Notifications {
        Notifications::new(self.entries_changed.subscribe())
    }
}
