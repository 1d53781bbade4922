//! Making messages readable whose time has come. Their rows lie by due time and stay where they are: they are named in a segment.

use futures_util::future::try_join_all;
use sawmill::Result;
use sawmill::clock::Timestamp;
use sawmill::log::Promoted;

use crate::row::{Kind, Named, from_time, to_time};
use crate::segment::MOST_NAMED;
use crate::store::Cassandra;
use crate::topics::Shape;

impl Cassandra {
    pub(crate) async fn promote_due(&self, shape: &Shape, now: Timestamp, limit: usize) -> Result<Promoted> {
        let now = from_time(now);
        let limit = limit.min(MOST_NAMED);
        let mut waiting = self.waiting(shape, now, limit + 1).await?;
        waiting.sort_by_key(|(shard, row)| (row.key, *shard));
        let due = waiting.iter().take(limit).take_while(|(_, row)| row.key.at <= now).count();
        let rest = waiting.split_off(due);
        let next_due = rest.first().map(|(_, row)| to_time(row.key.at));
        // All that is due is named now, unless there was too much of it.
        let all = rest.first().is_none_or(|(_, row)| row.key.at > now);
        let mut shards: Vec<u16> = waiting.iter().map(|(shard, _)| *shard).collect();
        shards.sort_unstable();
        shards.dedup();
        let moves = shards.into_iter().map(|shard| {
            let rows = waiting.iter().filter(|(of, _)| *of == shard).map(|(_, row)| *row).collect();
            self.promote_in(shape, shard, rows)
        });
        let moved: usize = try_join_all(moves).await?.into_iter().sum();
        if all && due == 0 {
            self.settle_aside(shape).await;
        }
        if moved > 0 {
            self.bells().ring_messages();
        }
        Ok(Promoted { moved, next_due })
    }

    /// The first so many rows that wait, of each shard: what is due is found at once, and what is due and came late, soon.
    pub(crate) async fn waiting(&self, shape: &Shape, now: i64, most: usize) -> Result<Vec<(u16, Named)>> {
        let (moment, wall) = (self.env().now(), now.min(self.wall()));
        let lows = (0..shape.shards).map(|shard| async move {
            let tail = self.tail(shape, shard);
            let mut tail = tail.lock().await;
            self.load(shape, shard, &mut tail).await?;
            Ok::<_, sawmill::Error>(tail.windows[1].low.at)
        });
        let low = try_join_all(lows).await?.into_iter().min().unwrap_or(-1);
        let buckets = self.listed_buckets(shape, Kind::Aside, shape.bucket(low), i64::MAX).await?;
        let looks = (0..shape.shards).map(|shard| {
            let mut buckets: Vec<i64> =
                buckets.iter().filter(|(_, of)| *of == shard).map(|(bucket, _)| *bucket).collect();
            async move {
                let tail = self.tail(shape, shard);
                let mut tail = tail.lock().await;
                if !buckets.is_empty() {
                    self.catch_up(shape, shard, &mut tail, false).await?;
                }
                let window = tail.window(Kind::Aside);
                // Who counts, counts all.
                let near = window.near(moment, shape.settle()).filter(|_| most < usize::MAX);
                let from = near.unwrap_or(window.low);
                buckets.retain(|bucket| *bucket >= shape.bucket(from.at));
                let found = self.look_over(shape, Kind::Aside, shard, (window, from), &buckets, most).await?;
                if let Some(first) = found.rows.first() {
                    window.found_behind(wall - first.key.at);
                }
                if near.is_none() && now < i64::MAX {
                    window.looked_well(moment, wall);
                }
                Ok::<_, sawmill::Error>(
                    found.rows.into_iter().take(most).map(move |row| (shard, row)).collect::<Vec<_>>(),
                )
            }
        });
        Ok(try_join_all(looks).await?.into_iter().flatten().collect())
    }

    /// Names rows of one shard, and says how many of them nobody else has.
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
                // Nobody was faster, and nothing was written.
                return Ok(0);
            }
        }
    }

    /// Nothing waits that is due: what comes up to here comes too late.
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
