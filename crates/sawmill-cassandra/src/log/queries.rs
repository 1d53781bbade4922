//! Answers an operator's questions: where a message is, where a time begins, and how much is left.

use std::ops::ControlFlow;

use bytes::Bytes;
use futures_util::future::try_join_all;
use sawmill_engine::Result;
use sawmill_engine::model::MessageId;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{Backlog, FoundMessage, Position};

use crate::error::corrupt;
use crate::log::pack::unpack;
use crate::log::row::{Kind, RowKey, from_time, to_time};
use crate::log::segment::{Place, State};
use crate::log::tail::Tail;
use crate::log::topics::Shape;
use crate::store::{Cassandra, read};

/// A message and its location. `skip` is the number of messages before it in its row.
struct LocatedMessage {
    shard: u16,
    kind: Kind,
    key: RowKey,
    skip: u32,
    message: sawmill_engine::model::Message,
}

impl Cassandra {
    /// Searches the whole topic for a message, starting with the buckets nearest to its creation time.
    pub(crate) async fn search(&self, shape: &Shape, id: MessageId) -> Result<Option<FoundMessage>> {
        let near = shape.bucket(from_time(id.created()));
        let mut partitions = Vec::new();
        for kind in Kind::BOTH {
            let listed = self.listed_buckets(shape, kind, i64::MIN, i64::MAX).await?;
            partitions.extend(listed.into_iter().map(|(bucket, shard)| (kind, bucket, shard)));
        }
        partitions.sort_by_key(|(kind, bucket, shard)| (bucket.abs_diff(near), *kind, *shard));
        for (kind, bucket, shard) in partitions {
            if let Some(located) = self.search_in(shape, kind, bucket, shard, id).await? {
                let before = self.place_before(shape, &located).await?;
                let LocatedMessage { shard, message, .. } = located;
                return Ok(Some(FoundMessage { shard, message, before: before.map(Place::position) }));
            }
        }
        Ok(None)
    }

    async fn search_in(
        &self,
        shape: &Shape,
        kind: Kind,
        bucket: i64,
        shard: u16,
        id: MessageId,
    ) -> Result<Option<LocatedMessage>> {
        let (from, upto) = (RowKey::FIRST, RowKey::LAST);
        let values = (&shape.uid, bucket, i32::from(shard), kind.number());
        let ((a, b, c, d), mut found) = (values, Ok(None));
        let values = (a, b, c, d, from.at, from.seq, from.writer, upto.at, upto.seq, upto.writer);
        // Page by page, because a bucket may exceed memory.
        let take = |rows: Vec<(i64, i64, i64, i32, Bytes)>| {
            for (at, seq, writer, many, body) in rows {
                let Some(messages) = unpack(body, u32::try_from(many).unwrap_or_default()) else {
                    found = Err(corrupt("a row of messages that cannot be read"));
                    return ControlFlow::Break(());
                };
                let it = messages.into_iter().zip(0..).find(|(message, _)| message.id == id);
                if let Some((message, skip)) = it {
                    let key = RowKey { at, seq, writer };
                    found = Ok(Some(LocatedMessage { shard, kind, key, skip, message }));
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        read(self.link().each_page(&self.link().statements.row_search, values, take).await)?;
        found
    }

    /// The place before a message; `None` if it is not readable yet.
    async fn place_before(&self, shape: &Shape, located: &LocatedMessage) -> Result<Option<Place>> {
        let tail = self.tail(shape, located.shard);
        let mut tail = tail.lock().await;
        self.name_all(shape, located.shard, &mut tail).await?;
        let place = self.place_of_row(shape, located.shard, &tail, located.kind, located.key).await?;
        Ok(place.map(|place| Place { after: place.after + located.skip, ..place }))
    }

    /// The place before a row, if a segment names it.
    pub(crate) async fn place_of_row(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        kind: Kind,
        key: RowKey,
    ) -> Result<Option<Place>> {
        let index = kind.number() as usize;
        if tail.windows[index].high < key.at {
            return Ok(None);
        }
        let mut n = self.first_when(shape, shard, tail, |state| state.high[index] >= key.at).await?;
        while n <= tail.n {
            let segments = self.segments_from(shape, shard, tail, n).await?;
            for segment in &segments {
                if let Some(after) = segment.before_row(kind, key) {
                    return Ok(Some(Place { n: segment.n, after }));
                }
                if segment.state.low[index] >= key {
                    // No later segment can name it.
                    return Ok(None);
                }
            }
            match segments.last() {
                Some(last) => n = last.n + 1,
                None => break,
            }
        }
        Ok(None)
    }

    /// Finds the first segment for which `is_so` holds, by binary search. It must hold for all later segments
    /// once it holds, and at the end. The number returned may be that of an earlier segment that has expired.
    async fn first_when(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        is_so: impl Fn(&State) -> bool,
    ) -> Result<u64> {
        let (mut first, mut last) = (1, tail.n);
        while first < last {
            let middle = first + (last - first) / 2;
            let segments = self.segments_from(shape, shard, tail, middle).await?;
            match segments.first() {
                Some(segment) if !is_so(&segment.state) => first = segment.n + 1,
                _ => last = middle,
            }
        }
        Ok(first)
    }

    /// Names all rows that are ready by now, and reads the segments that others have added. It does not wait
    /// for rows that are pushed meanwhile: on a busy shard that would not end.
    async fn name_all(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<()> {
        self.catch_up(shape, shard, tail, false).await?;
        let latest = self.wall() + shape.slack();
        while self.seal_ready(shape, shard, tail).await? && tail.window(Kind::Ready).high <= latest {}
        Ok(())
    }

    /// For each shard, the position before the first message created at or after this time.
    pub(crate) async fn places_since(&self, shape: &Shape, since: Timestamp) -> Result<Vec<Position>> {
        let since = from_time(since);
        let places = (0..shape.shards).map(|shard| async move {
            let tail = self.tail(shape, shard);
            let mut tail = tail.lock().await;
            self.name_all(shape, shard, &mut tail).await?;
            let place = self.place_since(shape, shard, &tail, since).await?;
            Ok::<_, sawmill_engine::Error>(place.position())
        });
        try_join_all(places).await
    }

    async fn place_since(&self, shape: &Shape, shard: u16, tail: &Tail, since: i64) -> Result<Place> {
        if tail.n == 0 {
            return Ok(Place::default());
        }
        if tail.created >= since {
            let first = self.first_when(shape, shard, tail, |state| state.created >= since).await?;
            let segments = self.segments_from(shape, shard, tail, first).await?;
            if let Some(segment) = segments.first() {
                let before = segment.named.iter().take_while(|row| row.created < since);
                return Ok(Place { n: segment.n, after: before.map(|row| row.many).sum() });
            }
        }
        Ok(Place { n: tail.n, after: u32::MAX })
    }

    /// Counts the messages after these positions.
    pub(crate) async fn count(&self, shape: &Shape, after: &[(u16, Position)]) -> Result<Backlog> {
        let aside = async {
            if after.is_empty() {
                return Ok::<_, sawmill_engine::Error>(0);
            }
            let buckets = self.aside_buckets(shape).await?;
            let waiting = self.waiting(shape, &buckets, i64::MAX, usize::MAX).await?;
            Ok(waiting.iter().map(|(_, row)| u64::from(row.many)).sum())
        };
        let mut backlog = Backlog { aside: aside.await?, ..Backlog::default() };
        let counts = after.iter().map(|(shard, after)| self.count_after(shape, *shard, after));
        for (ready, oldest) in try_join_all(counts).await? {
            backlog.ready.push(ready);
            backlog.oldest = [backlog.oldest, oldest].into_iter().flatten().min();
        }
        Ok(backlog)
    }

    async fn count_after(
        &self,
        shape: &Shape,
        shard: u16,
        after: &Position,
    ) -> Result<(u64, Option<Timestamp>)> {
        let tail = self.tail(shape, shard);
        let mut tail = tail.lock().await;
        self.catch_up(shape, shard, &mut tail, false).await?;
        let named = self.named_after(shape, shard, &tail, after).await?;
        let low = tail.windows[0].low;
        let upto = (self.wall() + shape.slack()).max(low.at);
        let buckets = self.buckets(shape, Kind::Ready, shard, &low, upto).await?;
        let unnamed = self
            .scan(shape, Kind::Ready, shard, (&tail.windows[0], low, RowKey::LAST), &buckets, usize::MAX)
            .await?
            .rows;
        let ready = named + unnamed.iter().map(|row| u64::from(row.many)).sum::<u64>();
        let mut oldest = None;
        if named > 0 {
            oldest = self
                .first_after(shape, shard, &tail, Place::of(after)?)
                .await?
                .map(|message| message.created);
        }
        if oldest.is_none()
            && let Some(row) = unnamed.first()
        {
            let bodies =
                self.bodies(shape, shard, row.kind, shape.bucket(row.key.at), row.key, row.key).await?;
            let first = bodies
                .into_iter()
                .next()
                .and_then(|(_, (many, body))| unpack(body, many)?.into_iter().next());
            oldest = first.map(|message| message.created).or(Some(to_time(row.created)));
        }
        Ok((ready, oldest))
    }
}
