//! Promotes delayed messages that have become due.

use std::collections::BTreeSet;

use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Promoted;

use crate::connection::connections::Connection;
use crate::connection::sql::Sql;
use crate::error::{Failure, corrupt};
use crate::log::append::{Batch, Target};
use crate::log::counter::HeldCounters;
use crate::log::row::{MESSAGE, field, message, only, topic_id};
use crate::schema::Tables;

/// The approximate limits of one transaction.
const MAX_MESSAGES: usize = 1_000;
const MAX_BYTES: u64 = 16 << 20;

/// Returns the due time of the first delayed message.
pub(crate) async fn next_due(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
) -> Result<Option<Timestamp>, Failure> {
    let id = topic_id(topic)?;
    let sql = Sql::new(format_args!(
        "SELECT MIN(due_ms), EXISTS (SELECT 1 FROM {} WHERE topic = {id}) FROM {} WHERE topic = {id}",
        tables.shard, tables.aside
    ));
    let row = connection.ask(&sql).await?.pop().and_then(|answer| only(answer.rows));
    let Some(mut row) = row else { return Ok(None) };
    let (next, is_there): (Option<u64>, bool) = (field(&mut row, 0)?, field(&mut row, 1)?);
    // A topic that does not exist has no delayed messages.
    if next.is_none() && !is_there {
        return Err(topic.missing().into());
    }
    Ok(next.map(Timestamp::from_millis))
}

/// Promotes some due messages in one transaction.
pub(crate) async fn promote(
    connection: &mut Connection,
    target: Target<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Promoted, Failure> {
    let due = due(connection, target, now, limit.min(MAX_MESSAGES)).await?;
    let moved = if due.is_empty() { 0 } else { move_due(connection, target, &due).await? };
    Ok(Promoted { moved, next_due: next_due(connection, target.tables, target.topic).await? })
}

/// Returns the first due messages: their numbers in the table and their shards.
async fn due(
    connection: &mut Connection,
    target: Target<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(u64, u16)>, Failure> {
    let sql = Sql::new(format_args!(
        "SELECT seq, shard, size FROM {} WHERE topic = {} AND due_ms <= {} ORDER BY due_ms, seq LIMIT {limit}",
        target.tables.aside,
        topic_id(target.topic)?,
        now.as_millis()
    ));
    let rows = connection.ask(&sql).await?.pop().unwrap_or_default().rows;
    let (mut due, mut bytes) = (Vec::with_capacity(rows.len()), 0);
    for mut row in rows {
        bytes += field::<u64>(&mut row, 2)?;
        if bytes > MAX_BYTES && !due.is_empty() {
            break;
        }
        due.push((field(&mut row, 0)?, field(&mut row, 1)?));
    }
    Ok(due)
}

/// Moves those of these messages that nobody else has moved. Moving a message requires its shard's counter,
/// so messages that still exist once the counters are locked stay until they are released.
async fn move_due(
    connection: &mut Connection,
    target: Target<'_>,
    due: &[(u64, u16)],
) -> Result<usize, Failure> {
    let shards: BTreeSet<u16> = due.iter().map(|(_, shard)| *shard).collect();
    let mut held = HeldCounters::take(connection, target.tables, target.topic, &shards).await?;
    let numbers = |sql: &mut Sql| {
        sql.add("(").list(due, |sql, (seq, _)| sql.add(seq)).add(")");
    };
    let mut select = Sql::new(format_args!(
        "SELECT seq, {MESSAGE}, shard, repeatable FROM {} WHERE seq IN ",
        target.tables.aside
    ));
    numbers(&mut select);
    select.add(" ORDER BY due_ms, seq");
    let rows = connection.ask(&select).await?.pop().unwrap_or_default().rows;
    let moved = rows.len();
    let mut batch = Batch::new(target)?;
    for mut row in rows {
        let (shard, repeatable): (u16, bool) = (field(&mut row, 7)?, field(&mut row, 8)?);
        let (seq, message) = message(row)?;
        let number = held.number(target.topic, shard, &message).map_err(|_| {
            corrupt(format!("a message kept aside (number {seq}) for a strange shard {shard}"))
        })?;
        batch.add(connection, shard, number, &message, repeatable).await?;
    }
    let mut delete = Sql::new(format_args!("DELETE FROM {} WHERE seq IN ", target.tables.aside));
    numbers(&mut delete);
    batch.commit(connection, &held, vec![delete]).await?;
    Ok(moved)
}
