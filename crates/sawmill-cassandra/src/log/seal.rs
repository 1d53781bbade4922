//! Extends a shard's order: finds rows that no segment names, and names them in the next one.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use sawmill_engine::Result;

use crate::error::corrupt;
use crate::log::row::{Kind, Named, RowKey};
use crate::log::segment::{CHAPTER, MAX_NAMED, Segment, State};
use crate::log::tail::Tail;
use crate::log::topics::Shape;
use crate::store::{Cassandra, read};

/// How many segments are read at a time.
const PAGE: i32 = 16;
/// The most segments that are read back at a time.
const MAX_PAGE: i32 = 256;
/// A tail that is this many segments behind is loaded anew instead of reading all segments between.
const RELOAD_DISTANCE: u64 = 4 * PAGE as u64;
/// How often a scan is repeated that conflicts with others, before it is left to the next call.
const TRIES: usize = 6;
/// How many seconds segments outlive the rows that they name.
const EXTRA_TTL_S: i32 = 86_400;

type Row = (i64, Bytes, Bytes);

fn segment_of((n, named, state): Row) -> Result<Segment> {
    Segment::decode(n, &named, &state).ok_or_else(|| corrupt(format!("a segment {n} that cannot be read")))
}

fn chapter(n: u64) -> i64 {
    (n / CHAPTER) as i64
}

impl Cassandra {
    /// Loads the end of the shard, unless it is loaded.
    pub(crate) async fn load(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<()> {
        if tail.loaded {
            return Ok(());
        }
        let shard_number = i32::from(shard);
        let chapters =
            self.link().execute(&self.link().statements.chapter_get, (&shape.uid, shard_number)).await;
        let chapters: Vec<(i64,)> = read(chapters.and_then(crate::connection::link::Answer::rows))?;
        let begun = chapters.first().map_or(0, |(chapter,)| *chapter);
        let mut fresh = Tail::default();
        // A chapter is recorded before its first segment is written, so it may still be empty.
        for chapter in (begun.saturating_sub(1)..=begun).rev().filter(|chapter| *chapter >= 0) {
            let values = (&shape.uid, shard_number, chapter);
            let rows = self.link().execute(&self.link().statements.segment_tail, values).await;
            let rows: Vec<(Option<i64>, Option<Bytes>)> =
                read(rows.and_then(crate::connection::link::Answer::rows))?;
            if let Some((Some(last), Some(state))) = rows.into_iter().next() {
                let odd = || corrupt(format!("an end of shard {shard} that cannot be read"));
                let state = State::decode(&state).ok_or_else(odd)?;
                fresh.begin(u64::try_from(last).map_err(|_| odd())?, &state);
                break;
            }
        }
        self.recall(shape, shard, &mut fresh).await?;
        fresh.loaded = true;
        *tail = fresh;
        Ok(())
    }

    /// Loads the end of the shard anew.
    async fn reload(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<()> {
        tail.loaded = false;
        self.load(shape, shard, tail).await
    }

    /// Reads back the segments that name rows in the open windows.
    async fn recall(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<()> {
        let (mut wanted, mut some) = (tail.to_recall(), PAGE);
        while let Some(upto @ 1..) = wanted.into_iter().max() {
            let values = (&shape.uid, i32::from(shard), chapter(upto), upto as i64, some);
            // A busy topic has thousands of segments in its window, a quiet one a few.
            some = (4 * some).min(MAX_PAGE);
            let rows = self.link().execute(&self.link().statements.segment_back, values).await;
            let rows: Vec<Row> = read(rows.and_then(crate::connection::link::Answer::rows))?;
            if rows.is_empty() {
                // The segment has expired, and so have all earlier ones and the rows that they name.
                break;
            }
            for row in rows {
                tail.recall(segment_of(row)?, &mut wanted);
            }
        }
        Ok(())
    }

    /// Reads the segments that others have added; with serial reads if `serial` is true.
    pub(crate) async fn catch_up(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &mut Tail,
        serial: bool,
    ) -> Result<()> {
        self.load(shape, shard, tail).await?;
        let (began, mut may_reload) = (tail.n, true);
        loop {
            let before = tail.n;
            for segment in self.segments_after(shape, shard, tail.n, serial).await? {
                tail.extend(segment);
            }
            if tail.n == before {
                return Ok(());
            }
            if may_reload && tail.n - began >= RELOAD_DISTANCE {
                self.reload(shape, shard, tail).await?;
                may_reload = false;
            }
        }
    }

    /// Reads the segments up to this number, which a position shows to exist.
    pub(crate) async fn catch_up_to(&self, shape: &Shape, shard: u16, tail: &mut Tail, n: u64) -> Result<()> {
        self.load(shape, shard, tail).await?;
        while tail.n < n && n - tail.n <= RELOAD_DISTANCE {
            let added = self.segments_after(shape, shard, tail.n, false).await?;
            if added.is_empty() {
                break;
            }
            added.into_iter().for_each(|segment| tail.extend(segment));
        }
        if tail.n < n {
            // It is too far ahead, or the segments between have expired.
            self.reload(shape, shard, tail).await?;
        }
        Ok(())
    }

    /// The next segments after this number.
    pub(crate) async fn segments_after(
        &self,
        shape: &Shape,
        shard: u16,
        n: u64,
        serial: bool,
    ) -> Result<Vec<Segment>> {
        let statements = &self.link().statements;
        let statement = if serial { &statements.segment_after_serial } else { &statements.segment_after };
        let values = (&shape.uid, i32::from(shard), chapter(n + 1), n as i64, PAGE);
        let rows = self.link().execute(statement, values).await;
        let rows: Vec<Row> = read(rows.and_then(crate::connection::link::Answer::rows))?;
        rows.into_iter().map(segment_of).collect()
    }

    /// Some segments from this number on, up to the end of `tail`.
    pub(crate) async fn segments_from(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        n: u64,
    ) -> Result<Vec<Arc<Segment>>> {
        let n = n.max(1);
        if tail.recent.front().is_some_and(|first| first.n <= n) {
            return Ok(tail.recent.iter().skip_while(|segment| segment.n < n).cloned().collect());
        }
        let mut found = self.first_from(shape, shard, tail, n).await?;
        // One segment may be the last of its chapter and used up; without the next one a reader would stop
        // there.
        if let [last] = &found[..]
            && last.n < tail.n
        {
            let next = last.n + 1;
            found.extend(self.first_from(shape, shard, tail, next).await?);
        }
        Ok(found)
    }

    async fn first_from(&self, shape: &Shape, shard: u16, tail: &Tail, n: u64) -> Result<Vec<Arc<Segment>>> {
        let mut found = self.segments_in(shape, shard, tail, chapter(n), n).await?;
        if !found.is_empty() {
            return Ok(found);
        }
        // Segments expire in their order, so a binary search finds the first chapter that has any left.
        let (mut without, mut with) = (chapter(n), chapter(tail.n) + 1);
        while without + 1 < with {
            let middle = without + (with - without) / 2;
            let some = self.segments_in(shape, shard, tail, middle, n).await?;
            if some.is_empty() {
                without = middle;
            } else {
                (with, found) = (middle, some);
            }
        }
        Ok(found)
    }

    /// The first segments of a chapter from this number on, up to the end of `tail`.
    async fn segments_in(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        chapter: i64,
        n: u64,
    ) -> Result<Vec<Arc<Segment>>> {
        let values = (&shape.uid, i32::from(shard), chapter, n as i64 - 1, PAGE);
        let rows = self.link().execute(&self.link().statements.segment_after, values).await;
        let rows: Vec<Row> = read(rows.and_then(crate::connection::link::Answer::rows))?;
        let known = rows.into_iter().filter(|(m, ..)| *m as u64 <= tail.n);
        known.map(|row| segment_of(row).map(Arc::new)).collect()
    }

    /// Names ready rows that no segment names. Returns true if there are more segments than before.
    pub(crate) async fn seal_ready(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<bool> {
        self.load(shape, shard, tail).await?;
        let mut full_scan = false;
        for _ in 0..TRIES {
            let (now, wall) = (self.env().now(), self.wall());
            let quick_from =
                if full_scan { None } else { tail.windows[0].quick_scan_start(now, shape.settle()) };
            let from = quick_from.unwrap_or(tail.windows[0].low);
            let (added, gapless_rows) = join(
                self.segments_after(shape, shard, tail.n, false),
                self.gapless_rows(shape, shard, tail, from),
            )
            .await;
            let (added, (rows, end)) = (added?, gapless_rows?);
            if !added.is_empty() {
                added.into_iter().for_each(|segment| tail.extend(segment));
                tail.more = true;
                return Ok(true);
            }
            if quick_from.is_some() && rows.iter().any(|row| row.slow) {
                full_scan = true;
                continue;
            }
            let window = tail.window(Kind::Ready);
            if quick_from.is_none() && end {
                window.full_scan_done(now, wall);
            }
            let settled = match quick_from {
                None => RowKey::end_of(wall - shape.settle()),
                Some(_) => window.settled(shape.settle()),
            };
            let Some(first) = rows.first() else {
                if end {
                    window.settle(settled);
                    tail.more = false;
                    return Ok(false);
                }
                continue;
            };
            window.record_lag(wall - first.key.at);
            let before = tail.n;
            let whole = self.seal(shape, shard, tail, Kind::Ready, rows, settled).await?;
            tail.more = !(whole && end);
            if tail.n > before {
                return Ok(true);
            }
        }
        tail.more = true;
        Ok(false)
    }

    /// Returns ready rows without a gap: no row is missing that was acknowledged before one of them was
    /// pushed. One query on an unreplicated keyspace shows that; otherwise two scans must agree. Also returns
    /// whether there are no more rows.
    async fn gapless_rows(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        from: RowKey,
    ) -> Result<(Vec<Named>, bool)> {
        let upto = self.wall() + shape.slack();
        let buckets = self.buckets(shape, Kind::Ready, shard, &from, upto.max(from.at)).await?;
        let scan =
            || self.scan(shape, Kind::Ready, shard, (&tail.windows[0], from, RowKey::LAST), &buckets, 1);
        let mut first = scan().await?;
        for _ in 0..TRIES {
            if first.rows.is_empty() || (first.one_moment && !self.link().replicated) {
                return Ok((first.rows, first.end));
            }
            let second = scan().await?;
            let same = first.rows.iter().zip(&second.rows).take_while(|(a, b)| a == b).count();
            if same > 0 {
                let end = second.end && same == second.rows.len();
                first.rows.truncate(same);
                return Ok((first.rows, end));
            }
            first = second;
        }
        Ok((Vec::new(), false))
    }

    /// Names these rows in the next segment. No rows up to `settled` will arrive any more. Returns true if
    /// all of them are named now; if another worker was faster, reads its segment instead.
    pub(crate) async fn seal(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &mut Tail,
        kind: Kind,
        mut rows: Vec<Named>,
        settled: RowKey,
    ) -> Result<bool> {
        let window = tail.window(kind);
        rows.retain(|row| !window.knows(&row.key));
        let whole = rows.len() <= MAX_NAMED;
        rows.truncate(MAX_NAMED);
        let Some(last) = rows.last() else { return Ok(true) };
        let low = last.key.min(settled);
        let segment = tail.next(kind, rows, low);
        match self.add_segment(shape, shard, tail, &segment).await {
            Ok(true) => {
                tail.extend(segment);
                Ok(whole)
            }
            Ok(false) => {
                let before = tail.n;
                self.catch_up(shape, shard, tail, false).await?;
                if tail.n == before {
                    // Another segment exists, but it has expired.
                    self.reload(shape, shard, tail).await?;
                }
                Ok(false)
            }
            Err(failure) if failure.is_unknown() => {
                // If the next segment was added, by this worker or another, it serves as well.
                self.catch_up(shape, shard, tail, true).await?;
                Ok(false)
            }
            Err(failure) => Err(failure.into()),
        }
    }

    async fn add_segment(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        segment: &Segment,
    ) -> std::result::Result<bool, crate::error::Failure> {
        let (n, chapter, shard) = (segment.n as i64, chapter(segment.n), i32::from(shard));
        let begins = segment.n.is_multiple_of(CHAPTER);
        if begins {
            // The chapter is also the write timestamp, so the highest one stays.
            let values = (&shape.uid, shard, chapter, chapter);
            self.link().execute(&self.link().statements.chapter_set, values).await?;
        }
        let expected = (tail.n > 0 && !begins).then_some(tail.n as i64);
        let (named, state) = segment.encode();
        let wall = self.wall();
        let ttl = match shape.ttl(wall, wall) {
            0 => 0,
            ttl => ttl.saturating_add(EXTRA_TTL_S),
        };
        let mark = (n, &state, &shape.uid, shard, chapter, expected);
        let add = (&shape.uid, shard, chapter, n, &named, &state, ttl);
        self.link().transact_segment(mark, add).await
    }
}
