//! Reads messages in the order of the segments.

use std::collections::HashMap;

use bytes::Bytes;
use futures_util::future::try_join_all;
use sawmill_engine::Result;
use sawmill_engine::model::{Message, Topic};
use sawmill_engine::storage::{Block, Position, ReadRequest};

use crate::error::corrupt;
use crate::log::pack::unpack;
use crate::log::row::{Kind, Named, RowKey};
use crate::log::segment::{Place, PlaceRange};
use crate::log::tail::Tail;
use crate::log::topics::Shape;
use crate::store::{Cassandra, read};

/// About the most bytes that one read returns.
const MAX_BYTES: u64 = 4 << 20;
/// How often one read scans for unnamed rows before it returns an empty block.
const MAX_SCANS: usize = 4;
/// Up to this many rows are read one by one: a range may contain other rows between them.
const FEW: usize = 4;

/// Some messages of one row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) row: Named,
    skip: u32,
    take: u32,
}

/// The plan of a read: its pieces, and the place after them.
#[derive(Debug, Default)]
struct Plan {
    pieces: Vec<Piece>,
    end: Place,
    /// The limit is reached.
    full: bool,
    more: bool,
}

impl Cassandra {
    /// Reads one shard after a position.
    pub(crate) async fn read_one(&self, shape: &Shape, want: &ReadRequest) -> Result<Block> {
        let mut place = Place::of(&want.after)?;
        let nothing = |more: bool| Block {
            messages: Vec::new(),
            span: PlaceRange { from: Place::default(), upto: Place::default(), many: 0 }.span(),
            end: want.after.clone(),
            more,
        };
        if want.limit == 0 {
            return Ok(nothing(true));
        }
        loop {
            let plan = {
                let tail = self.tail(shape, want.shard);
                let mut tail = tail.lock().await;
                self.plan(shape, want.shard, &mut tail, place, want.limit).await?
            };
            if plan.pieces.is_empty() {
                return Ok(nothing(plan.more));
            }
            let messages = self.fetch(shape, want.shard, &plan.pieces).await?;
            if !messages.is_empty() {
                let span = PlaceRange { from: place, upto: plan.end, many: messages.len() }.span();
                return Ok(Block { messages, span, end: plan.end.position(), more: plan.more });
            }
            // All of these messages have expired; go on after them.
            place = plan.end;
        }
    }

    /// Plans a read after a place: takes what is already named there, and names more rows only if there is
    /// nothing.
    async fn plan(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &mut Tail,
        place: Place,
        limit: usize,
    ) -> Result<Plan> {
        self.catch_up_to(shape, shard, tail, place.n).await?;
        let mut plan = self.plan_known(shape, shard, tail, place, limit).await?;
        if !plan.pieces.is_empty() {
            // Return these at once; the next read looks for more.
            plan.more = true;
            return Ok(plan);
        }
        for _ in 0..MAX_SCANS {
            if !plan.pieces.is_empty() || !self.seal_ready(shape, shard, tail).await? {
                break;
            }
            plan = self.plan_known(shape, shard, tail, place, limit).await?;
        }
        plan.more = plan.full || tail.more;
        Ok(plan)
    }

    async fn plan_known(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        place: Place,
        limit: usize,
    ) -> Result<Plan> {
        let mut plan = Plan { end: place, ..Plan::default() };
        let (mut room, mut bytes) = (u32::try_from(limit).unwrap_or(u32::MAX), 0);
        loop {
            // If the segment is used up, go on with the next one.
            let segments = self.segments_from(shape, shard, tail, plan.end.n).await?;
            let began = plan.end;
            for segment in &segments {
                let mut passed = 0;
                for row in &segment.named {
                    let skip = if segment.n == began.n {
                        began.after.saturating_sub(passed).min(row.many)
                    } else {
                        0
                    };
                    let take = (row.many - skip).min(room);
                    if skip < row.many {
                        if take == 0 || (bytes > 0 && bytes + u64::from(row.bytes) > MAX_BYTES) {
                            plan.full = true;
                            return Ok(plan);
                        }
                        plan.pieces.push(Piece { row: *row, skip, take });
                        room -= take;
                        bytes += u64::from(row.bytes);
                        plan.end = Place { n: segment.n, after: passed + skip + take };
                    }
                    passed += row.many;
                }
                if plan.end.n < segment.n {
                    plan.end = Place { n: segment.n, after: passed };
                }
            }
            if plan.end.n >= tail.n || plan.end == began {
                break;
            }
        }
        plan.full = room == 0;
        Ok(plan)
    }

    /// Fetches the messages of these pieces, without those that have expired.
    async fn fetch(&self, shape: &Shape, shard: u16, pieces: &[Piece]) -> Result<Vec<Message>> {
        let place = |piece: &Piece| (piece.row.kind, shape.bucket(piece.row.key.at));
        let parts = pieces.chunk_by(|a, b| place(a) == place(b)).flat_map(|part| match part.len() {
            0..=FEW => part.chunks(1).collect::<Vec<_>>(),
            _ => vec![part],
        });
        let reads = parts.map(|part| {
            let (least, most) =
                part.iter().fold((part[0].row.key, part[0].row.key), |(least, most), piece| {
                    (least.min(piece.row.key), most.max(piece.row.key))
                });
            let (kind, bucket) = place(&part[0]);
            self.bodies(shape, shard, kind, bucket, least, most)
        });
        let mut bodies = HashMap::new();
        for part in try_join_all(reads).await? {
            bodies.extend(part);
        }
        let mut messages = Vec::new();
        for piece in pieces {
            let Some((many, body)) = bodies.get(&(piece.row.kind, piece.row.key)) else { continue };
            let odd = || corrupt(format!("a row of messages that cannot be read ({:?})", piece.row.key));
            let unpacked = unpack(body.clone(), *many).ok_or_else(odd)?;
            messages.extend(unpacked.into_iter().skip(piece.skip as usize).take(piece.take as usize));
        }
        Ok(messages)
    }

    /// The rows between two keys, both inclusive.
    pub(crate) async fn bodies(
        &self,
        shape: &Shape,
        shard: u16,
        kind: Kind,
        bucket: i64,
        least: RowKey,
        most: RowKey,
    ) -> Result<Vec<((Kind, RowKey), (u32, Bytes))>> {
        let bounds = (least.at, least.seq, least.writer, most.at, most.seq, most.writer);
        let (a, b, c, d, e, f) = bounds;
        let values = (&shape.uid, bucket, i32::from(shard), kind.number(), a, b, c, d, e, f);
        let rows: Vec<(i64, i64, i64, i32, Bytes)> =
            read(self.link().all(&self.link().statements.row_range, values).await)?;
        let keyed = rows.into_iter().map(|(at, seq, writer, many, body)| {
            ((kind, RowKey { at, seq, writer }), (u32::try_from(many).unwrap_or_default(), body))
        });
        Ok(keyed.collect())
    }

    /// Reads a past block again.
    pub(crate) async fn read_again(
        &self,
        topic: &Topic,
        shape: &Shape,
        shard: u16,
        range: PlaceRange,
    ) -> Result<Vec<Message>> {
        let (mut place, mut messages) = (range.from, Vec::new());
        if range.many == 0 {
            return Ok(messages);
        }
        let tail = self.tail(shape, shard);
        let mut tail = tail.lock().await;
        self.catch_up_to(shape, shard, &mut tail, range.upto.n).await?;
        while place < range.upto {
            let plan = self.plan_known(shape, shard, &tail, place, range.many - messages.len()).await?;
            if plan.pieces.is_empty() {
                break;
            }
            messages.extend(self.fetch(shape, shard, &plan.pieces).await?);
            place = plan.end;
            if messages.len() >= range.many {
                break;
            }
        }
        if messages.len() == range.many && place <= range.upto {
            return Ok(messages);
        }
        Err(topic.gone(range.many, messages.len().min(range.many.saturating_sub(1))))
    }

    /// The first message after a place among those that are named, if it has not expired.
    pub(crate) async fn first_after(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        place: Place,
    ) -> Result<Option<Message>> {
        let plan = self.plan_known(shape, shard, tail, place, 1).await?;
        Ok(self.fetch(shape, shard, &plan.pieces).await?.into_iter().next())
    }

    /// How many messages segments name after a position.
    pub(crate) async fn named_after(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        after: &Position,
    ) -> Result<u64> {
        let place = Place::of(after)?;
        if place.n > tail.n {
            return Ok(0);
        }
        let first = self.segments_from(shape, shard, tail, place.n).await?;
        let Some(first) = first.first() else { return Ok(0) };
        let inside = if first.n == place.n { u64::from(place.after).min(first.many()) } else { 0 };
        Ok(tail.total.saturating_sub(first.before() + inside))
    }
}
