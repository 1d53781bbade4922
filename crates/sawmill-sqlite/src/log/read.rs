//! Reads of the log: blocks, rereads, searches and the backlog.

use rusqlite::{Connection, OptionalExtension, params};
use sawmill_engine::model::{Message, MessageId, Topic};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{Backlog, Block, FoundMessage, Position, Span};

use crate::error::{Failure, corrupt};
use crate::log::row::{Chunk, LAST_NUMBER, SELECT_MESSAGES, from_time, message, to_time, topic_id};
use crate::threads::batch::{OpenShard, shards_of};

/// Payload bytes at which a block ends early, so that large messages come a few at a time.
const BLOCK_BYTES: usize = 32 << 20;

/// Up to this many shards are looked up one by one.
const FEW: usize = 2;

/// A request to read a shard after a number.
pub(crate) struct ShardRequest {
    pub(crate) shard: u16,
    pub(crate) after: u64,
    pub(crate) limit: usize,
}

/// An existing topic, as seen by a read.
struct TopicView<'a> {
    connection: &'a Connection,
    topic: &'a Topic,
    id: i64,
    shards: u16,
}

impl<'a> TopicView<'a> {
    fn new(connection: &'a Connection, namespace: &str, topic: &'a Topic) -> Result<Self, Failure> {
        let id = topic_id(topic)?;
        let shards = shards_of(connection, namespace, id)?.ok_or_else(|| topic.missing())?;
        Ok(Self { connection, topic, id, shards })
    }

    fn shard(&self, number: u16) -> Result<OpenShard, Failure> {
        if number >= self.shards {
            return Err(self.topic.no_shard(number).into());
        }
        OpenShard::find(self.connection, self.id, number)
    }
}

/// See [`sawmill_engine::storage::Log::read`].
pub(crate) fn read(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    requests: &[ShardRequest],
) -> Result<Vec<Block>, Failure> {
    let view = TopicView::new(connection, namespace, topic)?;
    // An idle worker polls all shards again and again: one query tells which of them have messages.
    let all = if requests.len() > FEW {
        OpenShard::find_all(connection, view.id, view.shards)?
    } else {
        Vec::new()
    };
    requests
        .iter()
        .map(|request| {
            let shard = match all.get(usize::from(request.shard)) {
                Some(shard) => *shard,
                None => view.shard(request.shard)?,
            };
            let last = shard.last().unsigned_abs();
            let found = if last > request.after {
                messages(
                    connection,
                    shard.base,
                    request.after,
                    LAST_NUMBER as u64,
                    request.limit,
                    BLOCK_BYTES,
                )?
            } else {
                Run::default()
            };
            let end = found.last.unwrap_or(request.after);
            // A block that hit no limit ends where the shard ends.
            let more = found.cut && end < last;
            Ok(Block {
                span: Span::from_range(request.after, end, found.messages.len()),
                messages: found.messages,
                end: Position::from_number(end),
                more,
            })
        })
        .collect()
}

/// See [`sawmill_engine::storage::Log::reread`].
pub(crate) fn reread(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    shard: u16,
    (after, upto, count): (u64, u64, usize),
) -> Result<Vec<Message>, Failure> {
    let base = TopicView::new(connection, namespace, topic)?.shard(shard)?.base;
    let found = messages(connection, base, after, upto, count.saturating_add(1), usize::MAX)?;
    match found.messages.len() {
        left if left == count => Ok(found.messages),
        left => Err(topic.gone(count, left).into()),
    }
}

/// See [`sawmill_engine::storage::Log::find`]. Searches the shards one by one: ids are not indexed, which
/// keeps pushing fast.
pub(crate) fn find(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    id: MessageId,
) -> Result<Option<FoundMessage>, Failure> {
    let view = TopicView::new(connection, namespace, topic)?;
    let wanted = id.as_u128().to_be_bytes();
    let mut chunk = Chunk::default();
    let mut aside = connection.prepare_cached(
        "SELECT shard, id, created_ms, due_ms, key, headers, payload FROM aside WHERE topic = ?1 AND id = ?2",
    )?;
    if let Some(row) = aside.query(params![view.id, wanted])?.next()? {
        let (shard, message) = message(row, &mut chunk)?;
        let shard = u16::try_from(shard).ok().filter(|shard| *shard < view.shards);
        let shard = shard.ok_or_else(|| corrupt(format!("message {id} kept aside for a strange shard")))?;
        return Ok(Some(FoundMessage { shard, message, before: None }));
    }
    let mut select = connection.prepare_cached(
        "SELECT pos, id, created_ms, due_ms, key, headers, payload
         FROM message WHERE pos > ?1 AND pos <= ?2 AND id = ?3 LIMIT 1",
    )?;
    for shard in 0..view.shards {
        let base = view.shard(shard)?.base;
        let range = params![pos_of(base, 0), pos_of(base, u64::MAX), wanted];
        if let Some(row) = select.query(range)?.next()? {
            let (pos, message) = message(row, &mut chunk)?;
            let number = (pos & LAST_NUMBER).unsigned_abs();
            let before = Some(Position::from_number(number.saturating_sub(1)));
            return Ok(Some(FoundMessage { shard, message, before }));
        }
    }
    Ok(None)
}

/// Returns when the first message of the topic that is kept aside is due.
pub(crate) fn next_due(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
) -> Result<Option<Timestamp>, Failure> {
    let view = TopicView::new(connection, namespace, topic)?;
    let next: Option<i64> = connection
        .prepare_cached("SELECT min(due_ms) FROM aside WHERE topic = ?1")?
        .query_row(params![view.id], |row| row.get(0))?;
    // An invalid time counts as due: promoting the message reports what is wrong.
    Ok(next.map(|ms| to_time(ms).unwrap_or_default()))
}

/// See [`sawmill_engine::storage::Log::positions`].
pub(crate) fn positions(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    since: Timestamp,
) -> Result<Vec<Position>, Failure> {
    let view = TopicView::new(connection, namespace, topic)?;
    let mut select = connection.prepare_cached(
        "SELECT pos FROM message WHERE pos > ?1 AND pos <= ?2 AND created_ms >= ?3 ORDER BY pos LIMIT 1",
    )?;
    let mut positions = Vec::with_capacity(usize::from(view.shards));
    for shard in 0..view.shards {
        let shard = view.shard(shard)?;
        let range = params![pos_of(shard.base, 0), pos_of(shard.base, u64::MAX), from_time(since)];
        let first: Option<i64> = select.query_row(range, |row| row.get(0)).optional()?;
        let before = match first {
            Some(pos) => (pos & LAST_NUMBER).unsigned_abs().saturating_sub(1),
            None => shard.last().unsigned_abs(),
        };
        positions.push(Position::from_number(before));
    }
    Ok(positions)
}

/// See [`sawmill_engine::storage::Log::backlog`].
pub(crate) fn backlog(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    after: &[(u16, u64)],
) -> Result<Backlog, Failure> {
    let view = TopicView::new(connection, namespace, topic)?;
    let aside: i64 = connection
        .prepare_cached("SELECT count(*) FROM aside WHERE topic = ?1")?
        .query_row(params![view.id], |row| row.get(0))?;
    let mut backlog = Backlog { aside: aside.unsigned_abs(), ..Backlog::default() };
    for (number, after) in after {
        let shard = view.shard(*number)?;
        let oldest = match first_after(connection, shard.base, *after)? {
            None => {
                backlog.ready.push(0);
                continue;
            }
            Some((_, created)) => created,
        };
        backlog.ready.push(count_after(connection, &shard, *after)?);
        backlog.oldest = [backlog.oldest, Some(oldest)].into_iter().flatten().min();
    }
    Ok(backlog)
}

/// Counts the messages of a shard after this number.
fn count_after(connection: &Connection, shard: &OpenShard, after: u64) -> Result<u64, Failure> {
    let Some((first, _)) = first_after(connection, shard.base, 0)? else {
        return Ok(0);
    };
    let last = shard.last().unsigned_abs();
    // Numbers have no gaps unless a trim left some. Without gaps the count follows from the numbers.
    if shard.kept().unsigned_abs() == (last + 1).saturating_sub(first) {
        return Ok(last.saturating_sub(after.max(first - 1)));
    }
    let count: i64 = connection
        .prepare_cached("SELECT count(*) FROM message WHERE pos > ?1 AND pos <= ?2")?
        .query_row(params![pos_of(shard.base, after), pos_of(shard.base, u64::MAX)], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Returns the number and the creation time of the first message after a number.
fn first_after(connection: &Connection, base: i64, after: u64) -> Result<Option<(u64, Timestamp)>, Failure> {
    let first: Option<(i64, i64)> = connection
        .prepare_cached(
            "SELECT pos, created_ms FROM message WHERE pos > ?1 AND pos <= ?2 ORDER BY pos LIMIT 1",
        )?
        .query_row(params![pos_of(base, after), pos_of(base, u64::MAX)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((pos, created_ms)) = first else {
        return Ok(None);
    };
    let created = to_time(created_ms)
        .ok_or_else(|| corrupt(format!("a message at position {pos} with a strange creation time")))?;
    Ok(Some(((pos & LAST_NUMBER).unsigned_abs(), created)))
}

/// Consecutive messages of a shard.
#[derive(Default)]
struct Run {
    messages: Vec<Message>,
    /// The number of the last one.
    last: Option<u64>,
    /// True if a limit was reached.
    cut: bool,
}

fn messages(
    connection: &Connection,
    base: i64,
    after: u64,
    upto: u64,
    limit: usize,
    most_bytes: usize,
) -> Result<Run, Failure> {
    let mut found = Run { messages: Vec::with_capacity(limit.min(1_024)), last: None, cut: limit == 0 };
    let mut select = connection.prepare_cached(SELECT_MESSAGES)?;
    let limit_rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut rows = select.query(params![pos_of(base, after), pos_of(base, upto), limit_rows])?;
    let (mut chunk, mut bytes) = (Chunk::default(), 0usize);
    while !found.cut
        && let Some(row) = rows.next()?
    {
        let (pos, message) = message(row, &mut chunk)?;
        bytes = bytes.saturating_add(message.payload.len());
        found.last = Some((pos & LAST_NUMBER).unsigned_abs());
        found.messages.push(message);
        found.cut = found.messages.len() >= limit || bytes >= most_bytes;
    }
    Ok(found)
}

/// The position of the message with this number. Numbers that are too large map to the end of the shard.
fn pos_of(base: i64, number: u64) -> i64 {
    base | i64::try_from(number).unwrap_or(LAST_NUMBER).min(LAST_NUMBER)
}
