//! Making messages readable that were kept aside and have become due.

use std::collections::BTreeSet;

use sawmill::clock::Timestamp;
use sawmill::log::Promoted;
use sawmill::topic::Topic;

use crate::append::{Batch, Shelf};
use crate::connections::Line;
use crate::counter::Held;
use crate::error::{Failure, corrupt};
use crate::row::{MESSAGE, field, message, only, topic_id};
use crate::schema::Tables;
use crate::sql::Sql;

/// How many messages, and about how many bytes, are moved in one transaction.
const MANY: usize = 1_000;
const BYTES: u64 = 16 << 20;

/// When the first message that is kept aside is due.
pub(crate) async fn next_due(
    line: &mut Line,
    tables: &Tables,
    topic: &Topic,
) -> Result<Option<Timestamp>, Failure> {
    let id = topic_id(topic)?;
    let sql = Sql::new(format_args!(
        "SELECT MIN(due_ms), EXISTS (SELECT 1 FROM {} WHERE topic = {id}) FROM {} WHERE topic = {id}",
        tables.shard, tables.aside
    ));
    let row = line.ask(&sql).await?.pop().and_then(|answer| only(answer.rows));
    let Some(mut row) = row else { return Ok(None) };
    let (next, is_there): (Option<u64>, bool) = (field(&mut row, 0)?, field(&mut row, 1)?);
    // Nothing is kept aside for a topic that is not there.
    if next.is_none() && !is_there {
        return Err(topic.missing().into());
    }
    Ok(next.map(Timestamp::from_millis))
}

/// Moves some of what is due, in one transaction.
pub(crate) async fn promote(
    line: &mut Line,
    shelf: Shelf<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Promoted, Failure> {
    let due = due(line, shelf, now, limit.min(MANY)).await?;
    let moved = if due.is_empty() { 0 } else { move_over(line, shelf, &due).await? };
    Ok(Promoted { moved, next_due: next_due(line, shelf.tables, shelf.topic).await? })
}

/// The first messages that are due: their numbers in the table, and their shards.
async fn due(
    line: &mut Line,
    shelf: Shelf<'_>,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(u64, u16)>, Failure> {
    let sql = Sql::new(format_args!(
        "SELECT seq, shard, size FROM {} WHERE topic = {} AND due_ms <= {} ORDER BY due_ms, seq LIMIT {limit}",
        shelf.tables.aside,
        topic_id(shelf.topic)?,
        now.as_millis()
    ));
    let rows = line.ask(&sql).await?.pop().unwrap_or_default().rows;
    let (mut due, mut bytes) = (Vec::with_capacity(rows.len()), 0);
    for mut row in rows {
        bytes += field::<u64>(&mut row, 2)?;
        if bytes > BYTES && !due.is_empty() {
            break;
        }
        due.push((field(&mut row, 0)?, field(&mut row, 1)?));
    }
    Ok(due)
}

/// Moves those of these messages that nobody else has moved. Whoever moves a message holds its shard's counter: so what is
/// still there once the counters are held stays until they are let go.
async fn move_over(line: &mut Line, shelf: Shelf<'_>, due: &[(u64, u16)]) -> Result<usize, Failure> {
    let shards: BTreeSet<u16> = due.iter().map(|(_, shard)| *shard).collect();
    let mut held = Held::take(line, shelf.tables, shelf.topic, &shards).await?;
    let numbers = |sql: &mut Sql| {
        sql.add("(").list(due, |sql, (seq, _)| sql.add(seq)).add(")");
    };
    let mut select = Sql::new(format_args!(
        "SELECT seq, {MESSAGE}, shard, repeatable FROM {} WHERE seq IN ",
        shelf.tables.aside
    ));
    numbers(&mut select);
    select.add(" ORDER BY due_ms, seq");
    let rows = line.ask(&select).await?.pop().unwrap_or_default().rows;
    let moved = rows.len();
    let mut batch = Batch::new(shelf)?;
    for mut row in rows {
        let (shard, repeatable): (u16, bool) = (field(&mut row, 7)?, field(&mut row, 8)?);
        let (seq, message) = message(row)?;
        let number = held.number(shelf.topic, shard, &message).map_err(|_| {
            corrupt(format!("a message kept aside (number {seq}) for a strange shard {shard}"))
        })?;
        batch.add(line, shard, number, &message, repeatable).await?;
    }
    let mut delete = Sql::new(format_args!("DELETE FROM {} WHERE seq IN ", shelf.tables.aside));
    numbers(&mut delete);
    batch.commit(line, &held, vec![delete]).await?;
    Ok(moved)
}
