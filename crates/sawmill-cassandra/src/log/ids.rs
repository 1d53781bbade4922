//! Finds the place of a message that is appended again. A lightweight transaction decides the place once, so
//! a repetition writes the same row.
//!
//! The place is decided before the row is written; an acknowledgement is recorded after the row was written
//! in time. A repetition that finds the place but no acknowledgement writes the same row again. If the time
//! of the place is over, readers may have passed it, and the first attempt may or may not have written the
//! row: the repetition then also names the row in a segment, which decides the outcome. The message gets
//! another place only if it is certain that nobody will ever name the row.

use futures_util::stream::{self, StreamExt};
use sawmill_engine::Result;
use sawmill_engine::model::MessageId;

use crate::connection::link::Answer;
use crate::error::{corrupt, unknown};
use crate::log::append::Row;
use crate::log::row::{Kind, RowKey};
use crate::log::tail::Tail;
use crate::log::topics::Shape;
use crate::store::{Cassandra, read};

const AT_ONCE: usize = 32;
/// How often a place is read again that others change at the same time.
const TRIES: usize = 5;

fn id_bytes(id: MessageId) -> Vec<u8> {
    id.as_u128().to_be_bytes().to_vec()
}

/// The outcome of looking up a row that may have been appended before.
enum IdLookup {
    /// The caller must write it.
    Write(Box<Row>),
    /// It was acknowledged before.
    Acknowledged,
    /// It was written, before or just now, and a segment names it.
    Named,
}

impl Cassandra {
    /// Returns the rows to write, at the places that were decided for them, without those that exist already.
    /// Also returns whether one of the existing rows had not been acknowledged before.
    pub(crate) async fn take_ids(&self, shape: &Shape, rows: Vec<Row>) -> Result<(Vec<Row>, bool)> {
        if rows.iter().all(|row| row.id.is_none()) {
            return Ok((rows, false));
        }
        let taken: Vec<_> = rows.into_iter().map(|row| self.take_id(shape, row)).collect();
        let taken: Vec<Result<IdLookup>> = stream::iter(taken).buffered(AT_ONCE).collect().await;
        let any_named = taken.iter().any(|taken| matches!(taken, Ok(IdLookup::Named)));
        let mut rows = Vec::new();
        for taken in taken {
            match taken {
                Ok(IdLookup::Write(row)) => rows.push(*row),
                Ok(IdLookup::Acknowledged | IdLookup::Named) => {}
                Err(error) if any_named => return Err(unknown(error)),
                Err(error) => return Err(error),
            }
        }
        Ok((rows, any_named))
    }

    async fn take_id(&self, shape: &Shape, row: Row) -> Result<IdLookup> {
        let Some(id) = row.id.map(id_bytes) else { return Ok(IdLookup::Write(Box::new(row))) };
        let wall = self.wall();
        let (ttl, RowKey { at, seq, writer }) = (shape.ttl(row.key.at, wall), row.key);
        let values = (&shape.uid, &id, i32::from(row.shard), row.kind.number(), at, seq, writer, ttl);
        let mut mine =
            self.was_applied(self.link().transact(&self.link().statements.id_take, values).await)?;
        for _ in 0..TRIES {
            if mine {
                return Ok(IdLookup::Write(Box::new(row)));
            }
            let (place, acknowledged) =
                futures_util::future::try_join(self.place_of(shape, &id), self.is_acknowledged(shape, &id))
                    .await?;
            if acknowledged {
                return Ok(IdLookup::Acknowledged);
            }
            let Some((shard, kind, key)) = place else {
                return Err(unknown("the place of a message that is appended again has just expired"));
            };
            let old = Row { shard, kind, key, ..row.clone() };
            // Within half of a push's time limit, no reader has passed it.
            if key.at >= wall - shape.slack() / 2 {
                return Ok(IdLookup::Write(Box::new(old)));
            }
            // From here on the row may exist.
            if self.name_at(shape, wall, &old).await.map_err(unknown)? {
                self.mark_acknowledged(shape, wall, &[old]).await?;
                return Ok(IdLookup::Named);
            }
            let place = (i32::from(row.shard), row.kind.number(), at, seq, writer);
            let (a, b, c, d, e) = place;
            let values = (ttl, a, b, c, d, e, &shape.uid, &id, key.seq, key.writer);
            mine = self.was_applied(self.link().transact(&self.link().statements.id_move, values).await)?;
        }
        Err(unknown("others append the same message at the same time"))
    }

    /// Makes sure that a segment names this row, whose time is over, whether or not it was written before.
    /// Returns false if that is no longer possible: readers have passed it, and no segment names it.
    async fn name_at(&self, shape: &Shape, wall: i64, row: &Row) -> Result<bool> {
        // Only what segments say counts, not what this process has seen since: others may have seen less.
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
                // Together with all other ready rows, in their order.
                while !tail.window(row.kind).knows(&row.key)
                    && self.seal_ready(shape, row.shard, &mut tail).await?
                {}
            }
            self.seal(shape, row.shard, &mut tail, row.kind, vec![row.named()], RowKey::FIRST).await?;
        }
        Err(unknown("others are naming messages at the same time"))
    }

    fn was_applied(&self, answer: std::result::Result<bool, crate::error::Failure>) -> Result<bool> {
        match answer {
            Ok(applied) => Ok(applied),
            // The caller reads the decided place, if there is one.
            Err(failure) if failure.is_unknown() => Ok(false),
            Err(failure) => Err(failure.into()),
        }
    }

    async fn place_of(&self, shape: &Shape, id: &[u8]) -> Result<Option<(u16, Kind, RowKey)>> {
        let rows = self.link().execute(&self.link().statements.id_get, (&shape.uid, id)).await;
        let rows: Vec<(i32, i8, i64, i64, i64)> = read(rows.and_then(Answer::rows))?;
        let Some((shard, kind, at, seq, writer)) = rows.into_iter().next() else { return Ok(None) };
        let odd = || corrupt(format!("a message in shard {shard}, of kind {kind}"));
        let shard = u16::try_from(shard).map_err(|_| odd())?;
        Ok(Some((shard, Kind::of(kind).ok_or_else(odd)?, RowKey { at, seq, writer })))
    }

    async fn is_acknowledged(&self, shape: &Shape, id: &[u8]) -> Result<bool> {
        let rows = self.link().execute(&self.link().statements.sure_get, (&shape.uid, id)).await;
        Ok(!read(rows.and_then(Answer::rows::<(Vec<u8>,)>))?.is_empty())
    }

    /// Records that these rows were written in time.
    pub(crate) async fn mark_acknowledged(&self, shape: &Shape, wall: i64, rows: &[Row]) -> Result<()> {
        let notes: Vec<_> = rows
            .iter()
            .filter_map(|row| {
                let values = (&shape.uid, id_bytes(row.id?), shape.ttl(row.key.at, wall));
                Some(self.link().execute(&self.link().statements.sure_add, values))
            })
            .collect();
        let mut notes = stream::iter(notes).buffer_unordered(AT_ONCE);
        while let Some(noted) = notes.next().await {
            // The messages are written already, so a failure here leaves the outcome unknown.
            noted.map_err(|failure| unknown(crate::error::of_read(failure)))?;
        }
        Ok(())
    }
}
