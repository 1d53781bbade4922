//! Appending: messages become rows, and rows go to their partitions, those of one partition together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use sawmill::clock::{Moment, Timestamp};
use sawmill::log::Record;
use sawmill::{Error, MessageId, Result, Topic};

use crate::error::{Trouble, unknown};
use crate::pack::Pack;
use crate::row::{Kind, Named, RowKey, from_time};
use crate::store::Cassandra;
use crate::topics::Shape;

/// How many partitions are written at once.
const AT_ONCE: usize = 32;
/// The most that is written to one partition at once.
const BATCH_ROWS: usize = 100;
const BATCH_BYTES: usize = 4 << 20;
/// How many buckets are remembered to be listed.
const REMEMBERED: usize = 20_000;

/// A row to be written.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) shard: u16,
    pub(crate) kind: Kind,
    pub(crate) key: RowKey,
    pub(crate) pack: Pack,
    /// The message in it may be appended again.
    pub(crate) id: Option<MessageId>,
    /// A push before it took long.
    pub(crate) slow: bool,
}

impl Row {
    /// As it is named in a segment.
    pub(crate) fn named(&self) -> Named {
        let bytes = u32::try_from(self.pack.body.len()).unwrap_or(u32::MAX);
        let Pack { many, created, .. } = self.pack;
        Named { kind: self.kind, key: self.key, many, bytes, created, slow: self.slow }
    }
}

/// A partition of the log.
type Partition = (u16, Kind, i64);
/// Partitions that are written one after another.
type Line<'a> = Vec<(Partition, Vec<&'a Row>)>;

impl Cassandra {
    pub(crate) async fn add(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()> {
        // What is due has been decided by now: looking up the topic is a part of how long it takes.
        let began = self.env().now();
        // A row of a topic that is gone is nobody's, and expires.
        self.change_meanwhile_check(topic, async |shape| {
            if let Some(wrong) = records.iter().find(|record| record.shard >= shape.shards) {
                return Err(topic.no_shard(wrong.shard));
            }
            self.write(shape, began, self.rows_of(now, &records)).await
        })
        .await?;
        if !records.is_empty() {
            self.tell(&topic.uid);
        }
        Ok(())
    }

    /// The rows of these messages: those that are due and go to one shard are packed, in their order.
    fn rows_of(&self, now: Timestamp, records: &[Record]) -> Vec<Row> {
        let first = self.stamp(records.len().max(1));
        let (mut rows, mut open) = (Vec::<Row>::new(), BTreeMap::<u16, usize>::new());
        let mut ids = BTreeSet::new();
        let slow = self.stamps().is_after_slow(self.env().now());
        for (record, seq) in records.iter().zip(first..) {
            let Record { shard, message, repeatable } = record;
            if *repeatable && !ids.insert(message.id.as_u128()) {
                continue;
            }
            let aside = message.due.filter(|due| *due > now).map(from_time);
            if aside.is_none() && !repeatable {
                let pack = open.get(shard).and_then(|index| rows.get_mut(*index)).map(|row| &mut row.pack);
                if let Some(pack) = pack.filter(|pack| pack.takes(message)) {
                    pack.add(message);
                    continue;
                }
                open.insert(*shard, rows.len());
            } else if aside.is_none() {
                open.remove(shard);
            }
            let at = aside.unwrap_or(seq.div_euclid(1000));
            let kind = if aside.is_some() { Kind::Aside } else { Kind::Ready };
            let key = RowKey { at, seq, writer: self.writer() };
            let id = repeatable.then_some(message.id);
            rows.push(Row { shard: *shard, kind, key, pack: Pack::new(message), id, slow });
        }
        rows
    }

    async fn write(&self, shape: &Shape, began: Moment, rows: Vec<Row>) -> Result<()> {
        let (rows, any_named) = self.take_ids(shape, rows).await?;
        if rows.is_empty() {
            return Ok(());
        }
        let wall = self.wall();
        let put = self.put(shape, wall, &rows).await;
        put.map_err(|error| if any_named { unknown(error) } else { error })?;
        self.in_time(shape, began, &rows)?;
        self.make_sure(shape, wall, &rows).await
    }

    /// Writes these rows, whether or not anybody will find them.
    pub(crate) async fn put(&self, shape: &Shape, wall: i64, rows: &[Row]) -> Result<()> {
        let mut partitions: BTreeMap<Partition, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            partitions.entry((row.shard, row.kind, shape.bucket(row.key.at))).or_default().push(row);
        }
        self.list_buckets(shape, wall, rows, partitions.keys()).await?;
        // The rows of one shard that are ready are written in their order; the next bucket after the one before it.
        let mut lines: BTreeMap<Partition, Line<'_>> = BTreeMap::new();
        for (partition, rows) in partitions {
            let (shard, kind, bucket) = partition;
            let line = if kind == Kind::Ready { (shard, kind, 0) } else { (shard, kind, bucket) };
            lines.entry(line).or_default().push((partition, rows));
        }
        let writes: Vec<_> = lines.into_values().map(|line| self.write_line(shape, wall, line)).collect();
        let mut writes = stream::iter(writes).buffer_unordered(AT_ONCE);
        let (mut any, mut trouble) = (false, None);
        while let Some((some, end)) = writes.next().await {
            any |= some;
            if let Err(failed) = end
                && trouble.as_ref().is_none_or(|trouble: &Trouble| !trouble.is_unknown())
            {
                trouble = Some(failed);
            }
        }
        match trouble {
            Some(Trouble::Refused(error)) if any => Err(unknown(error)),
            Some(trouble) => Err(trouble.into()),
            None => Ok(()),
        }
    }

    /// Writes the partitions of one shard, one after another. With it, whether any of it was written.
    async fn write_line(
        &self,
        shape: &Shape,
        wall: i64,
        line: Line<'_>,
    ) -> (bool, std::result::Result<(), Trouble>) {
        let mut any = false;
        for ((shard, kind, bucket), rows) in line {
            for batch in batches(&rows) {
                let values: Vec<_> = batch
                    .iter()
                    .map(|row| {
                        let number = |value: usize| i32::try_from(value).unwrap_or(i32::MAX);
                        let RowKey { at, seq, writer } = row.key;
                        let (many, size) = (number(row.pack.many as usize), number(row.pack.body.len()));
                        let body = row.pack.body.as_slice();
                        let place =
                            (shape.uid.as_str(), bucket, i32::from(shard), kind.number(), at, seq, writer);
                        let (a, b, c, d, e, f, g) = place;
                        (
                            a,
                            b,
                            c,
                            d,
                            e,
                            f,
                            g,
                            many,
                            size,
                            row.pack.created,
                            row.slow,
                            body,
                            shape.ttl(at, wall),
                        )
                    })
                    .collect();
                if let Err(trouble) = self.link().add_rows(&values).await {
                    return (any, Err(trouble));
                }
                any = true;
            }
        }
        (any, Ok(()))
    }

    /// Lists the buckets before anything is in them: who reads must not miss them.
    async fn list_buckets<'a>(
        &self,
        shape: &Shape,
        wall: i64,
        rows: &[Row],
        partitions: impl Iterator<Item = &'a Partition>,
    ) -> Result<()> {
        let listed = |(shard, kind, bucket): &Partition| (shape.uid.clone(), *kind, *bucket, *shard);
        let fresh: Vec<&Partition> = {
            let known = self.listed();
            partitions.filter(|partition| !known.contains(&listed(partition))).collect()
        };
        // As long as the last row that may be in it.
        let last = rows.iter().map(|row| row.key.at).max().unwrap_or(wall);
        let ttl = match shape.ttl(last, wall) {
            0 => 0,
            ttl => ttl.saturating_add(8 * 86_400),
        };
        let adds = fresh.iter().map(|(shard, kind, bucket)| {
            let values = (&shape.uid, kind.number(), *bucket, i32::from(*shard), ttl);
            self.link().ask(&self.link().say.bucket_add, values)
        });
        for added in join_all(adds).await {
            // Whether or not it is listed, no message was written.
            added.map_err(crate::error::of_read)?;
        }
        let mut known = self.listed();
        if known.len() > REMEMBERED {
            known.clear();
        }
        known.extend(fresh.into_iter().map(listed));
        Ok(())
    }

    /// Refuses to say that rows were appended which may have come too late to be found.
    fn in_time(&self, shape: &Shape, began: Moment, rows: &[Row]) -> Result<()> {
        let took = i64::try_from(self.env().now().since(began).as_millis()).unwrap_or(i64::MAX);
        let wall = self.wall();
        if took > shape.settle() / 20 {
            self.stamps().was_slow(self.env().now() + Duration::from_millis(shape.settle().unsigned_abs()));
        }
        let late = |row: &Row| match row.kind {
            Kind::Ready => took > shape.slack(),
            Kind::Aside => took > shape.slack() && wall.saturating_sub(row.key.at) > shape.slack(),
        };
        if rows.iter().any(late) {
            return Err(too_late(took));
        }
        Ok(())
    }
}

fn too_late(took: i64) -> Error {
    unknown(format!("the push took {took} ms, and who reads may be past it; is the database overloaded?"))
}

/// Rows of one partition that are written together.
fn batches<'a>(rows: &'a [&'a Row]) -> Vec<&'a [&'a Row]> {
    let (mut batches, mut from, mut bytes) = (Vec::new(), 0, 0);
    for (index, row) in rows.iter().enumerate() {
        let size = row.pack.body.len() + 100;
        if index > from && (index - from >= BATCH_ROWS || bytes + size > BATCH_BYTES) {
            batches.push(&rows[from..index]);
            (from, bytes) = (index, 0);
        }
        bytes += size;
    }
    batches.push(&rows[from..]);
    batches
}
