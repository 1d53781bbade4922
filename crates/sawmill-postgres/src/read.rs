//! What reads the log: blocks, and past blocks.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use sawmill::log::{Block, Position, Span, Want};
use sawmill::topic::Topic;
use sawmill::{Message, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::{Effect, corrupt};
use crate::place::{Place, Read, Window};
use crate::row::{COLUMNS, from_shard, messages};
use crate::snapshot::{Range, Snapshot, Spot, ranges};
use crate::store::Postgres;
use crate::topics::{message_tables, topic_id, wrong_row};

/// What one call returns at most: large messages come a few at a time.
const BLOCK_BYTES: i64 = 32 << 20;

/// After every spot.
const END_OF_ALL: Spot = (i64::MAX, i64::MAX);

/// Parts of shards that are read in one statement.
#[derive(Default)]
struct Parts {
    /// For each wish: its first range, its last range, and how many rows at most.
    first: Vec<i32>,
    last: Vec<i32>,
    limits: Vec<i64>,
    /// For each range: its shard, the spot it comes after, and its end.
    shards: Vec<i16>,
    xids: Vec<i64>,
    numbers: Vec<i64>,
    ends: Vec<i64>,
}

impl Parts {
    fn add(&mut self, shard: u16, ranges: &[Range], limit: usize) {
        // PostgreSQL counts from one.
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

/// A row: messages that were added together.
struct Piece {
    /// The spot of the last of them; the others come just before it.
    last: Spot,
    messages: Vec<Message>,
}

impl Piece {
    /// What of it lies after a spot, and up to another, which is part of it.
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

    /// Only so many of it.
    fn cut(mut self, many: usize) -> Self {
        let less = self.messages.len().saturating_sub(many);
        self.messages.truncate(many);
        self.last.1 = self.last.1.saturating_sub(i64::try_from(less).unwrap_or(0));
        self
    }
}

/// What a statement found.
struct Answer {
    /// What was over when it looked.
    seen: Snapshot,
    /// The last number that it saw on a message.
    lasting: i64,
    /// For each wish its rows, in order.
    found: Vec<Vec<Piece>>,
    /// The first wish of which something was left out because all was too large.
    cut: Option<usize>,
}

/// The function that reads a topic.
pub(crate) fn function(schema: &str, id: i64) -> String {
    format!("{schema}.read_{id}")
}

/// Makes that function. To plan the statement takes longer than to run it, and a session keeps the plan of a function: that works
/// behind a pooler too, where no statement may be prepared.
///
/// It is never worth to be compiled, nor planned in another way than by the index: but the planner, which knows little of a table
/// that is filled and emptied all day, may think so.
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

/// Reads parts of shards, each range in turn and in order. A block costs what it holds: within a range the index gives the
/// next messages, and no range holds what was read before.
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

/// The last number on a message of the first of the shards that are read: the further a position may speak, the fuller are the
/// blocks after it, and where one shard is busy the others mostly are.
fn last(tables: &[String]) -> String {
    let of =
        |table| format!("(SELECT xid FROM {table} WHERE shard = $4[1] ORDER BY xid DESC, n DESC LIMIT 1)");
    format!("SELECT greatest({})", tables.iter().map(of).collect::<Vec<_>>().join(", "))
}

/// What this process remembers of shards, to read them faster.
#[derive(Default)]
pub(crate) struct Marks {
    /// How far shards are known to hold nothing after a position. The position in the ledger stays as it is while a shard is
    /// idle; without this, whatever ran when it was taken would be looked up again at every look.
    empty: Mutex<HashMap<(i64, u16), (Position, Snapshot)>>,
    /// About how many messages were in a row of a topic: so many fewer rows are asked for.
    dense: Mutex<HashMap<i64, usize>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Marks {
    fn place(&self, id: i64, want: &Want) -> Result<Place> {
        match held(&self.empty).get(&(id, want.shard)) {
            Some((position, snapshot)) if *position == want.after => Ok(Place::After(snapshot.clone())),
            _ => Place::of(&want.after),
        }
    }

    fn set_empty(&self, id: i64, want: &Want, snapshot: Snapshot) {
        held(&self.empty).insert((id, want.shard), (want.after.clone(), snapshot));
    }

    /// In how many rows so many messages may lie.
    fn rows(&self, id: i64, messages: usize) -> usize {
        messages.div_ceil(held(&self.dense).get(&id).copied().unwrap_or(1))
    }

    fn set_dense(&self, id: i64, found: &[Vec<Piece>]) {
        let rows: usize = found.iter().map(Vec::len).sum();
        let messages: usize = found.iter().flatten().map(|piece| piece.messages.len()).sum();
        if let Some(dense) = messages.checked_div(rows) {
            held(&self.dense).insert(id, dense.max(1));
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
        let (mut seen, mut lasting) = (None, 0);
        let mut found: Vec<Vec<Piece>> = parts.limits.iter().map(|_| Vec::new()).collect();
        let (mut cut, mut bytes) = (None, 0);
        for row in &rows {
            let Some(want) = row.try_get::<_, Option<i64>>(0).map_err(wrong_row)? else {
                seen = Some(snapshot_among_messages(row)?);
                lasting = lasting.max(row.try_get::<_, Option<i64>>(2).map_err(wrong_row)?.unwrap_or(0));
                continue;
            };
            let strange = || corrupt("messages out of their order");
            let want = usize::try_from(want - 1).map_err(|_| strange())?;
            let (xid, n, many): (i64, i64, i32) = (
                row.try_get(1).map_err(wrong_row)?,
                row.try_get(2).map_err(wrong_row)?,
                row.try_get(9).map_err(wrong_row)?,
            );
            let wish = found.get_mut(want).ok_or_else(strange)?;
            // What is read is cut at a limit, so it must have come in order.
            if wish.last().is_some_and(|piece| piece.last >= (xid, n)) {
                return Err(strange());
            }
            lasting = lasting.max(xid);
            bytes += row.try_get::<_, &[u8]>(8).map_err(wrong_row)?.len() as u64;
            wish.push(Piece { last: (xid, n), messages: messages(row, 3, many)? });
            // Here the statement has ended too.
            if bytes >= BLOCK_BYTES.unsigned_abs() {
                cut = Some(want);
            }
        }
        let seen = seen.ok_or_else(|| corrupt("no row in its table meta"))?;
        Ok(Answer { seen, lasting, found, cut })
    }

    /// See [`sawmill::log::Log::read`].
    pub(crate) async fn read_blocks(&self, topic: &Topic, wants: &[Want]) -> Result<Vec<Block>> {
        let id = topic_id(topic)?;
        let mut places = Vec::with_capacity(wants.len());
        for want in wants {
            if want.shard >= topic.shards {
                return Err(topic.no_shard(want.shard));
            }
            places.push(self.marks().place(id, want)?);
        }
        let mut blocks: Vec<Option<Block>> = wants.iter().map(|_| None).collect();
        // A window of which nothing is left is followed by the next one; that has no end to be reached.
        while blocks.iter().any(Option::is_none) {
            let open: Vec<usize> = (0..wants.len()).filter(|at| blocks[*at].is_none()).collect();
            let mut parts = Parts::default();
            for at in &open {
                let ranges = match &places[*at] {
                    Place::After(snapshot) => ranges(snapshot, None, None),
                    Place::Inside(window, last) => ranges(&window.old, Some(&window.new), Some(*last)),
                };
                // One more tells whether the window is used up.
                parts.add(
                    wants[*at].shard,
                    &ranges,
                    self.marks().rows(id, wants[*at].limit).saturating_add(1),
                );
            }
            let answer = self.select(topic, &parts).await?;
            self.marks().set_dense(id, &answer.found);
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
                    self.marks().set_empty(id, &wants[at], snapshot.without_ended(&answer.seen));
                }
                let view = (&answer.seen, answer.lasting);
                blocks[at] = Some(block(&wants[at], place, view, found, left_out));
            }
        }
        Ok(blocks.into_iter().flatten().collect())
    }

    /// See [`sawmill::log::Log::reread`].
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

/// The block of a wish for which this was found.
fn block(
    want: &Want,
    place: &Place,
    (seen, lasting): (&Snapshot, i64),
    found: Vec<Piece>,
    left_out: bool,
) -> Block {
    let (window, after) = match place {
        Place::After(snapshot) => {
            (Window { old: snapshot.clone(), new: seen.known(snapshot, lasting) }, None)
        }
        Place::Inside(window, last) => (window.clone(), Some(*last)),
    };
    let (mut messages, mut upto, mut more_in_window) = (Vec::new(), None, left_out);
    for piece in found {
        let piece = piece.within(after, END_OF_ALL);
        let room = want.limit - messages.len();
        if piece.messages.len() > room {
            more_in_window = true;
            // Only the first is taken in parts: what is left of a row has to be read again.
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
        // Behind an older window there may be more; behind one that was just opened nothing was seen.
        more: more_in_window || matches!(place, Place::Inside(..)),
    }
}

/// The snapshot in the row of [`select`] that is not a message's: no column is sent for it with every message.
fn snapshot_among_messages(row: &Row) -> Result<Snapshot> {
    let (shift, text): (i64, &[u8]) =
        (row.try_get(1).map_err(wrong_row)?, row.try_get(8).map_err(wrong_row)?);
    let text = String::from_utf8_lossy(text);
    Snapshot::parse(&text, shift).ok_or_else(|| corrupt(format!("the snapshot {text}")))
}

/// The snapshot in this column of a row, and its shift in the next.
pub(crate) fn snapshot(row: &Row, at: usize) -> Result<Snapshot> {
    let (text, shift): (&str, i64) =
        (row.try_get(at).map_err(wrong_row)?, row.try_get(at + 1).map_err(wrong_row)?);
    Snapshot::parse(text, shift).ok_or_else(|| corrupt(format!("the snapshot {text}")))
}
