//! Searches of the log: find a message, positions by time, and the size of the backlog.

use sawmill_engine::model::{MessageId, Topic};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{Backlog, FoundMessage, Position};

use crate::connection::connections::{Answer, Connection};
use crate::connection::sql::Sql;
use crate::error::{Failure, corrupt};
use crate::log::counter::{self, Counter, one};
use crate::log::row::{MESSAGE, field, id_bytes, message, only, topic_id};
use crate::schema::Tables;

/// See [`sawmill_engine::storage::Log::find`]. Scans the topic: ids are not indexed, which keeps pushes fast.
pub(crate) async fn find(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
    id: MessageId,
) -> Result<Option<FoundMessage>, Failure> {
    counter::all(connection, tables, topic).await?;
    let topic = topic_id(topic)?;
    let mut sql = Sql::new(format_args!(
        "SELECT seq, {MESSAGE}, shard FROM {} WHERE topic = {topic} AND id = ",
        tables.aside
    ));
    sql.bytes(&id_bytes(id)).add(" LIMIT 1");
    sql.then(format_args!(
        "SELECT number, {MESSAGE}, shard FROM {} WHERE topic = {topic} AND id = ",
        tables.message
    ));
    sql.bytes(&id_bytes(id)).add(" LIMIT 1");
    let mut answers = connection.ask(&sql).await?;
    let (ready, aside) = (first_row(answers.pop()), first_row(answers.pop()));
    // It may have been promoted between the two queries.
    let (row, is_ready) = match (ready, aside) {
        (Some(row), _) => (row, true),
        (None, Some(row)) => (row, false),
        (None, None) => return Ok(None),
    };
    let mut row = row;
    let shard = field(&mut row, 7)?;
    let (number, message) = message(row)?;
    let before = is_ready.then(|| Position::from_number(number.saturating_sub(1)));
    Ok(Some(FoundMessage { shard, message, before }))
}

fn first_row(answer: Option<Answer>) -> Option<mysql_async::Row> {
    answer.and_then(|answer| only(answer.rows))
}

/// See [`sawmill_engine::storage::Log::positions`].
pub(crate) async fn positions(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
    since: Timestamp,
) -> Result<Vec<Position>, Failure> {
    let counters = counter::all(connection, tables, topic).await?;
    let id = topic_id(topic)?;
    let mut positions = Vec::with_capacity(counters.len());
    for (shard, counter) in counters.iter().enumerate() {
        // One query per shard, because each may take a while.
        let sql = Sql::new(format_args!(
            "SELECT number FROM {} WHERE topic = {id} AND shard = {shard} AND number <= {} AND created_ms >= {}
             ORDER BY number LIMIT 1",
            tables.message,
            counter.last,
            since.as_millis()
        ));
        let before = match first_row(connection.ask(&sql).await?.pop()) {
            Some(mut row) => field::<u64>(&mut row, 0)?.saturating_sub(1),
            None => counter.last,
        };
        positions.push(Position::from_number(before));
    }
    Ok(positions)
}

/// See [`sawmill_engine::storage::Log::backlog`].
pub(crate) async fn backlog(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
    after: &[(u16, u64)],
) -> Result<Backlog, Failure> {
    let counters = counter::all(connection, tables, topic).await?;
    let (id, table) = (topic_id(topic)?, &tables.message);
    let mut sql = Sql::new(format_args!("SELECT COUNT(*) FROM {} WHERE topic = {id}", tables.aside));
    for (shard, after) in after {
        let last = one(&counters, topic, *shard)?.last;
        sql.then(format_args!("SELECT MIN(number) FROM {table} WHERE topic = {id} AND shard = {shard}"));
        sql.then(format_args!(
            "SELECT created_ms FROM {table} WHERE topic = {id} AND shard = {shard} AND number > {after}
             AND number <= {last} ORDER BY number LIMIT 1"
        ));
    }
    let mut answers = connection.ask(&sql).await?.into_iter();
    let mut next = || first_row(answers.next()).map(|mut row| field::<Option<u64>>(&mut row, 0)).transpose();
    let mut backlog = Backlog { aside: next()?.flatten().unwrap_or(0), ..Backlog::default() };
    let mut odd = Vec::new();
    for (shard, after) in after {
        let (first, oldest) = (next()?.flatten(), next()?.flatten().map(Timestamp::from_millis));
        let (Some(first), Some(oldest)) = (first, oldest) else {
            backlog.ready.push(0);
            continue;
        };
        backlog.oldest = Some(backlog.oldest.map_or(oldest, |other: Timestamp| other.min(oldest)));
        let Counter { last, kept, .. } = one(&counters, topic, *shard)?;
        // Numbers have no gaps except those that a trim has left. Without gaps the difference of two numbers
        // is the count.
        let before = first.checked_sub(1).ok_or_else(|| corrupt(format!("message 0 in shard {shard}")))?;
        if kept != last.saturating_sub(before) {
            odd.push((backlog.ready.len(), *shard, *after, last));
        }
        backlog.ready.push(last.saturating_sub((*after).max(before)));
    }
    for (place, shard, after, last) in odd {
        let sql = Sql::new(format_args!(
            "SELECT COUNT(*) FROM {table} WHERE topic = {id} AND shard = {shard} AND number > {after} AND number <= {last}"
        ));
        if let Some(mut row) = first_row(connection.ask(&sql).await?.pop()) {
            backlog.ready[place] = field(&mut row, 0)?;
        }
    }
    Ok(backlog)
}
