//! Adding to a shard's order: finding rows that no segment names, and naming them in the next.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join;
use sawmill::Result;

use crate::error::corrupt;
use crate::row::{Kind, Named, RowKey};
use crate::segment::{CHAPTER, MOST_NAMED, Segment, State};
use crate::store::{Cassandra, read};
use crate::tail::Tail;
use crate::topics::Shape;

/// How many segments are read at a time.
const SOME: i32 = 16;
/// How many are read back at a time where more and more are wanted.
const MANY: i32 = 256;
/// Who is so many segments behind learns the end anew, instead of all that lies between.
const FAR: u64 = 4 * SOME as u64;
/// How often a look is repeated that others disturb, before it is left to the next one.
const TRIES: usize = 6;
/// Segments outlive the rows that they name, by so many seconds.
const LONGER: i32 = 86_400;

type Row = (i64, Bytes, Bytes);

fn segment_of((n, named, state): Row) -> Result<Segment> {
    Segment::decode(n, &named, &state).ok_or_else(|| corrupt(format!("a segment {n} that cannot be read")))
}

fn chapter(n: u64) -> i64 {
    (n / CHAPTER) as i64
}

impl Cassandra {
    /// Learns where the shard ends, if that is not known yet.
    pub(crate) async fn load(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<()> {
        if tail.loaded {
            return Ok(());
        }
        let shard_number = i32::from(shard);
        let chapters = self.link().ask(&self.link().say.chapter_get, (&shape.uid, shard_number)).await;
        let chapters: Vec<(i64,)> = read(chapters.and_then(crate::link::Answer::rows))?;
        let begun = chapters.first().map_or(0, |(chapter,)| *chapter);
        let mut fresh = Tail::default();
        // A chapter is announced before its first segment is there.
        for chapter in (begun.saturating_sub(1)..=begun).rev().filter(|chapter| *chapter >= 0) {
            let values = (&shape.uid, shard_number, chapter);
            let rows = self.link().ask(&self.link().say.segment_tail, values).await;
            let rows: Vec<(Option<i64>, Option<Bytes>)> = read(rows.and_then(crate::link::Answer::rows))?;
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

    /// Learns anew where the shard ends.
    async fn reload(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<()> {
        tail.loaded = false;
        self.load(shape, shard, tail).await
    }

    /// Reads back the segments that name rows which are still looked over.
    async fn recall(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<()> {
        let (mut wanted, mut some) = (tail.to_recall(), SOME);
        while let Some(upto @ 1..) = wanted.into_iter().max() {
            let values = (&shape.uid, i32::from(shard), chapter(upto), upto as i64, some);
            // A busy topic has thousands of them in its window, a quiet one a few.
            some = (4 * some).min(MANY);
            let rows = self.link().ask(&self.link().say.segment_back, values).await;
            let rows: Vec<Row> = read(rows.and_then(crate::link::Answer::rows))?;
            if rows.is_empty() {
                // It has expired, and with it all before it and what they name.
                break;
            }
            for row in rows {
                tail.recall(segment_of(row)?, &mut wanted);
            }
        }
        Ok(())
    }

    /// Learns of segments that others have added.
    pub(crate) async fn catch_up(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &mut Tail,
        surely: bool,
    ) -> Result<()> {
        self.load(shape, shard, tail).await?;
        let (began, mut may_reload) = (tail.n, true);
        loop {
            let before = tail.n;
            for segment in self.segments_after(shape, shard, tail.n, surely).await? {
                tail.extend(segment);
            }
            if tail.n == before {
                return Ok(());
            }
            if may_reload && tail.n - began >= FAR {
                self.reload(shape, shard, tail).await?;
                may_reload = false;
            }
        }
    }

    /// Learns of segments up to this number, of which somebody has said that it is there.
    pub(crate) async fn reach(&self, shape: &Shape, shard: u16, tail: &mut Tail, n: u64) -> Result<()> {
        self.load(shape, shard, tail).await?;
        while tail.n < n && n - tail.n <= FAR {
            let added = self.segments_after(shape, shard, tail.n, false).await?;
            if added.is_empty() {
                break;
            }
            added.into_iter().for_each(|segment| tail.extend(segment));
        }
        if tail.n < n {
            // It is far, or what lies between has expired.
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
        surely: bool,
    ) -> Result<Vec<Segment>> {
        let statements = &self.link().say;
        let statement = if surely { &statements.segment_after_sure } else { &statements.segment_after };
        let values = (&shape.uid, i32::from(shard), chapter(n + 1), n as i64, SOME);
        let rows = self.link().ask(statement, values).await;
        let rows: Vec<Row> = read(rows.and_then(crate::link::Answer::rows))?;
        rows.into_iter().map(segment_of).collect()
    }

    /// Some segments from this number on, as far as they are known.
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
        // The last of its chapter, which may be used up: then who reads would never come to the next.
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
        // Segments expire in their order: of the chapters after the one that has none, the first is wanted that has some.
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

    /// The first segments of a chapter from this number on, as far as they are known.
    async fn segments_in(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        chapter: i64,
        n: u64,
    ) -> Result<Vec<Arc<Segment>>> {
        let values = (&shape.uid, i32::from(shard), chapter, n as i64 - 1, SOME);
        let rows = self.link().ask(&self.link().say.segment_after, values).await;
        let rows: Vec<Row> = read(rows.and_then(crate::link::Answer::rows))?;
        let known = rows.into_iter().filter(|(m, ..)| *m as u64 <= tail.n);
        known.map(|row| segment_of(row).map(Arc::new)).collect()
    }

    /// Names rows that are ready and that no segment names. True if there are more segments than before.
    pub(crate) async fn seal_ready(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<bool> {
        self.load(shape, shard, tail).await?;
        let mut well = false;
        for _ in 0..TRIES {
            let (now, wall) = (self.env().now(), self.wall());
            let near = if well { None } else { tail.windows[0].near(now, shape.settle()) };
            let from = near.unwrap_or(tail.windows[0].low);
            let (added, agreed) =
                join(self.segments_after(shape, shard, tail.n, false), self.agreed(shape, shard, tail, from))
                    .await;
            let (added, (rows, end)) = (added?, agreed?);
            if !added.is_empty() {
                added.into_iter().for_each(|segment| tail.extend(segment));
                tail.more = true;
                return Ok(true);
            }
            if near.is_some() && rows.iter().any(|row| row.slow) {
                well = true;
                continue;
            }
            let window = tail.window(Kind::Ready);
            if near.is_none() && end {
                window.looked_well(now, wall);
            }
            let settled = match near {
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
            window.found_behind(wall - first.key.at);
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

    /// Rows that are ready, such that none is missing that was acknowledged before one of them was pushed: what was seen at one
    /// moment, or twice. With it, whether there is nothing more.
    async fn agreed(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        from: RowKey,
    ) -> Result<(Vec<Named>, bool)> {
        let upto = self.wall() + shape.slack();
        let buckets = self.buckets(shape, Kind::Ready, shard, &from, upto.max(from.at)).await?;
        let look =
            || self.look_over(shape, Kind::Ready, shard, (&tail.windows[0], from, RowKey::LAST), &buckets, 1);
        let mut first = look().await?;
        for _ in 0..TRIES {
            if first.rows.is_empty() || (first.at_once && !self.link().replicated) {
                return Ok((first.rows, first.end));
            }
            let second = look().await?;
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

    /// Names these rows, in the next segment; up to `settled` nothing will arrive any more. True if all of them are named now; if another
    /// was faster, it is learned what they have named.
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
        let whole = rows.len() <= MOST_NAMED;
        rows.truncate(MOST_NAMED);
        let Some(last) = rows.last() else { return Ok(true) };
        let low = last.key.min(settled);
        let segment = tail.next(kind, rows, low);
        match self.decide(shape, shard, tail, &segment).await {
            Ok(true) => {
                tail.extend(segment);
                Ok(whole)
            }
            Ok(false) => {
                let before = tail.n;
                self.catch_up(shape, shard, tail, false).await?;
                if tail.n == before {
                    // There is a segment more, and it is not to be found: it has expired.
                    self.reload(shape, shard, tail).await?;
                }
                Ok(false)
            }
            Err(trouble) if trouble.is_unknown() => {
                // Whoever has added the next segment, if anybody has: it is as good as ours.
                self.catch_up(shape, shard, tail, true).await?;
                Ok(false)
            }
            Err(trouble) => Err(trouble.into()),
        }
    }

    async fn decide(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        segment: &Segment,
    ) -> std::result::Result<bool, crate::error::Trouble> {
        let (n, chapter, shard) = (segment.n as i64, chapter(segment.n), i32::from(shard));
        let begins = segment.n.is_multiple_of(CHAPTER);
        if begins {
            // Of several such writes the one with the highest number stays.
            let values = (&shape.uid, shard, chapter, chapter);
            self.link().ask(&self.link().say.chapter_set, values).await?;
        }
        let expected = (tail.n > 0 && !begins).then_some(tail.n as i64);
        let (named, state) = segment.encode();
        let wall = self.wall();
        let ttl = match shape.ttl(wall, wall) {
            0 => 0,
            ttl => ttl.saturating_add(LONGER),
        };
        let mark = (n, &state, &shape.uid, shard, chapter, expected);
        let add = (&shape.uid, shard, chapter, n, &named, &state, ttl);
        self.link().decide_segment(mark, add).await
    }
}
