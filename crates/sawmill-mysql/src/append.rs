//! Appending messages.

use std::collections::{BTreeSet, HashSet};

use sawmill::clock::Timestamp;
use sawmill::log::Record;
use sawmill::topic::Topic;
use sawmill::{Message, MessageId};

use crate::connections::Line;
use crate::counter::{self, Held};
use crate::error::Failure;
use crate::row::{STORED, field, id_bytes, id_of, topic_id, write_message};
use crate::schema::Tables;
use crate::sql::{Sql, longest};

/// How many ids are looked for in one statement.
const MANY_IDS: usize = 5_000;

/// Where and how to append.
#[derive(Clone, Copy)]
pub(crate) struct Shelf<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) topic: &'a Topic,
    /// The most bytes that may be sent at once.
    pub(crate) packet: usize,
    /// A number that no other call has.
    pub(crate) token: u64,
}

/// See [`sawmill::log::Log::append`].
pub(crate) async fn append(
    line: &mut Line,
    shelf: Shelf<'_>,
    now: Timestamp,
    records: &[Record],
) -> Result<(), Failure> {
    let shards: BTreeSet<u16> = records.iter().map(|record| record.shard).collect();
    if shards.is_empty() {
        return counter::all(line, shelf.tables, shelf.topic).await.map(|_| ());
    }
    // What is kept aside holds its shard's counter as well: so it is told whether the topic is there.
    let mut held = Held::take(line, shelf.tables, shelf.topic, &shards).await?;
    let mut new = new_ids(line, shelf, records).await?;
    let mut batch = Batch::new(shelf)?;
    for record in records {
        // Each of the new ids is taken once, also if it comes twice.
        if record.repeatable && !new.remove(&record.message.id) {
            continue;
        }
        if record.message.due.is_some_and(|due| due > now) {
            batch.keep_aside(line, record).await?;
        } else {
            let number = held.number(shelf.topic, record.shard, &record.message)?;
            batch.add(line, record.shard, number, &record.message, record.repeatable).await?;
        }
    }
    batch.commit(line, &held, Vec::new()).await
}

/// Those ids of repeatable records that are not in the topic yet. They are from now on.
async fn new_ids(
    line: &mut Line,
    shelf: Shelf<'_>,
    records: &[Record],
) -> Result<HashSet<MessageId>, Failure> {
    // In ascending order, so that no two calls wait for one another.
    let ids: BTreeSet<MessageId> =
        records.iter().filter(|record| record.repeatable).map(|record| record.message.id).collect();
    let ids: Vec<MessageId> = ids.into_iter().collect();
    let (id, token, table) = (topic_id(shelf.topic)?, shelf.token, &shelf.tables.once);
    let mut new = HashSet::with_capacity(ids.len());
    for chunk in ids.chunks(MANY_IDS) {
        let mut sql = Sql::new(format_args!("INSERT INTO {table} (topic, id, token) VALUES "));
        sql.list(chunk, |sql, message| {
            sql.add(format_args!("({id},")).bytes(&id_bytes(*message)).add(format_args!(",{token})"))
        });
        // Without this an id that is there would be an error; with IGNORE other errors would be none.
        sql.add(" ON DUPLICATE KEY UPDATE token = token");
        let added = line.ask(&sql).await?.pop().unwrap_or_default().changed;
        if added == chunk.len() as u64 {
            new.extend(chunk);
            continue;
        }
        let mut sql = Sql::new(format_args!(
            "SELECT id FROM {table} WHERE topic = {id} AND token = {token} AND id IN ("
        ));
        sql.list(chunk, |sql, message| sql.bytes(&id_bytes(*message))).add(")");
        for mut row in line.ask(&sql).await?.pop().unwrap_or_default().rows {
            new.insert(id_of(&field::<Vec<u8>>(&mut row, 0)?)?);
        }
    }
    Ok(new)
}

/// Messages on their way into the tables: as many in a statement as a packet takes.
pub(crate) struct Batch<'a> {
    shelf: Shelf<'a>,
    id: u64,
    ready: Option<Sql>,
    aside: Option<Sql>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(shelf: Shelf<'a>) -> Result<Self, Failure> {
        Ok(Self { shelf, id: topic_id(shelf.topic)?, ready: None, aside: None })
    }

    /// Makes a message readable under this number.
    pub(crate) async fn add(
        &mut self,
        line: &mut Line,
        shard: u16,
        number: u64,
        message: &Message,
        repeatable: bool,
    ) -> Result<(), Failure> {
        let head = |tables: &Tables| {
            Sql::new(format_args!("INSERT INTO {} (topic, shard, number, {STORED}) VALUES (", tables.message))
        };
        let sql = with_room(line, self.shelf, &mut self.ready, head, message).await?;
        sql.add(format_args!("{},{shard},{number},", self.id));
        write_message(sql, message, repeatable);
        sql.add(")");
        Ok(())
    }

    /// Keeps a message aside until it is due.
    async fn keep_aside(&mut self, line: &mut Line, record: &Record) -> Result<(), Failure> {
        let head = |tables: &Tables| {
            Sql::new(format_args!("INSERT INTO {} (topic, shard, {STORED}) VALUES (", tables.aside))
        };
        let sql = with_room(line, self.shelf, &mut self.aside, head, &record.message).await?;
        sql.add(format_args!("{},{},", self.id, record.shard));
        write_message(sql, &record.message, record.repeatable);
        sql.add(")");
        Ok(())
    }

    /// Sends the rest, and these statements, and commits.
    pub(crate) async fn commit(self, line: &mut Line, held: &Held, others: Vec<Sql>) -> Result<(), Failure> {
        let parts = [self.ready, self.aside, held.update(self.shelf.tables, self.id)];
        let mut last: Option<Sql> = None;
        for part in parts.into_iter().flatten().chain(others) {
            last = Some(match last.take() {
                None => part,
                Some(mut sql) if sql.len() + part.len() < self.shelf.packet => {
                    sql.append(&part);
                    sql
                }
                Some(sql) => {
                    line.ask(&sql).await?;
                    part
                }
            });
        }
        match last {
            Some(sql) => line.commit(sql).await.map(|_| ()),
            None => line.commit(Sql::new("DO 0")).await.map(|_| ()),
        }
    }
}

/// The statement in which there is room for one more message: the one that was begun, or, when that was sent, a new one.
async fn with_room<'s>(
    line: &mut Line,
    shelf: Shelf<'_>,
    begun: &'s mut Option<Sql>,
    head: fn(&Tables) -> Sql,
    message: &Message,
) -> Result<&'s mut Sql, Failure> {
    let key = message.key.as_ref().map_or(0, |key| key.len());
    let headers = if message.headers.is_empty() { 0 } else { message.headers.encode().len() };
    let room = longest(message.payload.len()) + longest(key) + longest(headers) + 256;
    match begun.take() {
        Some(mut sql) if sql.len() + room <= shelf.packet => {
            sql.add(",(");
            Ok(begun.insert(sql))
        }
        full => {
            if let Some(sql) = full {
                line.ask(&sql).await?;
            }
            Ok(begun.insert(head(shelf.tables)))
        }
    }
}
