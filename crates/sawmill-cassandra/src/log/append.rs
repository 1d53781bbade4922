//! Appends messages: packs them in rows, and writes the rows of each partition together.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use sawmill_engine::model::{MessageId, Topic};
use sawmill_engine::runtime::{Moment, Timestamp};
use sawmill_engine::storage::Record;
use sawmill_engine::{Error, Result};

use crate::error::{Failure, unknown};
use crate::log::pack::Pack;
use crate::log::row::{Kind, Named, RowKey, from_time};
use crate::log::topics::Shape;
use crate::store::Cassandra;

/// How many partitions are written concurrently.
const AT_ONCE: usize = 32;
/// The limits of one batch, which goes to one partition.
const BATCH_ROWS: usize = 100;
const BATCH_BYTES: usize = 4 << 20;
/// How many buckets are cached as already listed.
const REMEMBERED: usize = 20_000;

/// A row to be written.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) shard: u16,
    pub(crate) kind: Kind,
    pub(crate) key: RowKey,
    pub(crate) pack: Pack,
    /// The id of the message in it, if the message may be appended again.
    pub(crate) id: Option<MessageId>,
    /// It follows a slow push: see [`Named::slow`].
    pub(crate) slow: bool,
}

impl Row {
    /// The entry that names the row in a segment.
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
        // The caller has already decided which messages are due, so the time limit includes the topic lookup.
        let began = self.env().now();
        // A row that is written to a deleted topic is never read, and expires.
        self.change_with_check(topic, async |shape| {
            if let Some(wrong) = records.iter().find(|record| record.shard >= shape.shards) {
                return Err(topic.no_shard(wrong.shard));
            }
            self.write(shape, began, self.rows_of(now, &records)).await
        })
        .await?;
        if !records.is_empty() {
            self.notify_topic(&topic.uid);
        }
        Ok(())
    }

    /// Makes rows of these messages. Messages that are due and go to one shard are packed, in their order.
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
        self.check_in_time(shape, began, &rows)?;
        self.mark_acknowledged(shape, wall, &rows).await
    }

    /// Writes these rows, without checking that they come in time to be found.
    pub(crate) async fn put(&self, shape: &Shape, wall: i64, rows: &[Row]) -> Result<()> {
        let mut partitions: BTreeMap<Partition, Vec<&Row>> = BTreeMap::new();
        for row in rows {
            partitions.entry((row.shard, row.kind, shape.bucket(row.key.at))).or_default().push(row);
        }
        self.list_buckets(shape, wall, rows, partitions.keys()).await?;
        // The ready rows of one shard are written in their order, bucket after bucket. Delayed rows have no
        // order.
        let mut lines: BTreeMap<Partition, Line<'_>> = BTreeMap::new();
        for (partition, rows) in partitions {
            let (shard, kind, bucket) = partition;
            let line = if kind == Kind::Ready { (shard, kind, 0) } else { (shard, kind, bucket) };
            lines.entry(line).or_default().push((partition, rows));
        }
        let writes: Vec<_> = lines.into_values().map(|line| self.write_line(shape, wall, line)).collect();
        let mut writes = stream::iter(writes).buffer_unordered(AT_ONCE);
        let (mut any, mut failure) = (false, None);
        while let Some((some, end)) = writes.next().await {
            any |= some;
            if let Err(failed) = end
                && failure.as_ref().is_none_or(|failure: &Failure| !failure.is_unknown())
            {
                failure = Some(failed);
            }
        }
        match failure {
            Some(Failure::Refused(error)) if any => Err(unknown(error)),
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }

    /// Writes the partitions one after another. Also returns whether anything was written.
    async fn write_line(
        &self,
        shape: &Shape,
        wall: i64,
        line: Line<'_>,
    ) -> (bool, std::result::Result<(), Failure>) {
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
                if let Err(failure) = self.link().add_rows(&values).await {
                    return (any, Err(failure));
                }
                any = true;
            }
        }
        (any, Ok(()))
    }

    /// Lists the buckets before rows are written to them, because readers find buckets by the list.
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
        // The entry must outlive the last row in the bucket.
        let last = rows.iter().map(|row| row.key.at).max().unwrap_or(wall);
        let ttl = match shape.ttl(last, wall) {
            0 => 0,
            ttl => ttl.saturating_add(8 * 86_400),
        };
        let adds = fresh.iter().map(|(shard, kind, bucket)| {
            let values = (&shape.uid, kind.number(), *bucket, i32::from(*shard), ttl);
            self.link().execute(&self.link().statements.bucket_add, values)
        });
        for added in join_all(adds).await {
            // No message was written yet, so the outcome of the append is known: it failed.
            added.map_err(crate::error::of_read)?;
        }
        let mut known = self.listed();
        if known.len() > REMEMBERED {
            known.clear();
        }
        known.extend(fresh.into_iter().map(listed));
        Ok(())
    }

    /// Refuses to acknowledge rows that may have arrived too late to be found.
    fn check_in_time(&self, shape: &Shape, began: Moment, rows: &[Row]) -> Result<()> {
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
    unknown(format!("the push took {took} ms, and readers may have passed it; is the database overloaded?"))
}

/// Splits the rows of one partition into batches.
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
