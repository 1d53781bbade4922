//! What adds to the log: appending, and promoting what has become due.

use std::collections::HashSet;

use sawmill::clock::Timestamp;
use sawmill::log::{Promoted, Record};
use sawmill::topic::Topic;
use sawmill::{Error, ErrorKind, Result};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::copy;
use crate::error::{Effect, Failure, corrupt};
use crate::pool::Param;
use crate::row::{Id, from_shard, from_time, to_time};
use crate::schema::{self, LOCK_CLASS};
use crate::store::{Postgres, about};
use crate::topics::{aside_table, known_table, message_tables, topic_id, wrong_row};

/// A statement and its values must fit into one message of the protocol, of a GiB at most.
const MOST_BYTES: usize = 768 << 20;

/// The number of our transaction, as messages carry it.
pub(crate) fn xid(schema: &str) -> String {
    format!("(SELECT pg_current_xact_id()::text::int8 + shift FROM {schema}.meta)")
}

/// Records as columns.
#[derive(Default)]
struct Columns<'a> {
    shards: Vec<i16>,
    ids: Vec<Id>,
    created: Vec<i64>,
    due: Vec<Option<i64>>,
    keys: Vec<Option<&'a [u8]>>,
    headers: Vec<Option<Vec<u8>>>,
    payloads: Vec<&'a [u8]>,
    again: Vec<bool>,
    later: Vec<bool>,
}

impl<'a> Columns<'a> {
    fn add(&mut self, record: &'a Record, later: bool) {
        let message = &record.message;
        self.shards.push(from_shard(record.shard));
        self.ids.push(Id(message.id.as_u128()));
        self.created.push(from_time(message.created));
        self.due.push(message.due.map(from_time));
        self.keys.push(message.key.as_deref());
        self.headers.push((!message.headers.is_empty()).then(|| message.headers.encode()));
        self.payloads.push(&message.payload);
        self.again.push(record.repeatable);
        self.later.push(later);
    }

    fn params(&self) -> [Param<'_>; 9] {
        [
            (&self.shards, Type::INT2_ARRAY),
            (&self.ids, Type::UUID_ARRAY),
            (&self.created, Type::INT8_ARRAY),
            (&self.due, Type::INT8_ARRAY),
            (&self.keys, Type::BYTEA_ARRAY),
            (&self.headers, Type::BYTEA_ARRAY),
            (&self.payloads, Type::BYTEA_ARRAY),
            (&self.again, Type::BOOL_ARRAY),
            (&self.later, Type::BOOL_ARRAY),
        ]
    }
}

/// The values of [`Columns::params`] as rows.
const INPUT: &str =
    "unnest($1::int2[], $2::uuid[], $3::int8[], $4::int8[], $5::bytea[], $6::bytea[], $7::bytea[],
     $8::bool[], $9::bool[]) WITH ORDINALITY
     AS input(shard, id, created_ms, due_ms, key, headers, payload, again, later, n)";

pub(crate) const COLUMNS: &str = "shard, id, created_ms, due_ms, again, key, headers, payload";

impl Postgres {
    /// See [`sawmill::log::Log::append`].
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
        if bytes > MOST_BYTES {
            let said = format!(
                "{bytes} bytes are more than can be appended at once ({MOST_BYTES}): push in smaller batches"
            );
            return Err(Error::new(ErrorKind::TooLarge, said));
        }
        let turn = self.turn(topic).await?;
        let is_new = |record: &Record| !record.repeatable && record.message.due.is_none_or(|due| due <= now);
        if records.len() >= copy::MANY && records.iter().all(is_new) {
            return self.copy_new(topic, turn, records).await;
        }
        let (mut columns, mut seen) = (Columns::default(), HashSet::new());
        for record in records {
            // An id that stands twice in one call is added once; the first counts.
            if !record.repeatable || seen.insert(record.message.id.as_u128()) {
                columns.add(record, record.message.due.is_some_and(|due| due > now));
            }
        }
        if columns.ids.is_empty() {
            return Ok(());
        }
        let sql = if columns.again.contains(&true) || columns.later.contains(&true) {
            self.insert_some(topic, turn)?
        } else {
            self.insert_new(topic, turn)?
        };
        self.query_topic(topic, Effect::Writes, &sql, &columns.params()).await?;
        self.news_desk().messages_changed();
        Ok(())
    }

    /// Many messages that are due and cannot be there yet.
    async fn copy_new(&self, topic: &Topic, turn: usize, records: &[Record]) -> Result<()> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let (table, number) = (&message_tables(schema, id)[turn], format!("SELECT {}", xid(schema)));
        let lease = self.lease().await?;
        let copied =
            lease.entire(async |client| copy::copy(client, table, COLUMNS, &number, records).await).await;
        copied.map_err(|failure| about(topic, failure, Effect::Writes))?;
        self.news_desk().messages_changed();
        Ok(())
    }

    /// Messages that are due and cannot be there yet: one plain insert.
    fn insert_new(&self, topic: &Topic, turn: usize) -> Result<String> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let table = &message_tables(schema, id)[turn];
        Ok(format!(
            "INSERT INTO {table} (xid, n, {COLUMNS}) SELECT {}, n, {COLUMNS} FROM {INPUT}",
            xid(schema)
        ))
    }

    /// Messages of which some may be there already, or are not due. Ids are taken in order, so that two who append the same
    /// wait for one another and not in a circle.
    fn insert_some(&self, topic: &Topic, turn: usize) -> Result<String> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let (table, aside) = (&message_tables(schema, id)[turn], aside_table(schema, id));
        let (known, xid) = (known_table(schema, id), xid(schema));
        Ok(format!(
            "WITH input AS MATERIALIZED (SELECT * FROM {INPUT}),
             fresh AS (
                 INSERT INTO {known} (id) SELECT id FROM input WHERE again ORDER BY id
                 ON CONFLICT (id) DO NOTHING RETURNING id),
             wanted AS MATERIALIZED (SELECT * FROM input WHERE NOT again OR id IN (SELECT id FROM fresh)),
             ready AS (
                 INSERT INTO {table} (xid, n, {COLUMNS}) SELECT {xid}, n, {COLUMNS} FROM wanted WHERE NOT later)
             INSERT INTO {aside} ({COLUMNS}) SELECT {COLUMNS} FROM wanted WHERE later ORDER BY n"
        ))
    }

    /// See [`sawmill::log::Log::promote`].
    pub(crate) async fn promote_due(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted> {
        let aside = aside_table(self.schema(), topic_id(topic)?);
        let sql = next_due(&aside);
        // Most often nothing is due: then nobody needs to be locked out.
        let rows = self.query_topic(topic, Effect::Reads, &sql, &[]).await?;
        let next = rows.first().map(due).transpose()?.flatten();
        if limit == 0 || next.is_none_or(|due| due > now) {
            return Ok(Promoted { moved: 0, next_due: next });
        }
        let turn = self.turn(topic).await?;
        let lease = self.lease().await?;
        let promoted =
            lease.bounded(async |client| self.move_due(client, topic, turn, now, limit).await).await;
        let promoted = promoted.map_err(|failure| about(topic, failure, Effect::Writes))?;
        if promoted.moved > 0 {
            self.news_desk().messages_changed();
        }
        Ok(promoted)
    }

    /// One promotes at a time, and has its transaction numbered when the one before it is over: so what is due earlier comes
    /// first.
    async fn move_due(
        &self,
        client: &mut Client,
        topic: &Topic,
        turn: usize,
        now: Timestamp,
        limit: usize,
    ) -> Result<Promoted, Failure> {
        let (schema, id) = (self.schema(), topic_id(topic)?);
        let (table, aside) = (&message_tables(schema, id)[turn], aside_table(schema, id));
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
