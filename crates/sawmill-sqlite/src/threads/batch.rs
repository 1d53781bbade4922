//! A write transaction shared by several pieces of work: each topic and shard is looked up once, and the
//! counters of each shard are written once, however many messages are appended.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};
use sawmill_engine::model::{MAX_SHARDS, Topic};

use crate::error::{Failure, corrupt};
use crate::log::row::{LAST_NUMBER, topic_id};
use crate::log::tail::{Appended, Changes};

/// The pieces of work of one write transaction.
pub(crate) struct Batch<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) namespace: &'c str,
    /// True if a message may have become readable, or was kept aside.
    pub(crate) messages_changed: bool,
    /// True if a ledger entry was changed.
    pub(crate) entries_changed: bool,
    /// True if a topic was deleted and its messages remain to be removed.
    pub(crate) leftovers: bool,
    topics: HashMap<i64, OpenTopic>,
    /// Changes to publish after the commit.
    changes: Changes,
}

/// An existing topic and the shards that were looked up.
pub(crate) struct OpenTopic {
    pub(crate) id: i64,
    shards: Vec<Option<OpenShard>>,
    /// The appended messages, if they are few.
    pub(crate) appended: Vec<Appended>,
}

/// A shard's row as it will be after the commit.
#[derive(Clone, Copy)]
pub(crate) struct OpenShard {
    pub(crate) base: i64,
    last: i64,
    kept: i64,
    changed: bool,
    trimmed: bool,
}

impl<'c> Batch<'c> {
    pub(crate) fn new(connection: &'c Connection, namespace: &'c str) -> Self {
        Self {
            connection,
            namespace,
            messages_changed: false,
            entries_changed: false,
            leftovers: false,
            topics: HashMap::new(),
            changes: Changes::default(),
        }
    }

    /// Returns the topic, if it exists. The connection is returned too, because the topic borrows the batch.
    pub(crate) fn topic(&mut self, topic: &Topic) -> Result<(&'c Connection, &mut OpenTopic), Failure> {
        let id = topic_id(topic)?;
        if !self.topics.contains_key(&id) {
            let shards = shards_of(self.connection, self.namespace, id)?.ok_or_else(|| topic.missing())?;
            self.topics.insert(id, OpenTopic::new(id, shards));
        }
        match self.topics.get_mut(&id) {
            Some(open) => Ok((self.connection, open)),
            None => Err(topic.missing().into()),
        }
    }

    /// Removes a topic that this transaction has deleted.
    pub(crate) fn forget(&mut self, id: i64) {
        self.topics.remove(&id);
        self.changes.delete(id);
        self.leftovers = true;
    }

    /// Writes the shard counters. Call it last. Returns the changes to publish after the commit.
    pub(crate) fn finish(mut self) -> rusqlite::Result<Changes> {
        let mut update =
            self.connection.prepare_cached("UPDATE shard SET last = ?2, kept = ?3 WHERE ref = ?1")?;
        for topic in self.topics.values_mut() {
            for (number, shard) in (0..).zip(&topic.shards) {
                let Some(shard) = shard.filter(|shard| shard.changed) else { continue };
                update.execute(params![shard.base >> 40, shard.last, shard.kept])?;
                if shard.trimmed {
                    self.changes.trim(topic.id, number);
                }
            }
            topic.appended.drain(..).for_each(|appended| self.changes.append(appended));
        }
        Ok(self.changes)
    }
}

impl OpenTopic {
    fn new(id: i64, shards: u16) -> Self {
        Self { id, shards: vec![None; usize::from(shards)], appended: Vec::new() }
    }

    /// Returns a shard, looking it up if necessary.
    pub(crate) fn shard(
        &mut self,
        connection: &Connection,
        topic: &Topic,
        number: u16,
    ) -> Result<&mut OpenShard, Failure> {
        let slot = self.shards.get_mut(usize::from(number)).ok_or_else(|| topic.no_shard(number))?;
        match slot {
            Some(shard) => Ok(shard),
            None => Ok(slot.insert(OpenShard::find(connection, self.id, number)?)),
        }
    }

    pub(crate) fn has(&self, number: u16) -> bool {
        usize::from(number) < self.shards.len()
    }

    /// Returns a shard that was looked up before.
    pub(crate) fn known(&mut self, topic: &Topic, number: u16) -> Result<&mut OpenShard, Failure> {
        match self.shards.get_mut(usize::from(number)) {
            Some(Some(shard)) => Ok(shard),
            _ => Err(topic.no_shard(number).into()),
        }
    }
}

impl OpenShard {
    pub(crate) fn find(connection: &Connection, topic: i64, number: u16) -> Result<Self, Failure> {
        let row = connection
            .prepare_cached("SELECT ref, last, kept FROM shard WHERE topic = ?1 AND number = ?2")?
            .query_row(params![topic, number], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()?;
        let row = row.ok_or_else(|| corrupt(format!("topic t{topic} without shard {number}")))?;
        Self::checked(topic, number, row)
    }

    /// Finds the first shards of a topic, in order.
    pub(crate) fn find_all(connection: &Connection, topic: i64, shards: u16) -> Result<Vec<Self>, Failure> {
        let mut select = connection
            .prepare_cached("SELECT ref, last, kept FROM shard WHERE topic = ?1 ORDER BY number LIMIT ?2")?;
        let mut rows = select.query(params![topic, shards])?;
        let mut found = Vec::with_capacity(shards.into());
        for number in 0..shards {
            let row =
                rows.next()?.ok_or_else(|| corrupt(format!("topic t{topic} without shard {number}")))?;
            found.push(Self::checked(topic, number, (row.get(0)?, row.get(1)?, row.get(2)?))?);
        }
        Ok(found)
    }

    fn checked(topic: i64, number: u16, (reference, last, kept): (i64, i64, i64)) -> Result<Self, Failure> {
        let sound = (0..=LAST_NUMBER).contains(&last) && (0..=last).contains(&kept);
        if !sound || !(1..1 << 23).contains(&reference) {
            let what =
                format!("shard {number} of topic t{topic} with numbers {reference}, {last} and {kept}");
            return Err(corrupt(what).into());
        }
        Ok(Self { base: reference << 40, last, kept, changed: false, trimmed: false })
    }

    /// The position of the next message, if there is room. [`OpenShard::add`] counts it.
    pub(crate) fn next(&self) -> i64 {
        self.base | (self.last + 1)
    }

    /// The number of messages that can still be numbered.
    pub(crate) fn room(&self) -> u64 {
        LAST_NUMBER.abs_diff(self.last)
    }

    /// Counts a message that was stored at [`OpenShard::next`].
    pub(crate) fn add(&mut self) {
        self.last += 1;
        self.kept += 1;
        self.changed = true;
    }

    /// Counts messages that were removed.
    pub(crate) fn remove(&mut self, count: u64) {
        self.kept = self.kept.saturating_sub_unsigned(count).max(0);
        (self.changed, self.trimmed) = (true, true);
    }

    /// The last number given out.
    pub(crate) fn last(&self) -> i64 {
        self.last
    }

    /// The number of messages in the shard.
    pub(crate) fn kept(&self) -> i64 {
        self.kept
    }
}

/// Returns the number of shards of the topic, or `None` if the topic does not exist.
pub(crate) fn shards_of(connection: &Connection, namespace: &str, id: i64) -> Result<Option<u16>, Failure> {
    let shards: Option<i64> = connection
        .prepare_cached("SELECT shards FROM topic WHERE id = ?1 AND namespace = ?2")?
        .query_row(params![id, namespace], |row| row.get(0))
        .optional()?;
    match shards {
        None => Ok(None),
        Some(shards) => match u16::try_from(shards) {
            Ok(shards @ 1..=MAX_SHARDS) => Ok(Some(shards)),
            _ => Err(corrupt(format!("topic t{id} with {shards} shards")).into()),
        },
    }
}
