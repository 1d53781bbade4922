//! Writes to the log: appending, promoting due messages, and trimming.

use std::sync::LazyLock;

use rusqlite::{Connection, OptionalExtension, params};
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{Promoted, Record};
use sawmill_engine::{Error, ErrorKind};

use crate::error::{Failure, corrupt};
use crate::log::row::{LAST_NUMBER, from_time, to_time};
use crate::log::tail::{Appended, Changes};
use crate::threads::batch::{Batch, OpenTopic};

/// Rows examined in one trim transaction.
const TRIM: i64 = 1_000;

/// Estimates the bytes that appending these records writes.
pub(crate) fn weight(records: &[Record]) -> usize {
    records.iter().map(|record| 200 + record.message.payload.len()).fold(256, usize::saturating_add)
}

/// See [`sawmill_engine::storage::Log::append`].
pub(crate) fn append(
    batch: &mut Batch<'_>,
    topic: &Topic,
    now: Timestamp,
    records: &[Record],
) -> Result<(), Failure> {
    let (connection, open) = batch.topic(topic)?;
    // All refusals come before the first write.
    for record in records {
        let shard = open.shard(connection, topic, record.shard)?;
        if shard.room() < records.len() as u64 {
            return Err(out_of_numbers(topic, record.shard).into());
        }
    }
    let later = |record: &Record| record.message.due.is_some_and(|due| due > now);
    if !records.iter().any(|record| record.repeatable || later(record)) {
        append_new(connection, open, topic, records)?;
        batch.messages_changed = true;
        return Ok(());
    }
    // Most topics keep nothing aside, so there is nothing to compare with.
    let again = records.iter().any(|record| record.repeatable);
    let aside = again && (records.iter().any(later) || keeps_aside(connection, open.id)?);
    let mut insert = connection.prepare_cached(
        "INSERT INTO message (pos, topic, id, created_ms, due_ms, key, headers, payload)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let mut insert_once = connection.prepare_cached(
        "INSERT INTO message (pos, topic, id, created_ms, due_ms, key, headers, payload, repeatable)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 1) ON CONFLICT (topic, id) WHERE repeatable DO NOTHING",
    )?;
    for record in records {
        if later(record) {
            keep_aside(connection, open.id, record)?;
            continue;
        }
        let message = &record.message;
        let id = message.id.as_u128().to_be_bytes();
        let again = record.repeatable;
        if again
            && aside
            && is_known(connection, "SELECT 1 FROM aside WHERE topic = ?1 AND id = ?2", open.id, &id)?
        {
            continue;
        }
        let topic_id = open.id;
        let shard = open.known(topic, record.shard)?;
        let headers = (!message.headers.is_empty()).then(|| message.headers.encode());
        let insert = if again { &mut insert_once } else { &mut insert };
        let added = insert.execute(params![
            shard.next(),
            topic_id,
            id,
            from_time(message.created),
            message.due.map(from_time),
            message.key.as_deref(),
            headers,
            &message.payload[..],
        ])?;
        if added > 0 {
            shard.add();
        }
    }
    batch.messages_changed = true;
    Ok(())
}

/// Appends due messages that cannot exist yet, many per statement: starting a statement costs as much as
/// storing a message.
fn append_new(
    connection: &Connection,
    open: &mut OpenTopic,
    topic: &Topic,
    records: &[Record],
) -> Result<(), Failure> {
    let keeps = Changes::are_few(open.appended.len() + records.len());
    let chunks = records.chunks_exact(MANY);
    let rest = chunks.remainder();
    for (chunk, sql) in
        chunks.map(|chunk| (chunk, &*INSERT_MANY)).chain(rest.chunks(1).map(|one| (one, &*INSERT_ONE)))
    {
        let mut insert = connection.prepare_cached(sql)?;
        insert.raw_bind_parameter(1, open.id)?;
        for (record, at) in chunk.iter().zip((2..).step_by(COLUMNS)) {
            let message = &record.message;
            let shard = open.known(topic, record.shard)?;
            insert.raw_bind_parameter(at, shard.next())?;
            shard.add();
            if keeps {
                let (number, message) = (shard.last().unsigned_abs(), message.clone());
                open.appended.push(Appended { topic: open.id, shard: record.shard, number, message });
            }
            insert.raw_bind_parameter(at + 1, message.id.as_u128().to_be_bytes())?;
            insert.raw_bind_parameter(at + 2, from_time(message.created))?;
            insert.raw_bind_parameter(at + 3, message.due.map(from_time))?;
            insert.raw_bind_parameter(at + 4, message.key.as_deref())?;
            let headers = (!message.headers.is_empty()).then(|| message.headers.encode());
            insert.raw_bind_parameter(at + 5, headers)?;
            insert.raw_bind_parameter(at + 6, &message.payload[..])?;
        }
        insert.raw_execute()?;
    }
    Ok(())
}

/// Messages appended by one statement, and parameters of each message.
const MANY: usize = 16;
const COLUMNS: usize = 7;

static INSERT_ONE: LazyLock<String> = LazyLock::new(|| insert_new(1));
static INSERT_MANY: LazyLock<String> = LazyLock::new(|| insert_new(MANY));

/// Builds the insert statement. A position that is already taken means a damaged database. `OR ROLLBACK` then
/// undoes the whole transaction, so SQLite needs no statement journal.
fn insert_new(count: usize) -> String {
    let row = |first: usize| {
        let own: Vec<String> = (first + 1..first + COLUMNS).map(|at| format!("?{at}")).collect();
        format!("(?{first}, ?1, {})", own.join(", "))
    };
    let rows: Vec<String> = (2..).step_by(COLUMNS).take(count).map(row).collect();
    format!(
        "INSERT OR ROLLBACK INTO message (pos, topic, id, created_ms, due_ms, key, headers, payload) VALUES {}",
        rows.join(", ")
    )
}

fn keeps_aside(connection: &Connection, topic: i64) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT 1 FROM aside WHERE topic = ?1 LIMIT 1")?
        .query_row(params![topic], |_| Ok(()))
        .optional()
        .map(|found| found.is_some())
}

fn is_known(connection: &Connection, sql: &str, topic: i64, id: &[u8; 16]) -> rusqlite::Result<bool> {
    connection
        .prepare_cached(sql)?
        .query_row(params![topic, id], |_| Ok(()))
        .optional()
        .map(|found| found.is_some())
}

fn keep_aside(connection: &Connection, topic: i64, record: &Record) -> rusqlite::Result<()> {
    let message = &record.message;
    let id = message.id.as_u128().to_be_bytes();
    let known = "SELECT 1 FROM message WHERE topic = ?1 AND id = ?2 AND repeatable";
    if record.repeatable && is_known(connection, known, topic, &id)? {
        return Ok(());
    }
    let headers = (!message.headers.is_empty()).then(|| message.headers.encode());
    connection
        .prepare_cached(
            "INSERT INTO aside (topic, shard, id, created_ms, due_ms, key, headers, payload, repeatable)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT (topic, id) DO NOTHING",
        )?
        .execute(params![
            topic,
            record.shard,
            id,
            from_time(message.created),
            message.due.map(from_time),
            message.key.as_deref(),
            headers,
            &message.payload[..],
            record.repeatable.then_some(1),
        ])
        .map(|_| ())
}

fn out_of_numbers(topic: &Topic, shard: u16) -> Error {
    Error::new(
        ErrorKind::Full,
        format!(
            "shard {shard} of topic {} has had as many messages as it can number: go on with a new topic",
            topic.name
        ),
    )
}

/// See [`sawmill_engine::storage::Log::promote`].
pub(crate) fn promote(
    batch: &mut Batch<'_>,
    topic: &Topic,
    now: Timestamp,
    limit: usize,
) -> Result<Promoted, Failure> {
    let (connection, open) = batch.topic(topic)?;
    let due = due(connection, open, topic, now, limit)?;
    for (seq, shard) in &due {
        promote_one(connection, open, topic, *seq, *shard)?;
    }
    let next_due: Option<i64> = connection
        .prepare_cached("SELECT min(due_ms) FROM aside WHERE topic = ?1")?
        .query_row(params![open.id], |row| row.get(0))?;
    // An invalid time counts as due: promoting the message reports what is wrong.
    let next_due = next_due.map(|ms| to_time(ms).unwrap_or_default());
    batch.messages_changed |= !due.is_empty();
    Ok(Promoted { moved: due.len(), next_due })
}

/// Returns the first due messages and their shards, checked to exist.
fn due(
    connection: &Connection,
    open: &mut OpenTopic,
    topic: &Topic,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(i64, u16)>, Failure> {
    let mut select = connection.prepare_cached(
        "SELECT seq, shard, due_ms FROM aside WHERE topic = ?1 AND due_ms <= ?2 ORDER BY due_ms, seq LIMIT ?3",
    )?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = select.query(params![open.id, from_time(now), limit])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        let (seq, shard, due_ms): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let wrong =
            || corrupt(format!("a message kept aside (number {seq}) for shard {shard}, due at {due_ms}"));
        if due_ms < 0 {
            return Err(wrong().into());
        }
        let shard = u16::try_from(shard).ok().filter(|shard| open.has(*shard)).ok_or_else(wrong)?;
        due.push((seq, shard));
    }
    for (_, shard) in &due {
        if open.shard(connection, topic, *shard)?.room() < due.len() as u64 {
            return Err(out_of_numbers(topic, *shard).into());
        }
    }
    Ok(due)
}

fn promote_one(
    connection: &Connection,
    open: &mut OpenTopic,
    topic: &Topic,
    seq: i64,
    shard: u16,
) -> Result<(), Failure> {
    let shard = open.known(topic, shard)?;
    let added = connection
        .prepare_cached(
            "INSERT INTO message (pos, topic, id, created_ms, due_ms, key, headers, payload, repeatable)
             SELECT ?1, topic, id, created_ms, due_ms, key, headers, payload, repeatable FROM aside WHERE seq = ?2
             ON CONFLICT (topic, id) WHERE repeatable DO NOTHING",
        )?
        .execute(params![shard.next(), seq])?;
    if added > 0 {
        shard.add();
    }
    connection.prepare_cached("DELETE FROM aside WHERE seq = ?1")?.execute(params![seq])?;
    Ok(())
}

/// The result of one trim step.
pub(crate) struct Trimmed {
    pub(crate) dropped: u64,
    /// Where the next step starts; `None` at the end.
    pub(crate) next: Option<i64>,
}

/// Runs one bounded step of [`sawmill_engine::storage::Log::trim`], after the number `from`. Stops at a range
/// in which nothing is old enough, so frequent trims cost little.
pub(crate) fn trim(
    batch: &mut Batch<'_>,
    topic: &Topic,
    shard: u16,
    from: i64,
    upto: u64,
    before: Timestamp,
) -> Result<Trimmed, Failure> {
    let (connection, open) = batch.topic(topic)?;
    let shard = open.shard(connection, topic, shard)?;
    let (from, upto) =
        (shard.base | from, shard.base | i64::try_from(upto).unwrap_or(LAST_NUMBER).min(LAST_NUMBER));
    let (end, seen): (Option<i64>, i64) = connection
        .prepare_cached(
            "SELECT max(pos), count(*) FROM
             (SELECT pos FROM message WHERE pos > ?1 AND pos <= ?2 ORDER BY pos LIMIT ?3)",
        )?
        .query_row(params![from, upto, TRIM], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let Some(end) = end else {
        return Ok(Trimmed { dropped: 0, next: None });
    };
    let dropped = connection
        .prepare_cached("DELETE FROM message WHERE pos > ?1 AND pos <= ?2 AND created_ms < ?3")?
        .execute(params![from, end, from_time(before)])? as u64;
    if dropped > 0 {
        shard.remove(dropped);
    }
    let next = (dropped > 0 && seen == TRIM).then_some(end & LAST_NUMBER);
    Ok(Trimmed { dropped, next })
}
