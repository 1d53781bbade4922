//! The counter of a shard holds the number of its last message. An append locks the counters of its shards
//! until the commit, so numbers are committed in the order in which they are assigned. A reader that has seen
//! a number has seen all numbers before it.

use std::collections::{BTreeMap, BTreeSet};

use mysql_async::Row;
use sawmill_engine::model::{Message, Topic};
use sawmill_engine::{Error, ErrorKind};

use crate::connection::connections::Connection;
use crate::connection::sql::Sql;
use crate::error::{Failure, corrupt};
use crate::log::row::{field, size, topic_id};
use crate::schema::Tables;

/// A row of the table `shard`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counter {
    /// The number of the last message.
    pub(crate) last: u64,
    /// The number of messages in the shard.
    pub(crate) kept: u64,
    /// The size of the largest message that the shard ever had.
    pub(crate) largest: u64,
}

const COLUMNS: &str = "number, last, kept, largest";

impl Counter {
    fn of(mut row: Row) -> Result<(u16, Self), Failure> {
        let number = field(&mut row, 0)?;
        let counter =
            Self { last: field(&mut row, 1)?, kept: field(&mut row, 2)?, largest: field(&mut row, 3)? };
        if counter.kept > counter.last {
            return Err(corrupt(format!(
                "shard {number} with {} messages of {}",
                counter.kept, counter.last
            )));
        }
        Ok((number, counter))
    }

    /// Counts a message and returns its number.
    pub(crate) fn add(&mut self, message: &Message) -> u64 {
        self.last += 1;
        self.kept += 1;
        self.largest = self.largest.max(size(message));
        self.last
    }
}

/// Counters that are locked until the transaction ends.
#[derive(Debug)]
pub(crate) struct HeldCounters {
    counters: BTreeMap<u16, Counter>,
    changed: BTreeSet<u16>,
}

impl HeldCounters {
    /// Begins a transaction and locks the counters of these shards, always in ascending order to avoid
    /// deadlocks.
    pub(crate) async fn take(
        connection: &mut Connection,
        tables: &Tables,
        topic: &Topic,
        shards: &BTreeSet<u16>,
    ) -> Result<Self, Failure> {
        let id = topic_id(topic)?;
        let mut sql = Sql::new("START TRANSACTION");
        sql.then(format_args!("SELECT {COLUMNS} FROM {} WHERE topic = {id} AND number IN (", tables.shard));
        sql.list(shards, |sql, shard| sql.add(shard)).add(") ORDER BY number FOR UPDATE");
        // If none of these shards exists, the first shard shows whether the topic does.
        sql.then(format_args!("SELECT 1 FROM {} WHERE topic = {id} AND number = 0", tables.shard));
        let mut answers = connection.begin(&mut sql).await?;
        let there = answers.pop().is_some_and(|answer| !answer.rows.is_empty());
        let rows = answers.pop().unwrap_or_default().rows;
        let counters = rows.into_iter().map(Counter::of).collect::<Result<BTreeMap<_, _>, _>>()?;
        match shards.iter().find(|shard| !counters.contains_key(shard)) {
            None => Ok(Self { counters, changed: BTreeSet::new() }),
            Some(_) if !there => Err(topic.missing().into()),
            Some(shard) => Err(topic.no_shard(*shard).into()),
        }
    }

    /// Assigns the next number of a shard to a message.
    pub(crate) fn number(&mut self, topic: &Topic, shard: u16, message: &Message) -> Result<u64, Error> {
        let counter = self.counters.get_mut(&shard).ok_or_else(|| topic.no_shard(shard))?;
        if counter.last == i64::MAX.unsigned_abs() {
            let said =
                format!("shard {shard} of topic {} has had as many messages as it can number", topic.name);
            return Err(Error::new(ErrorKind::Full, said));
        }
        self.changed.insert(shard);
        Ok(counter.add(message))
    }

    /// Returns a statement that writes the changed counters, or `None` if nothing has changed.
    pub(crate) fn update(&self, tables: &Tables, topic: u64) -> Option<Sql> {
        let changed: Vec<(u16, Counter)> =
            self.changed.iter().filter_map(|shard| Some((*shard, *self.counters.get(shard)?))).collect();
        if changed.is_empty() {
            return None;
        }
        let mut sql = Sql::new(format_args!("UPDATE {} SET ", tables.shard));
        sql.list(["last", "kept", "largest"], |sql, column| {
            sql.add(column).add(" = CASE number");
            for (shard, counter) in &changed {
                let value = match column {
                    "last" => counter.last,
                    "kept" => counter.kept,
                    _ => counter.largest,
                };
                sql.add(format_args!(" WHEN {shard} THEN {value}"));
            }
            sql.add(" END")
        });
        sql.add(format_args!(" WHERE topic = {topic} AND number IN ("));
        sql.list(&changed, |sql, (shard, _)| sql.add(shard)).add(")");
        Some(sql)
    }
}

/// Reads the last committed counters of all shards of a topic.
pub(crate) async fn all(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
) -> Result<Vec<Counter>, Failure> {
    let id = topic_id(topic)?;
    let sql =
        Sql::new(format_args!("SELECT {COLUMNS} FROM {} WHERE topic = {id} ORDER BY number", tables.shard));
    let rows = connection.ask(&sql).await?.pop().unwrap_or_default().rows;
    let counters = rows.into_iter().map(Counter::of).collect::<Result<Vec<_>, _>>()?;
    if counters.is_empty() {
        return Err(topic.missing().into());
    }
    match counters.iter().zip(0..).find(|((number, _), place)| number != place) {
        None => Ok(counters.into_iter().map(|(_, counter)| counter).collect()),
        Some((_, missing)) => Err(corrupt(format!("topic t{id} without shard {missing}"))),
    }
}

/// Picks a shard's counter out of all counters of its topic.
pub(crate) fn one(counters: &[Counter], topic: &Topic, shard: u16) -> Result<Counter, Failure> {
    counters.get(usize::from(shard)).copied().ok_or_else(|| topic.no_shard(shard).into())
}
