//! Reads the log: new blocks, and blocks that were read before.

use mysql_async::Row;
use sawmill_engine::model::{Message, Topic};
use sawmill_engine::storage::{Block, Position, Span};

use crate::connection::connections::Connection;
use crate::connection::sql::Sql;
use crate::error::Failure;
use crate::log::counter::{self, Counter, one};
use crate::log::row::{MESSAGE, field, message, topic_id};
use crate::schema::Tables;

/// The size at which a block ends early: large messages come a few at a time.
const BLOCK_BYTES: u64 = 16 << 20;
/// The maximum number of messages in a block.
const MAX_MESSAGES: usize = 100_000;

/// A request to read a shard after a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShardRequest {
    pub(crate) shard: u16,
    pub(crate) after: u64,
    pub(crate) limit: usize,
}

/// See [`sawmill_engine::storage::Log::read`]. Idle workers read all shards again and again. One query of the
/// counters shows which shards have new messages.
pub(crate) async fn read(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
    requests: &[ShardRequest],
) -> Result<Vec<Block>, Failure> {
    let counters = counter::all(connection, tables, topic).await?;
    let mut parts = Vec::with_capacity(requests.len());
    for request in requests {
        let counter = one(&counters, topic, request.shard)?;
        let wanted = request.limit > 0 && counter.last > request.after;
        let range =
            if wanted { Some(fitting(connection, tables, topic, *request, counter).await?) } else { None };
        parts.push((*request, counter, range));
    }
    let ranges: Vec<Range> = parts.iter().filter_map(|(.., range)| *range).collect();
    let mut found = select(connection, tables, topic, &ranges).await?.into_iter();
    parts
        .into_iter()
        .map(|(request, counter, range)| {
            let rows = if range.is_some() { found.next().unwrap_or_default() } else { Vec::new() };
            block(request, counter, rows)
        })
        .collect()
}

fn block(request: ShardRequest, counter: Counter, rows: Vec<Row>) -> Result<Block, Failure> {
    let (mut end, mut messages) = (request.after, Vec::with_capacity(rows.len()));
    for row in rows {
        let (number, message) = message(row)?;
        end = number;
        messages.push(message);
    }
    Ok(Block {
        span: Span::from_range(request.after, end, messages.len()),
        end: Position::from_number(end),
        // An empty block ends at the end of the shard, unless its limit was 0.
        more: end < counter.last && (request.limit == 0 || !messages.is_empty()),
        messages,
    })
}

/// The messages with numbers above `after` and up to `upto`, at most `limit` of them.
#[derive(Debug, Clone, Copy)]
struct Range {
    shard: u16,
    after: u64,
    upto: u64,
    limit: usize,
}

/// Returns the part of a request that fits into a block. Most shards have only small messages. If the block
/// might be too large, the sizes are read first.
async fn fitting(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
    request: ShardRequest,
    counter: Counter,
) -> Result<Range, Failure> {
    let limit = request.limit.min(MAX_MESSAGES);
    let mut range = Range { shard: request.shard, after: request.after, upto: counter.last, limit };
    let waiting = (counter.last - request.after).min(limit as u64);
    if counter.largest.saturating_mul(waiting) <= BLOCK_BYTES {
        return Ok(range);
    }
    let sql = Sql::new(format_args!(
        "SELECT number, size FROM {} WHERE topic = {} AND shard = {} AND number > {} AND number <= {}
         ORDER BY number LIMIT {limit}",
        tables.message,
        topic_id(topic)?,
        request.shard,
        range.after,
        range.upto
    ));
    let mut bytes = 0;
    for (place, mut row) in connection.ask(&sql).await?.pop().unwrap_or_default().rows.into_iter().enumerate()
    {
        bytes += field::<u64>(&mut row, 1)?;
        if bytes > BLOCK_BYTES && place > 0 {
            break;
        }
        range.upto = field(&mut row, 0)?;
    }
    Ok(range)
}

/// Reads the messages of all ranges in one round trip.
async fn select(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
    ranges: &[Range],
) -> Result<Vec<Vec<Row>>, Failure> {
    let id = topic_id(topic)?;
    let statement = |range: &Range| {
        Sql::new(format_args!(
            "SELECT number, {MESSAGE} FROM {} WHERE topic = {id} AND shard = {} AND number > {} AND number <= {}
             ORDER BY number LIMIT {}",
            tables.message, range.shard, range.after, range.upto, range.limit
        ))
    };
    let all = ranges.iter().map(statement).reduce(|mut all, sql| {
        all.append(&sql);
        all
    });
    match all {
        Some(sql) => Ok(connection.ask(&sql).await?.into_iter().map(|answer| answer.rows).collect()),
        None => Ok(Vec::new()),
    }
}

/// See [`sawmill_engine::storage::Log::reread`].
pub(crate) async fn reread(
    connection: &mut Connection,
    tables: &Tables,
    topic: &Topic,
    shard: u16,
    (after, upto, count): (u64, u64, usize),
) -> Result<Vec<Message>, Failure> {
    one(&counter::all(connection, tables, topic).await?, topic, shard)?;
    let range = Range { shard, after, upto, limit: count.saturating_add(1).min(MAX_MESSAGES) };
    let rows = select(connection, tables, topic, &[range]).await?.pop().unwrap_or_default();
    if rows.len() != count {
        return Err(topic.gone(count, rows.len()).into());
    }
    rows.into_iter().map(|row| message(row).map(|(_, message)| message)).collect()
}
