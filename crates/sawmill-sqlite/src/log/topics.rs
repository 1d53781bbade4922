//! Creating, finding and deleting topics, and removing the leftovers of deleted ones.

use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row, params};
use sawmill_engine::model::{MAX_SHARDS, Topic, TopicName, TopicSpec};
use sawmill_engine::{Error, ErrorKind};

use crate::error::{Failure, corrupt};
use crate::log::row::{LAST_NUMBER, topic_id, uid};
use crate::threads::batch::Batch;

/// Rows of a deleted topic removed in one transaction.
const SWEEP: i64 = 2_000;
/// The first shard reference that does not fit above the 40 bits of a message number.
const REFERENCES: i64 = 1 << 23;

/// See [`sawmill_engine::storage::Log::create_topic`].
pub(crate) fn create(batch: &mut Batch<'_>, spec: &TopicSpec) -> Result<Topic, Failure> {
    let (connection, namespace) = (batch.connection, batch.namespace);
    if let Some(topic) = find(connection, namespace, &spec.name)? {
        return if topic.shards == spec.shards {
            Ok(topic)
        } else {
            Err(spec.exists_with(topic.shards).into())
        };
    }
    let last: i64 = connection.query_row("SELECT coalesce(max(ref), 0) FROM shard", [], |row| row.get(0))?;
    if last.saturating_add(spec.shards.into()) >= REFERENCES {
        let said = "the database has as many shards as it can number: use another one for new topics";
        return Err(Error::new(ErrorKind::Full, said).into());
    }
    let retention_ms = i64::try_from(spec.retention.as_millis()).unwrap_or(i64::MAX);
    let id: i64 = connection
        .prepare_cached(
            "INSERT INTO topic (namespace, name, shards, retention_ms, drops_unread)
             VALUES (?1, ?2, ?3, ?4, ?5) RETURNING id",
        )?
        .query_row(
            params![namespace, spec.name.to_string(), spec.shards, retention_ms, spec.drops_unread],
            |row| row.get(0),
        )?;
    let mut insert =
        connection.prepare_cached("INSERT INTO shard (topic, number, last, kept) VALUES (?1, ?2, 0, 0)")?;
    for number in 0..spec.shards {
        insert.execute(params![id, number])?;
    }
    batch.messages_changed = true;
    Ok(Topic {
        name: spec.name.clone(),
        uid: uid(id),
        shards: spec.shards,
        retention: to_retention(retention_ms).unwrap_or(spec.retention),
        drops_unread: spec.drops_unread,
    })
}

/// See [`sawmill_engine::storage::Log::topic`].
pub(crate) fn find(
    connection: &Connection,
    namespace: &str,
    name: &TopicName,
) -> Result<Option<Topic>, Failure> {
    let mut select = connection.prepare_cached(
        "SELECT id, name, shards, retention_ms, drops_unread FROM topic WHERE namespace = ?1 AND name = ?2",
    )?;
    let mut rows = select.query(params![namespace, name.to_string()])?;
    rows.next()?.map(topic).transpose()
}

/// See [`sawmill_engine::storage::Log::topics`].
pub(crate) fn all(connection: &Connection, namespace: &str) -> Result<Vec<Topic>, Failure> {
    let mut select = connection.prepare_cached(
        "SELECT id, name, shards, retention_ms, drops_unread FROM topic WHERE namespace = ?1",
    )?;
    let mut rows = select.query(params![namespace])?;
    let mut topics = Vec::new();
    while let Some(row) = rows.next()? {
        topics.push(topic(row)?);
    }
    topics.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(topics)
}

fn topic(row: &Row<'_>) -> Result<Topic, Failure> {
    let (id, name, shards, retention_ms): (i64, String, i64, i64) =
        (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    let wrong =
        || corrupt(format!("topic t{id} named {name:?} with {shards} shards and retention {retention_ms}"));
    Ok(Topic {
        name: name.parse().map_err(|_| wrong())?,
        uid: uid(id),
        shards: u16::try_from(shards)
            .ok()
            .filter(|shards| (1..=MAX_SHARDS).contains(shards))
            .ok_or_else(wrong)?,
        retention: to_retention(retention_ms).ok_or_else(wrong)?,
        drops_unread: row.get(4)?,
    })
}

fn to_retention(ms: i64) -> Option<Duration> {
    if ms == i64::MAX { Some(Duration::MAX) } else { u64::try_from(ms).ok().map(Duration::from_millis) }
}

/// Deletes the topic. Its messages become unreachable; [`sweep`] removes them in steps.
pub(crate) fn delete(batch: &mut Batch<'_>, topic: &Topic) -> Result<bool, Failure> {
    let Ok(id) = topic_id(topic) else {
        return Ok(false);
    };
    let deleted = batch
        .connection
        .prepare_cached("DELETE FROM topic WHERE id = ?1 AND namespace = ?2")?
        .execute(params![id, batch.namespace])?;
    if deleted > 0 {
        batch.forget(id);
        batch.messages_changed = true;
    }
    Ok(deleted > 0)
}

/// Removes some leftovers of deleted topics, including those of processes that ended before removing theirs.
/// Returns true if more may remain.
pub(crate) fn sweep(connection: &Connection) -> rusqlite::Result<bool> {
    let orphan = || {
        connection
            .prepare_cached("SELECT ref, topic FROM shard WHERE topic NOT IN (SELECT id FROM topic) LIMIT 1")?
            .query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
            .optional()
    };
    if orphan()?.is_none() {
        return Ok(false);
    }
    connection.execute_batch("BEGIN IMMEDIATE")?;
    let swept = orphan().and_then(|orphan| match orphan {
        Some((reference, topic)) => sweep_shard(connection, reference, topic),
        None => Ok(()),
    });
    let ended = swept.and_then(|()| connection.execute_batch("COMMIT"));
    if ended.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    ended.map(|()| true)
}

fn sweep_shard(connection: &Connection, reference: i64, topic: i64) -> rusqlite::Result<()> {
    let full = |swept: usize| i64::try_from(swept).is_ok_and(|swept| swept >= SWEEP);
    let aside = connection
        .prepare_cached("DELETE FROM aside WHERE seq IN (SELECT seq FROM aside WHERE topic = ?1 LIMIT ?2)")?
        .execute(params![topic, SWEEP])?;
    if full(aside) {
        return Ok(());
    }
    let messages = connection
        .prepare_cached(
            "DELETE FROM message WHERE pos IN (SELECT pos FROM message WHERE pos BETWEEN ?1 AND ?2 LIMIT ?3)",
        )?
        .execute(params![reference << 40, reference << 40 | LAST_NUMBER, SWEEP])?;
    if !full(messages) {
        connection.prepare_cached("DELETE FROM shard WHERE ref = ?1")?.execute(params![reference])?;
    }
    Ok(())
}
