//! Adds messages to the log: append, and promotion of due messages.

use std::collections::{BTreeMap, HashSet};

use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{Promoted, Record};
use sawmill_engine::{Error, ErrorKind, Result};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use crate::connection::pool::Param;
use crate::error::{Effect, Failure, corrupt};
use crate::log::pack::Pack;
use crate::log::row::{Id, from_shard, from_time, to_time};
use crate::log::topics::{aside_table, known_table, message_tables, topic_id, wrong_row};
use crate::schema::{self, LOCK_CLASS};
use crate::store::{Postgres, topic_error};

/// A statement and its values must fit into one protocol message, which is limited to 1 GiB.
const MAX_BYTES: usize = 768 << 20;

/// The id of our transaction as messages carry it.
pub(crate) fn xid(schema: &str) -> String {
    format!("(SELECT pg_current_xact_id()::text::int8 + shift FROM {schema}.meta)")
}

/// A row to insert: one message or a pack of messages.
struct Row<'a> {
    shard: u16,
    /// The number of its last message.
    number: i64,
    content: Content<'a>,
}

enum Content<'a> {
    One { record: &'a Record, later: bool },
    Many(Pack),
}

/// Groups records into rows. Within a shard, messages are numbered in the order of the push.
fn rows(records: &[Record], now: Timestamp) -> Vec<Row<'_>> {
    let (mut rows, mut open, mut seen) = (Vec::new(), BTreeMap::new(), HashSet::new());
    for record in records {
        let (shard, message) = (record.shard, &record.message);
        let later = message.due.is_some_and(|due| due > now);
        if record.repeatable || later {
            // An id that appears twice in one call is added once; the first one wins.
            if !record.repeatable || seen.insert(message.id.as_u128()) {
                // Delayed messages have no order relative to the others.
                let before = if later { None } else { open.remove(&shard) };
                close(&mut rows, shard, before);
                let number = next_number(&rows, 1);
                rows.push(Row { shard, number, content: Content::One { record, later } });
            }
            continue;
        }
        match open.get_mut(&shard) {
            Some((_, pack)) if Pack::takes(pack, message) => pack.add(message),
            _ => {
                let full = open.insert(shard, (record, Pack::new(message)));
                close(&mut rows, shard, full);
            }
        }
    }
    for (shard, pack) in open {
        close(&mut rows, shard, Some(pack));
    }
    rows
}

/// Adds a pack as a row. A single message is stored unpacked.
fn close<'a>(rows: &mut Vec<Row<'a>>, shard: u16, pack: Option<(&'a Record, Pack)>) {
    let Some((record, pack)) = pack else { return };
    let number = next_number(rows, pack.many);
    let content = if pack.many == 1 { Content::One { record, later: false } } else { Content::Many(pack) };
    rows.push(Row { shard, number, content });
}

/// Returns the number of the last of `many` messages that follow these rows.
fn next_number(rows: &[Row<'_>], many: usize) -> i64 {
    rows.last().map_or(0, |row| row.number) + i64::try_from(many).unwrap_or(i64::MAX)
}

/// The rows in columnar form, as statement parameters.
#[derive(Default)]
struct Columns<'a> {
    shards: Vec<i16>,
    numbers: Vec<i64>,
    ids: Vec<Id>,
    created: Vec<i64>,
    due: Vec<Option<i64>>,
    keys: Vec<Option<&'a [u8]>>,
    headers: Vec<Option<Vec<u8>>>,
    payloads: Vec<&'a [u8]>,
    again: Vec<bool>,
    later: Vec<bool>,
    many: Vec<i32>,
}

impl<'a> Columns<'a> {
    fn add(&mut self, row: &'a Row<'a>) {
        self.shards.push(from_shard(row.shard));
        self.numbers.push(row.number);
        match &row.content {
            Content::One { record, later } => {
                let message = &record.message;
                self.ids.push(Id(message.id.as_u128()));
                self.created.push(from_time(message.created));
                self.due.push(message.due.map(from_time));
                self.keys.push(message.key.as_deref());
                self.headers.push((!message.headers.is_empty()).then(|| message.headers.encode()));
                self.payloads.push(&message.payload);
                self.again.push(record.repeatable);
                self.later.push(*later);
                self.many.push(1);
            }
            Content::Many(pack) => {
                self.ids.push(Id(pack.first.as_u128()));
                self.created.push(from_time(pack.created));
                self.due.push(None);
                self.keys.push(None);
                self.headers.push(None);
                self.payloads.push(&pack.bytes);
                self.again.push(false);
                self.later.push(false);
                self.many.push(i32::try_from(pack.many).unwrap_or(i32::MAX));
            }
        }
    }

    fn params(&self) -> [Param<'_>; 11] {
        [
            (&self.shards, Type::INT2_ARRAY),
            (&self.numbers, Type::INT8_ARRAY),
            (&self.ids, Type::UUID_ARRAY),
            (&self.created, Type::INT8_ARRAY),
            (&self.due, Type::INT8_ARRAY),
            (&self.keys, Type::BYTEA_ARRAY),
            (&self.headers, Type::BYTEA_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.many, Type::INT4_ARRAY),
            (&self.again, Type::BOOL_ARRAY),
            (&self.later, Type::BOOL_ARRAY),
        ]
    }
}

/// The values of [`Columns::params`] as rows.
const INPUT: &str =
    "unnest($1::int2[], $2::int8[], $3::uuid[], $4::int8[], $5::int8[], $6::bytea[], $7::bytea[],
     $8::bytea[], $9::int4[], $10::bool[], $11::bool[])
     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many, again, later)";

/// The function that appends messages that are due and not repeatable.
pub(crate) fn function(schema: &str, id: i64) -> String {
    format!("{schema}.add_{id}")
}

/// Creates that function, for the same reason as [the one that reads](crate::log::read::make_function). Its
/// parameters are the first nine of [`Columns::params`] and the number of the table.
pub(crate) fn make_function(schema: &str, id: i64) -> String {
    let insert = |(current, table): (usize, &String)| {
        format!(
            "IF $10 = {current} THEN
                 INSERT INTO {table} (xid, n, many, {COLUMNS})
                 SELECT {}, n, many, shard, id, created_ms, due_ms, false, key, headers, payload
                 FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9)
                     AS input(shard, n, id, created_ms, due_ms, key, headers, payload, many);
             END IF;",
            xid(schema)
        )
    };
    let inserts: Vec<String> = message_tables(schema, id).iter().enumerate().map(insert).collect();
    format!(
        "CREATE FUNCTION {}(int2[], int8[], uuid[], int8[], int8[], bytea[], bytea[], bytea[], int4[], int4)
         RETURNS void LANGUAGE plpgsql AS $sawmill$ BEGIN {} END $sawmill$;",
        function(schema, id),
        inserts.join(" ")
    )
}

pub(crate) const COLUMNS: &str = "shard, id, created_ms, due_ms, again, key, headers, payload";

impl Postgres {
    /// See [`sawmill_engine::storage::Log::append`].
    pub(crate) async fn append_records(
        &self,
        topic: &Topic,
        now: Timestamp,
        records: &[Record],
    ) -> Result<()> {
        if let Some(record) = records.iter().find(|record| record.shard >= topic.shards) {
            return Err(topic.no_shard(record.shard));
        }
        let bytes =
            records.iter().map(|record| 200 + record.message.payload.len()).fold(0, usize::saturating_add);
        if bytes > MAX_BYTES {
            let said = format!(
                "{bytes} bytes are more than can be appended at once ({MAX_BYTES}): push in smaller batches"
            );
            return Err(Error::new(ErrorKind::TooLarge, said));
        }
        let current = self.current_table(topic).await?;
        let (rows, mut columns) = (rows(records, now), Columns::default());
        if rows.is_empty() {
            return Ok(());
        }
        rows.iter().for_each(|row| columns.add(row));
        let params = columns.params();
        if columns.again.contains(&true) || columns.later.contains(&true) {
            let sql = self.insert_some(topic, current)?;
            self.query_topic(topic, Effect::Writes, &sql, &params).await?;
        } else {
            let function = function(self.schema(), topic_id(topic)?);
            let current = i32::try_from(current).unwrap_or(i32::MAX);
            let [shards, numbers, ids, created, due, keys, headers, payloads, many, ..] = params;
            let table = (&current as &(dyn ToSql + Sync), Type::INT4);
            let params = [shards, numbers, ids, created, due, keys, headers, payloads, many, table];
            let sql = format!("SELECT {function}($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)");
            self.query_topic(topic, Effect::Writes, &sql, &params).await?;
        }
        self.notifier().messages_changed(Some(&topic.uid));
        Ok(())
    }

    /// The statement for messages that may exist already or are not due. It takes ids in sorted order, so two
    /// clients that append the same ids wait for each other without a deadlock.
    fn insert_some(&self, topic: &Topic, current: usize) -> Result<String> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let (table, aside) = (&message_tables(schema, id)[current], aside_table(schema, id));
        let (known, xid) = (known_table(schema, id), xid(schema));
        Ok(format!(
            "WITH input AS MATERIALIZED (SELECT * FROM {INPUT}),
             fresh AS (
                 INSERT INTO {known} (id) SELECT id FROM input WHERE again ORDER BY id
                 ON CONFLICT (id) DO NOTHING RETURNING id),
             wanted AS MATERIALIZED (SELECT * FROM input WHERE NOT again OR id IN (SELECT id FROM fresh)),
             ready AS (
                 INSERT INTO {table} (xid, n, many, {COLUMNS})
                 SELECT {xid}, n, many, {COLUMNS} FROM wanted WHERE NOT later)
             INSERT INTO {aside} ({COLUMNS}) SELECT {COLUMNS} FROM wanted WHERE later ORDER BY n"
        ))
    }

    /// See [`sawmill_engine::storage::Log::promote`].
    pub(crate) async fn promote_due(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        let aside = aside_table(self.schema(), topic_id(topic)?);
        let sql = next_due(&aside);
        // Usually nothing is due, and then no lock is needed.
        let rows = self.query_topic(topic, Effect::Reads, &sql, &[]).await?;
        let next = rows.first().map(due).transpose()?.flatten();
        if limit == 0 || next.is_none_or(|due| due > now) {
            return Ok(Promoted { moved: 0, next_due: next });
        }
        let current = self.current_table(topic).await?;
        let lease = self.lease().await?;
        let promoted =
            lease.bounded(async |client| self.move_due(client, topic, current, now, limit).await).await;
        let promoted = promoted.map_err(|failure| topic_error(topic, failure, Effect::Writes))?;
        if promoted.moved > 0 {
            self.notifier().messages_changed(Some(&topic.uid));
        }
        Ok(promoted)
    }

    /// Only one client promotes at a time, and its transaction gets its id after the previous one has ended.
    /// So messages that are due earlier come first.
    async fn move_due(
        &self,
        client: &mut Client,
        topic: &Topic,
        current: usize,
        now: Timestamp,
        limit: usize,
    ) -> Result<Promoted, Failure> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let (table, aside) = (&message_tables(schema, id)[current], aside_table(schema, id));
        let transaction = schema::begin(client).await?;
        let lock = "SELECT pg_advisory_xact_lock($1, hashtext($2))";
        transaction.query_typed(lock, &[(&LOCK_CLASS, Type::INT4), (&aside, Type::TEXT)]).await?;
        let sql = format!(
            "WITH due AS (
                 DELETE FROM {aside} WHERE seq IN
                     (SELECT seq FROM {aside} WHERE due_ms <= $1 ORDER BY due_ms, seq LIMIT $2) RETURNING *)
             INSERT INTO {table} (xid, n, {COLUMNS})
             SELECT {}, row_number() OVER (ORDER BY due_ms, seq), {COLUMNS} FROM due",
            xid(schema)
        );
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let params: [Param<'_>; 2] = [(&from_time(now), Type::INT8), (&limit, Type::INT8)];
        let moved = transaction.execute_typed(&sql, &params).await?;
        let next_due = due(&transaction.query_typed_one(&next_due(&aside), &[]).await?)?;
        transaction.commit().await?;
        Ok(Promoted { moved: usize::try_from(moved).unwrap_or(usize::MAX), next_due })
    }
}

fn next_due(aside: &str) -> String {
    format!("SELECT min(due_ms) FROM {aside}")
}

fn due(row: &tokio_postgres::Row) -> Result<Option<Timestamp>> {
    let millis: Option<i64> = row.try_get(0).map_err(wrong_row)?;
    let time = |millis| to_time(millis).ok_or_else(|| corrupt(format!("a message that is due at {millis}")));
    millis.map(time).transpose()
}
