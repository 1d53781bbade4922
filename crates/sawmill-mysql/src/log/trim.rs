//! Removes messages that are not needed any more, in transactions of bounded size: messages that all groups
//! have passed, and messages of deleted topics.

use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Timestamp;

use crate::connection::connections::Connection;
use crate::connection::sql::Sql;
use crate::error::Failure;
use crate::log::counter::{self, one};
use crate::log::row::{field, only, topic_id};
use crate::schema::Tables;

/// The maximum number of rows per transaction.
const MAX_ROWS: usize = 1_000;

/// The result of one part of a trim.
pub(crate) struct Trimmed {
    pub(crate) dropped: u64,
    /// Where to continue; `None` at the end.
    pub(crate) next: Option<u64>,
}

/// Performs a part of [`sawmill_engine::storage::Log::trim`], beginning after the number `from`. Stops at a
/// range in which nothing is old enough, so frequent trims are cheap.
///
/// The shard's counter is locked only at the end, so appends do not wait.
pub(crate) async fn trim(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
    shard: u16,
    (from, upto): (u64, u64),
    before: Timestamp,
) -> Result<Trimmed, Failure> {
    one(&counter::all(connection, tables, topic).await?, topic, shard)?;
    let (id, table) = (topic_id(topic)?, &tables.message);
    let sql = Sql::new(format_args!(
        "SELECT MAX(number), COUNT(*) FROM (SELECT number FROM {table} WHERE topic = {id} AND shard = {shard}
         AND number > {from} AND number <= {upto} ORDER BY number LIMIT {MAX_ROWS}) AS part"
    ));
    let Some(mut row) = connection.ask(&sql).await?.pop().and_then(|answer| only(answer.rows)) else {
        return Ok(Trimmed { dropped: 0, next: None });
    };
    let (end, seen): (Option<u64>, usize) = (field(&mut row, 0)?, field(&mut row, 1)?);
    let Some(end) = end else {
        return Ok(Trimmed { dropped: 0, next: None });
    };
    let old = format!(
        "topic = {id} AND shard = {shard} AND number > {from} AND number <= {end} AND created_ms < {}",
        before.as_millis()
    );
    let mut begin = Sql::new("START TRANSACTION");
    // The ids of repeatable messages are remembered as long as the messages exist. The rows are locked so
    // nobody else removes them meanwhile.
    begin.then(format_args!(
        "SELECT id FROM {table} WHERE {old} AND repeatable = 1 ORDER BY number FOR UPDATE"
    ));
    begin.then(format_args!("DELETE FROM {table} WHERE {old}"));
    let mut answers = connection.begin(&mut begin).await?;
    let dropped = answers.pop().unwrap_or_default().changed;
    let known = answers.pop().unwrap_or_default().rows;
    let mut end_of_it = Sql::new(format_args!(
        "UPDATE {} SET kept = kept - {dropped} WHERE topic = {id} AND number = {shard}",
        tables.shard
    ));
    if !known.is_empty() {
        let ids = known.into_iter().map(|mut row| field(&mut row, 0)).collect::<Result<Vec<Vec<u8>>, _>>()?;
        end_of_it.then(format_args!("DELETE FROM {} WHERE topic = {id} AND id IN (", tables.once));
        end_of_it.list(&ids, |sql, id| sql.bytes(id)).add(")");
    }
    connection.commit(end_of_it).await?;
    Ok(Trimmed { dropped, next: (dropped > 0 && seen == MAX_ROWS).then_some(end) })
}

/// Removes some messages of deleted topics, including those deleted by a process that has ended. Returns true
/// if there may be more.
pub(crate) async fn sweep(connection: &mut Connection, tables: &Tables) -> Result<bool, Failure> {
    let sql = Sql::new(format_args!("SELECT topic FROM {} ORDER BY topic LIMIT 1", tables.leftover));
    let Some(mut row) = connection.ask(&sql).await?.pop().and_then(|answer| only(answer.rows)) else {
        return Ok(false);
    };
    let id: u64 = field(&mut row, 0)?;
    let mut whole = true;
    for table in [&tables.message, &tables.aside, &tables.once] {
        let sql = Sql::new(format_args!("DELETE FROM {table} WHERE topic = {id} LIMIT {MAX_ROWS}"));
        whole &= connection.write(&sql).await?.changed < MAX_ROWS as u64;
    }
    if whole {
        let sql = Sql::new(format_args!("DELETE FROM {} WHERE topic = {id}", tables.leftover));
        connection.write(&sql).await?;
    }
    Ok(true)
}
