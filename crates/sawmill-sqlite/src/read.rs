//! What reads the log: blocks, past blocks, and how much is left.

use rusqlite::{Connection, OptionalExtension, params};
use sawmill::clock::Timestamp;
use sawmill::log::{Backlog, Block, Found, Position, Span};
use sawmill::topic::Topic;
use sawmill::{Message, MessageId};

use crate::batch::{OpenShard, shards_of};
use crate::error::{Failure, corrupt};
use crate::row::{Chunk, LAST_NUMBER, SELECT_MESSAGES, from_time, message, to_time, topic_id};

/// A block ends early when it holds this much: large messages come a few at a time.
const BLOCK_BYTES: usize = 32 << 20;

/// Up to so many shards are looked up one by one.
const FEW: usize = 2;

/// A wish to read a shard after a number.
pub(crate) struct Wish {
    pub(crate) shard: u16,
    pub(crate) after: u64,
    pub(crate) limit: usize,
}

/// A topic that is there, seen by a reader.
struct Seen<'a> {
    connection: &'a Connection,
    topic: &'a Topic,
    id: i64,
    shards: u16,
}

impl<'a> Seen<'a> {
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

/// See [`sawmill::log::Log::read`].
pub(crate) fn read(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    wishes: &[Wish],
) -> Result<Vec<Block>, Failure> {
    let seen = Seen::new(connection, namespace, topic)?;
    // An idle worker asks for all shards again and again: one look tells which of them have something.
    let all =
        if wishes.len() > FEW { OpenShard::find_all(connection, seen.id, seen.shards)? } else { Vec::new() };
    wishes
        .iter()
        .map(|wish| {
            let shard = match all.get(usize::from(wish.shard)) {
                Some(shard) => *shard,
                None => seen.shard(wish.shard)?,
            };
            let last = shard.last().unsigned_abs();
            let found = if last > wish.after {
                messages(connection, shard.base, wish.after, LAST_NUMBER as u64, wish.limit, BLOCK_BYTES)?
            } else {
                Run::default()
            };
            let end = found.last.unwrap_or(wish.after);
            // A block that is not full ends where the shard ends.
            let more = found.cut && end < last;
            Ok(Block {
                span: Span::from_range(wish.after, end, found.messages.len()),
                messages: found.messages,
                end: Position::from_number(end),
                more,
            })
        })
        .collect()
}

/// See [`sawmill::log::Log::reread`].
pub(crate) fn reread(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    shard: u16,
    (after, upto, count): (u64, u64, usize),
) -> Result<Vec<Message>, Failure> {
    let base = Seen::new(connection, namespace, topic)?.shard(shard)?.base;
    let found = messages(connection, base, after, upto, count.saturating_add(1), usize::MAX)?;
    match found.messages.len() {
        left if left == count => Ok(found.messages),
        left => Err(topic.gone(count, left).into()),
    }
}

/// See [`sawmill::log::Log::find`]. It looks through the shards one by one: ids are not indexed, so that pushing is fast.
pub(crate) fn find(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    id: MessageId,
) -> Result<Option<Found>, Failure> {
    let seen = Seen::new(connection, namespace, topic)?;
    let wanted = id.as_u128().to_be_bytes();
    let mut chunk = Chunk::default();
    let mut aside = connection.prepare_cached(
        "SELECT shard, id, created_ms, due_ms, key, headers, payload FROM aside WHERE topic = ?1 AND id = ?2",
    )?;
    if let Some(row) = aside.query(params![seen.id, wanted])?.next()? {
        let (shard, message) = message(row, &mut chunk)?;
        let shard = u16::try_from(shard).ok().filter(|shard| *shard < seen.shards);
        let shard = shard.ok_or_else(|| corrupt(format!("message {id} kept aside for a strange shard")))?;
        return Ok(Some(Found { shard, message, before: None }));
    }
    let mut select = connection.prepare_cached(
        "SELECT pos, id, created_ms, due_ms, key, headers, payload
         FROM message WHERE pos > ?1 AND pos <= ?2 AND id = ?3 LIMIT 1",
    )?;
    for shard in 0..seen.shards {
        let base = seen.shard(shard)?.base;
        let range = params![place(base, 0), place(base, u64::MAX), wanted];
        if let Some(row) = select.query(range)?.next()? {
            let (pos, message) = message(row, &mut chunk)?;
            let number = (pos & LAST_NUMBER).unsigned_abs();
            let before = Some(Position::from_number(number.saturating_sub(1)));
            return Ok(Some(Found { shard, message, before }));
        }
    }
    Ok(None)
}

/// When the first message of a topic that is kept aside is due.
pub(crate) fn next_due(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
) -> Result<Option<Timestamp>, Failure> {
    let seen = Seen::new(connection, namespace, topic)?;
    let next: Option<i64> = connection
        .prepare_cached("SELECT min(due_ms) FROM aside WHERE topic = ?1")?
        .query_row(params![seen.id], |row| row.get(0))?;
    // A time that makes no sense is due at once: promoting it will say what is wrong.
    Ok(next.map(|ms| to_time(ms).unwrap_or_default()))
}

/// See [`sawmill::log::Log::positions`].
pub(crate) fn positions(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    since: Timestamp,
) -> Result<Vec<Position>, Failure> {
    let seen = Seen::new(connection, namespace, topic)?;
    let mut select = connection.prepare_cached(
        "SELECT pos FROM message WHERE pos > ?1 AND pos <= ?2 AND created_ms >= ?3 ORDER BY pos LIMIT 1",
    )?;
    let mut positions = Vec::with_capacity(usize::from(seen.shards));
    for shard in 0..seen.shards {
        let shard = seen.shard(shard)?;
        let range = params![place(shard.base, 0), place(shard.base, u64::MAX), from_time(since)];
        let first: Option<i64> = select.query_row(range, |row| row.get(0)).optional()?;
        let before = match first {
            Some(pos) => (pos & LAST_NUMBER).unsigned_abs().saturating_sub(1),
            None => shard.last().unsigned_abs(),
        };
        positions.push(Position::from_number(before));
    }
    Ok(positions)
}

/// See [`sawmill::log::Log::backlog`].
pub(crate) fn backlog(
    connection: &Connection,
    namespace: &str,
    topic: &Topic,
    after: &[(u16, u64)],
) -> Result<Backlog, Failure> {
    let seen = Seen::new(connection, namespace, topic)?;
    let aside: i64 = connection
        .prepare_cached("SELECT count(*) FROM aside WHERE topic = ?1")?
        .query_row(params![seen.id], |row| row.get(0))?;
    let mut backlog = Backlog { aside: aside.unsigned_abs(), ..Backlog::default() };
    for (number, after) in after {
        let shard = seen.shard(*number)?;
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

/// How many messages a shard holds after this number.
fn count_after(connection: &Connection, shard: &OpenShard, after: u64) -> Result<u64, Failure> {
    let Some((first, _)) = first_after(connection, shard.base, 0)? else {
        return Ok(0);
    };
    let last = shard.last().unsigned_abs();
    // Numbers have no gaps unless a trim has left some: then what lies between two of them need not be counted.
    if shard.kept().unsigned_abs() == (last + 1).saturating_sub(first) {
        return Ok(last.saturating_sub(after.max(first - 1)));
    }
    let count: i64 = connection
        .prepare_cached("SELECT count(*) FROM message WHERE pos > ?1 AND pos <= ?2")?
        .query_row(params![place(shard.base, after), place(shard.base, u64::MAX)], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// The number and the creation time of the first message after a number.
fn first_after(connection: &Connection, base: i64, after: u64) -> Result<Option<(u64, Timestamp)>, Failure> {
    let first: Option<(i64, i64)> = connection
        .prepare_cached(
            "SELECT pos, created_ms FROM message WHERE pos > ?1 AND pos <= ?2 ORDER BY pos LIMIT 1",
        )?
        .query_row(params![place(base, after), place(base, u64::MAX)], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((pos, created_ms)) = first else {
        return Ok(None);
    };
    let created = to_time(created_ms)
        .ok_or_else(|| corrupt(format!("a message at position {pos} with a strange creation time")))?;
    Ok(Some(((pos & LAST_NUMBER).unsigned_abs(), created)))
}

/// Messages that follow one another.
#[derive(Default)]
struct Run {
    messages: Vec<Message>,
    /// The number of the last of them.
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
    let mut rows = select.query(params![place(base, after), place(base, upto), limit_rows])?;
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

/// The row of the message with this number; numbers that no message can have stand at the end.
fn place(base: i64, number: u64) -> i64 {
    base | i64::try_from(number).unwrap_or(LAST_NUMBER).min(LAST_NUMBER)
}
