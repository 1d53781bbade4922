//! Reads the log: new blocks, and blocks that were read before.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use sawmill_engine::Result;
use sawmill_engine::model::{Message, Topic};
use sawmill_engine::storage::{Block, Position, ReadRequest, Span};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::{Effect, corrupt};
use crate::log::place::{Place, Read, Window};
use crate::log::row::{COLUMNS, from_shard, messages};
use crate::log::snapshot::{Range, Snapshot, Spot, ranges};
use crate::log::topics::{message_tables, topic_id, wrong_row};
use crate::store::Postgres;

/// The maximum size of one call's result: large messages come a few at a time.
const BLOCK_BYTES: i64 = 32 << 20;

/// A spot after all others.
const END_OF_ALL: Spot = (i64::MAX, i64::MAX);

/// The parts of shards that one statement reads.
#[derive(Default)]
struct Parts {
    /// For each request: its first range, its last range, and its maximum number of rows.
    first: Vec<i32>,
    last: Vec<i32>,
    limits: Vec<i64>,
    /// For each range: its shard, the spot before it, and its end.
    shards: Vec<i16>,
    xids: Vec<i64>,
    numbers: Vec<i64>,
    ends: Vec<i64>,
}

impl Parts {
    fn add(&mut self, shard: u16, ranges: &[Range], limit: usize) {
        // Arrays in PostgreSQL start at one.
        let next = |ranges: &Vec<i64>| i32::try_from(ranges.len() + 1).unwrap_or(i32::MAX);
        self.first.push(next(&self.ends));
        for range in ranges {
            self.shards.push(from_shard(shard));
            self.xids.push(range.after.0);
            self.numbers.push(range.after.1);
            self.ends.push(range.end);
        }
        self.last.push(next(&self.ends) - 1);
        self.limits.push(i64::try_from(limit).unwrap_or(i64::MAX));
    }
}

/// A row of the table: messages that were added together.
struct MessageRow {
    /// The spot of the last message; the others come just before it.
    last: Spot,
    messages: Vec<Message>,
}

impl MessageRow {
    /// Returns the messages after one spot and up to another, inclusive.
    fn within(mut self, after: Option<Spot>, upto: Spot) -> Self {
        let distance = |from: i64, to: i64| usize::try_from(to.saturating_sub(from)).unwrap_or(0);
        if let Some((xid, number)) = after
            && xid == self.last.0
        {
            let left = distance(number, self.last.1);
            self.messages.drain(..self.messages.len().saturating_sub(left));
        }
        match upto.0.cmp(&self.last.0) {
            Ordering::Greater => self,
            Ordering::Equal => {
                let many = self.messages.len().saturating_sub(distance(upto.1, self.last.1));
                self.cut(many)
            }
            Ordering::Less => self.cut(0),
        }
    }

    /// Keeps only the first `many` messages.
    fn cut(mut self, many: usize) -> Self {
        let less = self.messages.len().saturating_sub(many);
        self.messages.truncate(many);
        self.last.1 = self.last.1.saturating_sub(i64::try_from(less).unwrap_or(0));
        self
    }
}

/// The result of a statement.
struct Answer {
    /// The transactions that had ended when the statement ran.
    seen: Snapshot,
    /// The highest transaction id that it saw on a message.
    durable: i64,
    /// For each request its rows, in order.
    found: Vec<Vec<MessageRow>>,
    /// The first request with missing rows, if the size limit was reached.
    cut: Option<usize>,
}

/// The function that reads a topic.
pub(crate) fn function(schema: &str, id: i64) -> String {
    format!("{schema}.read_{id}")
}

/// Creates that function. Planning the statement takes longer than running it, and a session caches the plan
/// of a function. This works behind a pooler too, where prepared statements do not.
///
/// JIT compilation never pays off here, and the index is always the best plan. The settings enforce this
/// because the planner's statistics are poor for a table that is filled and emptied all day.
pub(crate) fn make_function(schema: &str, id: i64) -> String {
    format!(
        "CREATE FUNCTION {}(int4[], int4[], int8[], int2[], int8[], int8[], int8[], int8)
         RETURNS TABLE (c0 int8, c1 int8, c2 int8, c3 uuid, c4 int8, c5 int8, c6 bytea, c7 bytea, c8 bytea, c9 int4)
         LANGUAGE plpgsql STABLE SET plan_cache_mode = force_generic_plan SET jit = off SET enable_sort = off
         SET enable_bitmapscan = off SET enable_seqscan = off
         AS $sawmill$ BEGIN RETURN QUERY {}; END $sawmill$;",
        function(schema, id),
        select(schema, &message_tables(schema, id))
    )
}

/// The statement that reads parts of shards, range by range and in order. A block costs only what it holds:
/// within a range the index yields the next messages, and no range contains messages that were read before.
fn select(schema: &str, tables: &[String]) -> String {
    let last = last(tables);
    let parts: Vec<String> = tables
        .iter()
        .map(|table| {
            format!(
                "(SELECT xid, n, {COLUMNS}, many FROM {table} WHERE shard = $4[i]
                  AND (xid, n) > ($5[i], $6[i]) AND xid < $7[i] ORDER BY xid, n LIMIT w.most)"
            )
        })
        .collect();
    format!(
        "SELECT NULL::int8, shift, ({last}), NULL::uuid, NULL::int8, NULL::int8, NULL::bytea, NULL::bytea,
             convert_to(pg_current_snapshot()::text, 'UTF8'), 0 FROM {schema}.meta
         UNION ALL
         SELECT want, xid, n, {COLUMNS}, many FROM (
             SELECT w.want, b.*, sum(octet_length(b.payload)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes
             FROM unnest($1, $2, $3) WITH ORDINALITY AS w(lo, hi, most, want)
             CROSS JOIN LATERAL (
                 SELECT m.* FROM generate_series(w.lo, w.hi) AS i CROSS JOIN LATERAL (
                     SELECT * FROM ({}) AS u ORDER BY xid, n LIMIT w.most) AS m LIMIT w.most) AS b) AS c
         WHERE bytes - octet_length(payload) < $8",
        parts.join(" UNION ALL ")
    )
}

/// A query for the highest transaction id in the first of the shards that are read. The further a position
/// may reach, the fuller the following blocks are. If one shard is busy, the others usually are too.
fn last(tables: &[String]) -> String {
    let of =
        |table| format!("(SELECT xid FROM {table} WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1)");
    format!("SELECT greatest({})", tables.iter().map(of).collect::<Vec<_>>().join(", "))
}

/// Per-process knowledge about shards that makes reads faster.
#[derive(Default)]
pub(crate) struct ReadCache {
    /// Snapshots up to which a shard is known to be empty after a position. The position in the ledger does
    /// not change while a shard is idle. Without this, each read would look up again the transactions that
    /// were running when the position was taken.
    empty: Mutex<HashMap<(i64, u16), (Position, Snapshot)>>,
    /// The approximate number of messages per row of a topic. Reads request that many fewer rows.
    messages_per_row: Mutex<HashMap<i64, usize>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl ReadCache {
    fn place(&self, id: i64, want: &ReadRequest) -> Result<Place> {
        match lock(&self.empty).get(&(id, want.shard)) {
            Some((position, snapshot)) if *position == want.after => Ok(Place::After(snapshot.clone())),
            _ => Place::of(&want.after),
        }
    }

    fn set_empty(&self, id: i64, want: &ReadRequest, snapshot: Snapshot) {
        lock(&self.empty).insert((id, want.shard), (want.after.clone(), snapshot));
    }

    /// Estimates the number of rows that hold this many messages.
    fn rows(&self, id: i64, messages: usize) -> usize {
        messages.div_ceil(lock(&self.messages_per_row).get(&id).copied().unwrap_or(1))
    }

    fn set_messages_per_row(&self, id: i64, found: &[Vec<MessageRow>]) {
        let rows: usize = found.iter().map(Vec::len).sum();
        let messages: usize = found.iter().flatten().map(|piece| piece.messages.len()).sum();
        if let Some(messages_per_row) = messages.checked_div(rows) {
            lock(&self.messages_per_row).insert(id, messages_per_row.max(1));
        }
    }
}

impl Postgres {
    async fn select(&self, topic: &Topic, parts: &Parts) -> Result<Answer> {
        let function = function(self.schema(), topic_id(topic)?);
        let sql = format!("SELECT * FROM {function}($1, $2, $3, $4, $5, $6, $7, $8)");
        let rows = self
            .query_topic(
                topic,
                Effect::Reads,
                &sql,
                &[
                    (&parts.first, Type::INT4_ARRAY),
                    (&parts.last, Type::INT4_ARRAY),
                    (&parts.limits, Type::INT8_ARRAY),
                    (&parts.shards, Type::INT2_ARRAY),
                    (&parts.xids, Type::INT8_ARRAY),
                    (&parts.numbers, Type::INT8_ARRAY),
                    (&parts.ends, Type::INT8_ARRAY),
                    (&BLOCK_BYTES, Type::INT8),
                ],
            )
            .await?;
        let (mut seen, mut durable) = (None, 0);
        let mut found: Vec<Vec<MessageRow>> = parts.limits.iter().map(|_| Vec::new()).collect();
        let (mut cut, mut bytes) = (None, 0);
        for row in &rows {
            let Some(want) = row.try_get::<_, Option<i64>>(0).map_err(wrong_row)? else {
                seen = Some(snapshot_among_messages(row)?);
                durable = durable.max(row.try_get::<_, Option<i64>>(2).map_err(wrong_row)?.unwrap_or(0));
                continue;
            };
            let strange = || corrupt("messages out of their order");
            let want = usize::try_from(want - 1).map_err(|_| strange())?;
            let (xid, n, many): (i64, i64, i32) = (
                row.try_get(1).map_err(wrong_row)?,
                row.try_get(2).map_err(wrong_row)?,
                row.try_get(9).map_err(wrong_row)?,
            );
            let request = found.get_mut(want).ok_or_else(strange)?;
            // The result is cut at limits, so it must be in order.
            if request.last().is_some_and(|piece| piece.last >= (xid, n)) {
                return Err(strange());
            }
            durable = durable.max(xid);
            bytes += row.try_get::<_, &[u8]>(8).map_err(wrong_row)?.len() as u64;
            request.push(MessageRow { last: (xid, n), messages: messages(row, 3, many)? });
            // The statement stopped at the same row.
            if bytes >= BLOCK_BYTES.unsigned_abs() {
                cut = Some(want);
            }
        }
        let seen = seen.ok_or_else(|| corrupt("no row in its table meta"))?;
        Ok(Answer { seen, durable, found, cut })
    }

    /// See [`sawmill_engine::storage::Log::read`].
    pub(crate) async fn read_blocks(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>> {
        let id = topic_id(topic)?;
        let mut places = Vec::with_capacity(wants.len());
        for want in wants {
            if want.shard >= topic.shards {
                return Err(topic.no_shard(want.shard));
            }
            places.push(self.read_cache().place(id, want)?);
        }
        let mut blocks: Vec<Option<Block>> = wants.iter().map(|_| None).collect();
        // A window with nothing left is followed by the next one, which has no upper limit and ends the loop.
        while blocks.iter().any(Option::is_none) {
            let open: Vec<usize> = (0..wants.len()).filter(|at| blocks[*at].is_none()).collect();
            let mut parts = Parts::default();
            for at in &open {
                let ranges = match &places[*at] {
                    Place::After(snapshot) => ranges(snapshot, None, None),
                    Place::Inside(window, last) => ranges(&window.old, Some(&window.new), Some(*last)),
                };
                // One extra row shows whether the window is used up.
                parts.add(
                    wants[*at].shard,
                    &ranges,
                    self.read_cache().rows(id, wants[*at].limit).saturating_add(1),
                );
            }
            let answer = self.select(topic, &parts).await?;
            self.read_cache().set_messages_per_row(id, &answer.found);
            for (((number, at), limit), found) in
                open.into_iter().enumerate().zip(parts.limits).zip(answer.found)
            {
                let left_out = answer.cut.is_some_and(|cut| number >= cut) || found.len() as i64 == limit;
                let place = &places[at];
                if found.is_empty()
                    && !left_out
                    && let Place::Inside(window, _) = place
                {
                    places[at] = Place::After(window.new.clone());
                    continue;
                }
                if found.is_empty()
                    && !left_out
                    && let Place::After(snapshot) = place
                {
                    self.read_cache().set_empty(id, &wants[at], snapshot.without_ended(&answer.seen));
                }
                let view = (&answer.seen, answer.durable);
                blocks[at] = Some(block(&wants[at], place, view, found, left_out));
            }
        }
        Ok(blocks.into_iter().flatten().collect())
    }

    /// See [`sawmill_engine::storage::Log::reread`].
    pub(crate) async fn reread_block(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>> {
        topic_id(topic)?;
        if shard >= topic.shards {
            return Err(topic.no_shard(shard));
        }
        let Some(read) = Read::of(span)? else { return Ok(Vec::new()) };
        let (mut messages, mut after): (Vec<Message>, _) = (Vec::new(), read.after);
        loop {
            let rest = Read { after, ..read.clone() };
            let mut parts = Parts::default();
            parts.add(shard, &rest.ranges(), read.count.saturating_add(1));
            let answer = self.select(topic, &parts).await?;
            let pieces = answer.found.into_iter().next().unwrap_or_default();
            let last = pieces.last().map(|piece| piece.last);
            for piece in pieces {
                messages.extend(piece.within(after, read.upto).messages);
            }
            match last {
                Some(last) if answer.cut.is_some() && last < read.upto => after = Some(last),
                _ => break,
            }
        }
        if messages.len() == read.count { Ok(messages) } else { Err(topic.gone(read.count, messages.len())) }
    }
}

/// Builds the block for a request from the rows found.
fn block(
    want: &ReadRequest,
    place: &Place,
    (seen, durable): (&Snapshot, i64),
    found: Vec<MessageRow>,
    left_out: bool,
) -> Block {
    let (window, after) = match place {
        Place::After(snapshot) => {
            (Window { old: snapshot.clone(), new: seen.known(snapshot, durable) }, None)
        }
        Place::Inside(window, last) => (window.clone(), Some(*last)),
    };
    let (mut messages, mut upto, mut more_in_window) = (Vec::new(), None, left_out);
    for piece in found {
        let piece = piece.within(after, END_OF_ALL);
        let room = want.limit - messages.len();
        if piece.messages.len() > room {
            more_in_window = true;
            // Only the first row may be split: the rest of a split row has to be read again.
            if room < want.limit || room == 0 {
                break;
            }
        }
        let piece = piece.cut(room);
        upto = Some(piece.last);
        messages.extend(piece.messages);
    }
    let Some(upto) = upto else {
        return Block {
            messages: Vec::new(),
            span: Span::default(),
            end: want.after.clone(),
            more: more_in_window,
        };
    };
    let end =
        if more_in_window { Place::Inside(window.clone(), upto) } else { Place::After(window.new.clone()) };
    Block {
        span: Read { window, after, upto, count: messages.len() }.span(),
        messages,
        end: end.position(),
        // More may follow an older window. A window that was just opened covers everything that was visible.
        more: more_in_window || matches!(place, Place::Inside(..)),
    }
}

/// Reads the snapshot from the first row of [`select`], which is not a message. A column of its own would be
/// sent with every message.
fn snapshot_among_messages(row: &Row) -> Result<Snapshot> {
    let (shift, text): (i64, &[u8]) =
        (row.try_get(1).map_err(wrong_row)?, row.try_get(8).map_err(wrong_row)?);
    let text = String::from_utf8_lossy(text);
    Snapshot::parse(&text, shift).ok_or_else(|| corrupt(format!("the snapshot {text}")))
}

/// Reads the snapshot in this column of a row, and its shift in the next column.
pub(crate) fn snapshot(row: &Row, at: usize) -> Result<Snapshot> {
    let (text, shift): (&str, i64) =
        (row.try_get(at).map_err(wrong_row)?, row.try_get(at + 1).map_err(wrong_row)?);
    Snapshot::parse(text, shift).ok_or_else(|| corrupt(format!("the snapshot {text}")))
}
