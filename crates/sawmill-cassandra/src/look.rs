//! What people ask after: one message, the place of a time, how much there is.

use futures_util::future::try_join_all;
use sawmill::clock::Timestamp;
use sawmill::log::{Backlog, Found, Position};
use sawmill::{MessageId, Result};

use crate::error::corrupt;
use crate::pack::unpack;
use crate::row::{Kind, Named, RowKey, from_time, to_time};
use crate::segment::Place;
use crate::store::Cassandra;
use crate::tail::Tail;
use crate::topics::Shape;

/// A message that was found: its shard, its row, and how many messages of the row are before it.
struct Spot {
    shard: u16,
    kind: Kind,
    key: RowKey,
    skip: u32,
    message: sawmill::Message,
}

impl Cassandra {
    /// Searches the whole topic for a message, first where it should be by its time.
    pub(crate) async fn search(&self, shape: &Shape, id: MessageId) -> Result<Option<Found>> {
        let near = shape.bucket(from_time(id.created()));
        let mut partitions = Vec::new();
        for kind in Kind::BOTH {
            let listed = self.listed_buckets(shape, kind, i64::MIN, i64::MAX).await?;
            partitions.extend(listed.into_iter().map(|(bucket, shard)| (kind, bucket, shard)));
        }
        partitions.sort_by_key(|(kind, bucket, shard)| (bucket.abs_diff(near), *kind, *shard));
        for (kind, bucket, shard) in partitions {
            if let Some(spot) = self.search_in(shape, kind, bucket, shard, id).await? {
                let before = self.place_before(shape, &spot).await?;
                let Spot { shard, message, .. } = spot;
                return Ok(Some(Found { shard, message, before: before.map(Place::position) }));
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
    ) -> Result<Option<Spot>> {
        let most = RowKey::end_of(i64::MAX);
        let rows = self.bodies(shape, shard, kind, bucket, RowKey::FIRST, most).await?;
        for ((kind, key), (many, body)) in rows {
            let messages =
                unpack(body, many).ok_or_else(|| corrupt("a row of messages that cannot be read"))?;
            if let Some((message, skip)) = messages.into_iter().zip(0..).find(|(message, _)| message.id == id)
            {
                return Ok(Some(Spot { shard, kind, key, skip, message }));
            }
        }
        Ok(None)
    }

    /// The place before a message; none if it is not readable yet.
    async fn place_before(&self, shape: &Shape, spot: &Spot) -> Result<Option<Place>> {
        let tail = self.tail(shape, spot.shard);
        let mut tail = tail.lock().await;
        self.name_all(shape, spot.shard, &mut tail).await?;
        let is_it = |row: &Named| row.kind == spot.kind && row.key == spot.key;
        let place = self.first_named(shape, spot.shard, &tail, is_it).await?;
        Ok(place.map(|place| Place { after: place.after + spot.skip, ..place }))
    }

    /// Names all that is ready, and learns what others have named.
    async fn name_all(&self, shape: &Shape, shard: u16, tail: &mut Tail) -> Result<()> {
        self.catch_up(shape, shard, tail, false).await?;
        while self.seal_ready(shape, shard, tail).await? {}
        Ok(())
    }

    /// The place before the first row that is wanted.
    async fn first_named(
        &self,
        shape: &Shape,
        shard: u16,
        tail: &Tail,
        wanted: impl Fn(&Named) -> bool,
    ) -> Result<Option<Place>> {
        let mut n = 1;
        while n <= tail.n {
            let segments = self.segments_from(shape, shard, tail, n).await?;
            for segment in &segments {
                let mut after = 0;
                for row in &segment.named {
                    if wanted(row) {
                        return Ok(Some(Place { n: segment.n, after }));
                    }
                    after += row.many;
                }
            }
            match segments.last() {
                Some(last) => n = last.n + 1,
                None => break,
            }
        }
        Ok(None)
    }

    /// For each shard the place before what was created since then.
    pub(crate) async fn places_since(&self, shape: &Shape, since: Timestamp) -> Result<Vec<Position>> {
        let since = from_time(since);
        let places = (0..shape.shards).map(|shard| async move {
            let tail = self.tail(shape, shard);
            let mut tail = tail.lock().await;
            self.name_all(shape, shard, &mut tail).await?;
            let first = self.first_named(shape, shard, &tail, |row| row.created >= since).await?;
            let end = Place { n: tail.n, after: u32::MAX };
            Ok::<_, sawmill::Error>(
                first.unwrap_or(if tail.n == 0 { Place::default() } else { end }).position(),
            )
        });
        try_join_all(places).await
    }

    /// How much lies after these positions.
    pub(crate) async fn count(&self, shape: &Shape, after: &[(u16, Position)]) -> Result<Backlog> {
        let aside = async {
            let waiting =
                if after.is_empty() { Vec::new() } else { self.waiting(shape, i64::MAX, usize::MAX).await? };
            Ok::<_, sawmill::Error>(waiting.iter().map(|(_, row)| u64::from(row.many)).sum())
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
            .look_over(shape, Kind::Ready, shard, (&tail.windows[0], low), &buckets, usize::MAX)
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
