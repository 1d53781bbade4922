//! Appends messages.

use std::collections::{BTreeSet, HashSet};

use sawmill_engine::model::{Message, MessageId, Topic};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Record;

use crate::connection::connections::Connection;
use crate::connection::sql::{Sql, longest};
use crate::error::Failure;
use crate::log::counter::{self, HeldCounters};
use crate::log::row::{STORED, field, id_bytes, id_of, topic_id, write_message};
use crate::schema::Tables;

/// The maximum number of ids per statement.
const MAX_IDS: usize = 5_000;

/// The destination and the parameters of an append.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) topic: &'a Topic,
    /// The maximum number of bytes to send at once.
    pub(crate) packet: usize,
    /// A number that is unique to this call.
    pub(crate) token: u64,
}

/// See [`sawmill_engine::storage::Log::append`].
pub(crate) async fn append(
    connection: &mut Connection,
    target: Target<'_>,
    now: Timestamp,
    records: &[Record],
) -> Result<(), Failure> {
    let shards: BTreeSet<u16> = records.iter().map(|record| record.shard).collect();
    if shards.is_empty() {
        return counter::all(connection, target.tables, target.topic).await.map(|_| ());
    }
    // Delayed messages hold their shard's counter too, which shows whether the topic exists.
    let mut held = HeldCounters::take(connection, target.tables, target.topic, &shards).await?;
    let mut new = new_ids(connection, target, records).await?;
    let mut batch = Batch::new(target)?;
    for record in records {
        // Each new id is used once, even if it occurs twice.
        if record.repeatable && !new.remove(&record.message.id) {
            continue;
        }
        if record.message.due.is_some_and(|due| due > now) {
            batch.keep_aside(connection, record).await?;
        } else {
            let number = held.number(target.topic, record.shard, &record.message)?;
            batch.add(connection, record.shard, number, &record.message, record.repeatable).await?;
        }
    }
    batch.commit(connection, &held, Vec::new()).await
}

/// Adds the ids of repeatable records to the topic. Returns those that were new.
async fn new_ids(
    connection: &mut Connection,
    target: Target<'_>,
    records: &[Record],
) -> Result<HashSet<MessageId>, Failure> {
    // In ascending order, so two calls never deadlock.
    let ids: BTreeSet<MessageId> =
        records.iter().filter(|record| record.repeatable).map(|record| record.message.id).collect();
    let ids: Vec<MessageId> = ids.into_iter().collect();
    let (id, token, table) = (topic_id(target.topic)?, target.token, &target.tables.once);
    let mut new = HashSet::with_capacity(ids.len());
    for chunk in ids.chunks(MAX_IDS) {
        let mut sql = Sql::new(format_args!("INSERT INTO {table} (topic, id, token) VALUES "));
        sql.list(chunk, |sql, message| {
            sql.add(format_args!("({id},")).bytes(&id_bytes(*message)).add(format_args!(",{token})"))
        });
        // Existing ids are not an error. `INSERT IGNORE` would hide other errors too.
        sql.add(" ON DUPLICATE KEY UPDATE token = token");
        let added = connection.ask(&sql).await?.pop().unwrap_or_default().changed;
        if added == chunk.len() as u64 {
            new.extend(chunk);
            continue;
        }
        let mut sql = Sql::new(format_args!(
            "SELECT id FROM {table} WHERE topic = {id} AND token = {token} AND id IN ("
        ));
        sql.list(chunk, |sql, message| sql.bytes(&id_bytes(*message))).add(")");
        for mut row in connection.ask(&sql).await?.pop().unwrap_or_default().rows {
            new.insert(id_of(&field::<Vec<u8>>(&mut row, 0)?)?);
        }
    }
    Ok(new)
}

/// Messages to be inserted, with as many per statement as fit into a packet.
pub(crate) struct Batch<'a> {
    target: Target<'a>,
    id: u64,
    ready: Option<Sql>,
    aside: Option<Sql>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(target: Target<'a>) -> Result<Self, Failure> {
        Ok(Self { target, id: topic_id(target.topic)?, ready: None, aside: None })
    }

    /// Adds a readable message with this number.
    pub(crate) async fn add(
        &mut self,
        connection: &mut Connection,
        shard: u16,
        number: u64,
        message: &Message,
        repeatable: bool,
    ) -> Result<(), Failure> {
        let head = |tables: &Tables| {
            Sql::new(format_args!("INSERT INTO {} (topic, shard, number, {STORED}) VALUES (", tables.message))
        };
        let sql = with_room(connection, self.target, &mut self.ready, head, message).await?;
        sql.add(format_args!("{},{shard},{number},", self.id));
        write_message(sql, message, repeatable);
        sql.add(")");
        Ok(())
    }

    /// Adds a delayed message.
    async fn keep_aside(&mut self, connection: &mut Connection, record: &Record) -> Result<(), Failure> {
        let head = |tables: &Tables| {
            Sql::new(format_args!("INSERT INTO {} (topic, shard, {STORED}) VALUES (", tables.aside))
        };
        let sql = with_room(connection, self.target, &mut self.aside, head, &record.message).await?;
        sql.add(format_args!("{},{},", self.id, record.shard));
        write_message(sql, &record.message, record.repeatable);
        sql.add(")");
        Ok(())
    }

    /// Sends the remaining statements and `others`, and commits.
    pub(crate) async fn commit(
        self,
        connection: &mut Connection,
        held: &HeldCounters,
        others: Vec<Sql>,
    ) -> Result<(), Failure> {
        let parts = [self.ready, self.aside, held.update(self.target.tables, self.id)];
        let mut last: Option<Sql> = None;
        for part in parts.into_iter().flatten().chain(others) {
            last = Some(match last.take() {
                None => part,
                Some(mut sql) if sql.len() + part.len() < self.target.packet => {
                    sql.append(&part);
                    sql
                }
                Some(sql) => {
                    connection.ask(&sql).await?;
                    part
                }
            });
        }
        match last {
            Some(sql) => connection.commit(sql).await.map(|_| ()),
            None => connection.commit(Sql::new("DO 0")).await.map(|_| ()),
        }
    }
}

/// Returns a statement with room for one more message: the current one, or a new one after sending the
/// current one.
async fn with_room<'s>(
    connection: &mut Connection,
    target: Target<'_>,
    begun: &'s mut Option<Sql>,
    head: fn(&Tables) -> Sql,
    message: &Message,
) -> Result<&'s mut Sql, Failure> {
    let key = message.key.as_ref().map_or(0, |key| key.len());
    let headers = if message.headers.is_empty() { 0 } else { message.headers.encode().len() };
    let room = longest(message.payload.len()) + longest(key) + longest(headers) + 256;
    match begun.take() {
        Some(mut sql) if sql.len() + room <= target.packet => {
            sql.add(",(");
            Ok(begun.insert(sql))
        }
        full => {
            if let Some(sql) = full {
                connection.ask(&sql).await?;
            }
            Ok(begun.insert(head(target.tables)))
        }
    }
}
