//! Removing what is not needed any more, a bounded number of rows in one transaction: messages that all groups are past, and what
//! deleted topics have left behind.

use sawmill::clock::Timestamp;
use sawmill::topic::Topic;

use crate::connections::Line;
use crate::counter::{self, one};
use crate::error::Failure;
use crate::row::{field, only, topic_id};
use crate::schema::Tables;
use crate::sql::Sql;

/// How many messages are looked at in one transaction.
const MANY: usize = 1_000;

/// What a part of a trim did.
pub(crate) struct Trimmed {
    pub(crate) dropped: u64,
    /// Where to go on; `None` at the end.
    pub(crate) next: Option<u64>,
}

/// Trims a part of what [`sawmill::log::Log::trim`] may trim: what lies after the number `from`. It stops at a stretch in which nothing
/// is old enough, so that trimming often costs little.
///
/// The shard's counter is held only for the end of it, so that those who append do not wait.
pub(crate) async fn trim(
    line: &mut Line,
    tables: &Tables,
    topic: &Topic,
    shard: u16,
    (from, upto): (u64, u64),
    before: Timestamp,
) -> Result<Trimmed, Failure> {
    one(&counter::all(line, tables, topic).await?, topic, shard)?;
    let (id, table) = (topic_id(topic)?, &tables.message);
    let sql = Sql::new(format_args!(
        "SELECT MAX(number), COUNT(*) FROM (SELECT number FROM {table} WHERE topic = {id} AND shard = {shard}
         AND number > {from} AND number <= {upto} ORDER BY number LIMIT {MANY}) AS part"
    ));
    let Some(mut row) = line.ask(&sql).await?.pop().and_then(|answer| only(answer.rows)) else {
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
    // Ids that may be appended again are known as long as their messages are there. These rows are held, so that nobody else
    // removes them meanwhile.
    begin.then(format_args!(
        "SELECT id FROM {table} WHERE {old} AND repeatable = 1 ORDER BY number FOR UPDATE"
    ));
    begin.then(format_args!("DELETE FROM {table} WHERE {old}"));
    let mut answers = line.begin(&mut begin).await?;
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
    line.commit(end_of_it).await?;
    Ok(Trimmed { dropped, next: (dropped > 0 && seen == MANY).then_some(end) })
}

/// Removes some of what deleted topics have left, also those that a process left when it ended. True if there may be more.
pub(crate) async fn sweep(line: &mut Line, tables: &Tables) -> Result<bool, Failure> {
    let sql = Sql::new(format_args!("SELECT topic FROM {} ORDER BY topic LIMIT 1", tables.leftover));
    let Some(mut row) = line.ask(&sql).await?.pop().and_then(|answer| only(answer.rows)) else {
        return Ok(false);
    };
    let id: u64 = field(&mut row, 0)?;
    let mut whole = true;
    for table in [&tables.message, &tables.aside, &tables.once] {
        let sql = Sql::new(format_args!("DELETE FROM {table} WHERE topic = {id} LIMIT {MANY}"));
        whole &= line.write(&sql).await?.changed < MANY as u64;
    }
    if whole {
        let sql = Sql::new(format_args!("DELETE FROM {} WHERE topic = {id}", tables.leftover));
        line.write(&sql).await?;
    }
    Ok(true)
}
