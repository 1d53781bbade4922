//! Messages that may be appended again: where each of them is, decided once, so that appending it again finds it.
//!
//! A row's place is decided before it is written, and that it was written in time is noted afterwards. Who appends again and finds the place
//! but not the note writes the same row again. If its time has passed, others may be past it or may not, and it may have been written or not:
//! then it is not only written but also named, so that it is certain who wins. Only if it is certain that nobody ever will name the row does the
//! message get another place.

use futures_util::stream::{self, StreamExt};
use sawmill::{MessageId, Result};

use crate::append::Row;
use crate::error::{corrupt, unknown};
use crate::link::Answer;
use crate::row::{Kind, RowKey};
use crate::store::{Cassandra, read};
use crate::tail::Tail;
use crate::topics::Shape;

const AT_ONCE: usize = 32;
/// How often a place is asked for that others move at the same time.
const TRIES: usize = 5;

fn written(id: MessageId) -> Vec<u8> {
    id.as_u128().to_be_bytes().to_vec()
}

/// What became of a row that may have been appended before.
enum Taken {
    /// It is to be written.
    Mine(Box<Row>),
    /// It was acknowledged before.
    There,
    /// It was written before or just now, and is named.
    Named,
}

impl Cassandra {
    /// The rows that are to be written: without those that are there already, the others at the places that were decided. With them, whether
    /// one of those that are there was not known to be before.
    pub(crate) async fn take_ids(&self, shape: &Shape, rows: Vec<Row>) -> Result<(Vec<Row>, bool)> {
        if rows.iter().all(|row| row.id.is_none()) {
            return Ok((rows, false));
        }
        let taken: Vec<_> = rows.into_iter().map(|row| self.take_id(shape, row)).collect();
        let taken: Vec<Result<Taken>> = stream::iter(taken).buffered(AT_ONCE).collect().await;
        let any_named = taken.iter().any(|taken| matches!(taken, Ok(Taken::Named)));
        let mut rows = Vec::new();
        for taken in taken {
            match taken {
                Ok(Taken::Mine(row)) => rows.push(*row),
                Ok(Taken::There | Taken::Named) => {}
                Err(error) if any_named => return Err(unknown(error)),
                Err(error) => return Err(error),
            }
        }
        Ok((rows, any_named))
    }

    async fn take_id(&self, shape: &Shape, row: Row) -> Result<Taken> {
        let Some(id) = row.id.map(written) else { return Ok(Taken::Mine(Box::new(row))) };
        let wall = self.wall();
        let (ttl, RowKey { at, seq, writer }) = (shape.ttl(row.key.at, wall), row.key);
        let values = (&shape.uid, &id, i32::from(row.shard), row.kind.number(), at, seq, writer, ttl);
        let mut mine = self.was_applied(self.link().decide(&self.link().say.id_take, values).await)?;
        for _ in 0..TRIES {
            if mine {
                return Ok(Taken::Mine(Box::new(row)));
            }
            let (place, sure) =
                futures_util::future::try_join(self.place_of(shape, &id), self.is_sure(shape, &id)).await?;
            if sure {
                return Ok(Taken::There);
            }
            let Some((shard, kind, key)) = place else {
                return Err(unknown("the place of a message that is appended again has just expired"));
            };
            let old = Row { shard, kind, key, ..row.clone() };
            // Within half of what a push may take, whoever reads is not past it.
            if key.at >= wall - shape.slack() / 2 {
                return Ok(Taken::Mine(Box::new(old)));
            }
            // From here on it may be written.
            if self.name_at(shape, wall, &old).await.map_err(unknown)? {
                self.make_sure(shape, wall, &[old]).await?;
                return Ok(Taken::Named);
            }
            let place = (i32::from(row.shard), row.kind.number(), at, seq, writer);
            let (a, b, c, d, e) = place;
            let values = (ttl, a, b, c, d, e, &shape.uid, &id, key.seq, key.writer);
            mine = self.was_applied(self.link().decide(&self.link().say.id_move, values).await)?;
        }
        Err(unknown("others append the same message at the same time"))
    }

    /// Sees to it that a row is named whose time has passed, written or not. False if that cannot be any more: who reads is past it, and nobody has
    /// named it.
    async fn name_at(&self, shape: &Shape, wall: i64, row: &Row) -> Result<bool> {
        // What segments say, and not what was seen here since: others may have seen less.
        let (mut tail, mut is_put) = (Tail::default(), false);
        for _ in 0..TRIES {
            self.catch_up(shape, row.shard, &mut tail, true).await?;
            if tail.window(row.kind).knows(&row.key) {
                let place = self.place_of_row(shape, row.shard, &tail, row.kind, row.key).await?;
                return Ok(place.is_some());
            }
            if !is_put {
                self.put(shape, wall, std::slice::from_ref(row)).await?;
                is_put = true;
            }
            if row.kind == Kind::Ready {
                // With all that is there, in its order.
                while !tail.window(row.kind).knows(&row.key)
                    && self.seal_ready(shape, row.shard, &mut tail).await?
                {}
            }
            self.seal(shape, row.shard, &mut tail, row.kind, vec![row.named()], RowKey::FIRST).await?;
        }
        Err(unknown("others are naming messages at the same time"))
    }

    fn was_applied(&self, answer: std::result::Result<bool, crate::error::Trouble>) -> Result<bool> {
        match answer {
            Ok(applied) => Ok(applied),
            // Who decided it, if anybody has, is read.
            Err(trouble) if trouble.is_unknown() => Ok(false),
            Err(trouble) => Err(trouble.into()),
        }
    }

    async fn place_of(&self, shape: &Shape, id: &[u8]) -> Result<Option<(u16, Kind, RowKey)>> {
        let rows = self.link().ask(&self.link().say.id_get, (&shape.uid, id)).await;
        let rows: Vec<(i32, i8, i64, i64, i64)> = read(rows.and_then(Answer::rows))?;
        let Some((shard, kind, at, seq, writer)) = rows.into_iter().next() else { return Ok(None) };
        let odd = || corrupt(format!("a message in shard {shard}, of kind {kind}"));
        let shard = u16::try_from(shard).map_err(|_| odd())?;
        Ok(Some((shard, Kind::of(kind).ok_or_else(odd)?, RowKey { at, seq, writer })))
    }

    async fn is_sure(&self, shape: &Shape, id: &[u8]) -> Result<bool> {
        let rows = self.link().ask(&self.link().say.sure_get, (&shape.uid, id)).await;
        Ok(!read(rows.and_then(Answer::rows::<(Vec<u8>,)>))?.is_empty())
    }

    /// Notes that these rows were written in time.
    pub(crate) async fn make_sure(&self, shape: &Shape, wall: i64, rows: &[Row]) -> Result<()> {
        let notes: Vec<_> = rows
            .iter()
            .filter_map(|row| {
                let values = (&shape.uid, written(row.id?), shape.ttl(row.key.at, wall));
                Some(self.link().ask(&self.link().say.sure_add, values))
            })
            .collect();
        let mut notes = stream::iter(notes).buffer_unordered(AT_ONCE);
        while let Some(noted) = notes.next().await {
            // The messages are there.
            noted.map_err(|trouble| unknown(crate::error::of_read(trouble)))?;
        }
        Ok(())
    }
}
