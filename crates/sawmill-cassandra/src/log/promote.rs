//! Promotes delayed messages that are due. Their rows are stored by due time and stay where they are: a
//! segment names them.

use futures_util::future::{join, try_join, try_join_all};
use sawmill_engine::Result;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Promoted;

use crate::log::row::{Kind, Named, RowKey, from_time, to_time};
use crate::log::scan::Scanned;
use crate::log::segment::MAX_NAMED;
use crate::log::topics::Shape;
use crate::store::{Cassandra, read};

/// How many rows are read at a time to find the first that still waits.
const NEXT_FEW: i32 = 20;

impl Cassandra {
    pub(crate) async fn promote_due(&self, shape: &Shape, now: Timestamp, limit: usize) -> Result<Promoted> {
        let now = from_time(now);
        let limit = limit.min(MAX_NAMED);
        let buckets = self.aside_buckets(shape).await?;
        let (due, next) =
            try_join(self.waiting(shape, &buckets, now, limit + 1), self.next_after(shape, &buckets, now))
                .await?;
        let mut waiting = due;
        waiting.sort_by_key(|(shard, row)| (row.key, *shard));
        // Name all rows that are due now, up to the limit.
        let rest = waiting.split_off(limit.min(waiting.len()));
        let next_due = rest.first().map(|(_, row)| row.key.at).or(next).map(to_time);
        let mut shards: Vec<u16> = waiting.iter().map(|(shard, _)| *shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let moves = shards.into_iter().map(|shard| {
            let rows = waiting.iter().filter(|(of, _)| *of == shard).map(|(_, row)| *row).collect();
            self.promote_in(shape, shard, rows)
        });
        let moved: usize = try_join_all(moves).await?.into_iter().sum();
        if waiting.is_empty() && rest.is_empty() {
            self.settle_aside(shape).await;
        }
        if moved > 0 {
            self.notify_topic(&shape.uid);
        }
        Ok(Promoted { moved, next_due })
    }

    /// The buckets that may hold waiting rows, of all shards, ascending.
    pub(crate) async fn aside_buckets(&self, shape: &Shape) -> Result<Vec<(i64, u16)>> {
        let lows = (0..shape.shards).map(|shard| async move {
            let tail = self.tail(shape, shard);
            let mut tail = tail.lock().await;
            self.load(shape, shard, &mut tail).await?;
            Ok::<_, sawmill_engine::Error>(tail.windows[1].low.at)
        });
        let low = try_join_all(lows).await?.into_iter().min().unwrap_or(-1);
        self.listed_buckets(shape, Kind::Aside, shape.bucket(low), i64::MAX).await
    }

    /// The due time of the first row that is not due yet.
    async fn next_after(&self, shape: &Shape, buckets: &[(i64, u16)], now: i64) -> Result<Option<i64>> {
        let firsts = (0..shape.shards).map(|shard| async move {
            let later = buckets.iter().filter(|(bucket, of)| *of == shard && *bucket >= shape.bucket(now));
            for (bucket, _) in later {
                let mut after = RowKey::end_of(now);
                loop {
                    let place = (&shape.uid, *bucket, i32::from(shard), Kind::Aside.number());
                    let (a, b, c, d) = place;
                    let values = (a, b, c, d, after.at, after.seq, after.writer, NEXT_FEW);
                    let rows = self.link().execute(&self.link().statements.row_next, values).await;
                    let rows: Vec<(i64, i64, i64)> =
                        read(rows.and_then(crate::connection::link::Answer::rows))?;
                    let key =
                        |(at, seq, writer): &(i64, i64, i64)| RowKey { at: *at, seq: *seq, writer: *writer };
                    let keys: Vec<RowKey> = rows.iter().map(key).collect();
                    let tail = self.tail(shape, shard);
                    let mut tail = tail.lock().await;
                    // A worker whose clock is ahead may have named it already.
                    if let Some(first) = keys.iter().find(|key| !tail.window(Kind::Aside).knows(key)) {
                        return Ok::<_, sawmill_engine::Error>(Some(first.at));
                    }
                    match keys.last() {
                        Some(last) if keys.len() == NEXT_FEW as usize => after = *last,
                        _ => break,
                    }
                }
            }
            Ok(None)
        });
        Ok(try_join_all(firsts).await?.into_iter().flatten().min())
    }

    /// The first `most` rows of each shard that wait and are due. Rows that arrived in time are found at
    /// once, late ones by the next full scan.
    pub(crate) async fn waiting(
        &self,
        shape: &Shape,
        buckets: &[(i64, u16)],
        now: i64,
        most: usize,
    ) -> Result<Vec<(u16, Named)>> {
        let (moment, wall) = (self.env().now(), now.min(self.wall()));
        let last = shape.bucket(now);
        let scans = (0..shape.shards).map(|shard| {
            let of_shard = buckets.iter().filter(|(bucket, of)| *of == shard && *bucket <= last);
            let mut buckets: Vec<i64> = of_shard.map(|(bucket, _)| *bucket).collect();
            async move {
                let tail = self.tail(shape, shard);
                let mut tail = tail.lock().await;
                let (quick_from, found) = loop {
                    let window = &tail.windows[1];
                    // Counting needs a full scan.
                    let quick_from =
                        window.quick_scan_start(moment, shape.settle()).filter(|_| most < usize::MAX);
                    let from = quick_from.unwrap_or(window.low);
                    buckets.retain(|bucket| *bucket >= shape.bucket(from.at));
                    if buckets.is_empty() {
                        break (quick_from, Scanned::default());
                    }
                    let (added, found) = join(
                        self.segments_after(shape, shard, tail.n, false),
                        self.scan(
                            shape,
                            Kind::Aside,
                            shard,
                            (window, from, RowKey::end_of(now)),
                            &buckets,
                            most,
                        ),
                    )
                    .await;
                    let added = added?;
                    if added.is_empty() {
                        break (quick_from, found?);
                    }
                    // Others have named some of these rows meanwhile.
                    added.into_iter().for_each(|segment| tail.extend(segment));
                    self.catch_up(shape, shard, &mut tail, false).await?;
                };
                let window = tail.window(Kind::Aside);
                if let Some(first) = found.rows.first() {
                    window.record_lag(wall - first.key.at);
                }
                if quick_from.is_none() && now < i64::MAX {
                    window.full_scan_done(moment, wall);
                }
                Ok::<_, sawmill_engine::Error>(
                    found.rows.into_iter().take(most).map(move |row| (shard, row)).collect::<Vec<_>>(),
                )
            }
        });
        Ok(try_join_all(scans).await?.into_iter().flatten().collect())
    }

    /// Names rows of one shard. Returns how many messages of them were not named by others.
    async fn promote_in(&self, shape: &Shape, shard: u16, rows: Vec<Named>) -> Result<usize> {
        let tail = self.tail(shape, shard);
        let mut tail = tail.lock().await;
        loop {
            let window = tail.window(Kind::Aside);
            let settled = window.settled(shape.settle());
            let fresh: Vec<Named> = rows.iter().filter(|row| !window.knows(&row.key)).copied().collect();
            if fresh.is_empty() {
                return Ok(0);
            }
            let before = tail.n;
            let many = fresh.iter().map(|row| row.many as usize).sum();
            if self.seal(shape, shard, &mut tail, Kind::Aside, fresh, settled).await? {
                return Ok(many);
            }
            if tail.n == before {
                // No other worker added a segment, and nothing was written.
                return Ok(0);
            }
        }
    }

    /// Closes the windows as far as the last full scan allows: nothing that is due waits.
    async fn settle_aside(&self, shape: &Shape) {
        for shard in 0..shape.shards {
            let tail = self.tail(shape, shard);
            let mut tail = tail.lock().await;
            let window = tail.window(Kind::Aside);
            let settled = window.settled(shape.settle());
            window.settle(settled);
        }
    }
}
