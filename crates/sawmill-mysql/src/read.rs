//! What reads the log: blocks, and past blocks.

use mysql_async::Row;
use sawmill::Message;
use sawmill::log::{Block, Position, Span};
use sawmill::topic::Topic;

use crate::connections::Line;
use crate::counter::{self, Counter, one};
use crate::error::Failure;
use crate::row::{MESSAGE, field, message, topic_id};
use crate::schema::Tables;
use crate::sql::Sql;

/// A block ends early when it holds this much: large messages come a few at a time.
const BLOCK_BYTES: u64 = 16 << 20;
/// More messages than anybody wants in one block.
const MOST: usize = 100_000;

/// A wish to read a shard after a number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) shard: u16,
    pub(crate) after: u64,
    pub(crate) limit: usize,
}

/// See [`sawmill::log::Log::read`]. An idle worker asks for all shards again and again: one look at the counters tells which of them
/// have something.
pub(crate) async fn read(
    line: &mut Line,
    tables: &Tables,
    topic: &Topic,
    wishes: &[Wish],
) -> Result<Vec<Block>, Failure> {
    let counters = counter::all(line, tables, topic).await?;
    let mut parts = Vec::with_capacity(wishes.len());
    for wish in wishes {
        let counter = one(&counters, topic, wish.shard)?;
        let wanted = wish.limit > 0 && counter.last > wish.after;
        let range = if wanted { Some(fitting(line, tables, topic, *wish, counter).await?) } else { None };
        parts.push((*wish, counter, range));
    }
    let ranges: Vec<Range> = parts.iter().filter_map(|(.., range)| *range).collect();
    let mut found = select(line, tables, topic, &ranges).await?.into_iter();
    parts
        .into_iter()
        .map(|(wish, counter, range)| {
            let rows = if range.is_some() { found.next().unwrap_or_default() } else { Vec::new() };
            block(wish, counter, rows)
        })
        .collect()
}

fn block(wish: Wish, counter: Counter, rows: Vec<Row>) -> Result<Block, Failure> {
    let (mut end, mut messages) = (wish.after, Vec::with_capacity(rows.len()));
    for row in rows {
        let (number, message) = message(row)?;
        end = number;
        messages.push(message);
    }
    Ok(Block {
        span: Span::from_range(wish.after, end, messages.len()),
        end: Position::from_number(end),
        // A block that has nothing ends where the shard ends, unless nothing was wanted.
        more: end < counter.last && (wish.limit == 0 || !messages.is_empty()),
        messages,
    })
}

/// Messages with numbers greater than `after` and not greater than `upto`, at most so many.
#[derive(Debug, Clone, Copy)]
struct Range {
    shard: u16,
    after: u64,
    upto: u64,
    limit: usize,
}

/// The part of a wish that fits into a block. Most shards have only small messages; where it may be too much, their sizes are
/// looked at first.
async fn fitting(
    line: &mut Line,
    tables: &Tables,
    topic: &Topic,
    wish: Wish,
    counter: Counter,
) -> Result<Range, Failure> {
    let limit = wish.limit.min(MOST);
    let mut range = Range { shard: wish.shard, after: wish.after, upto: counter.last, limit };
    let waiting = (counter.last - wish.after).min(limit as u64);
    if counter.largest.saturating_mul(waiting) <= BLOCK_BYTES {
        return Ok(range);
    }
    let sql = Sql::new(format_args!(
        "SELECT number, size FROM {} WHERE topic = {} AND shard = {} AND number > {} AND number <= {}
         ORDER BY number LIMIT {limit}",
        tables.message,
        topic_id(topic)?,
        wish.shard,
        range.after,
        range.upto
    ));
    let mut bytes = 0;
    for (place, mut row) in line.ask(&sql).await?.pop().unwrap_or_default().rows.into_iter().enumerate() {
        bytes += field::<u64>(&mut row, 1)?;
        if bytes > BLOCK_BYTES && place > 0 {
            break;
        }
        range.upto = field(&mut row, 0)?;
    }
    Ok(range)
}

/// The messages of each range, all in one go.
async fn select(
    line: &mut Line,
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
        Some(sql) => Ok(line.ask(&sql).await?.into_iter().map(|answer| answer.rows).collect()),
        None => Ok(Vec::new()),
    }
}

/// See [`sawmill::log::Log::reread`].
pub(crate) async fn reread(
    line: &mut Line,
    tables: &Tables,
    topic: &Topic,
    shard: u16,
    (after, upto, count): (u64, u64, usize),
) -> Result<Vec<Message>, Failure> {
    one(&counter::all(line, tables, topic).await?, topic, shard)?;
    let range = Range { shard, after, upto, limit: count.saturating_add(1).min(MOST) };
    let rows = select(line, tables, topic, &[range]).await?.pop().unwrap_or_default();
    if rows.len() != count {
        return Err(topic.gone(count, rows.len()).into());
    }
    rows.into_iter().map(|row| message(row).map(|(_, message)| message)).collect()
}
