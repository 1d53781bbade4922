//! Messages that may be appended again: where each of them is, decided once, so that appending it again finds it.
//!
//! A row's place is decided before it is written, and that it was written in time is noted afterwards. Who appends again and finds the place
//! but not the note writes the same row again; or, if its time has passed and nobody might find it there, gives it another place.

use futures_util::stream::{self, StreamExt, TryStreamExt};
use sawmill::{MessageId, Result};

use crate::append::Row;
use crate::error::{corrupt, unknown};
use crate::link::Answer;
use crate::row::{Kind, RowKey};
use crate::store::{Cassandra, read};
use crate::topics::Shape;

const AT_ONCE: usize = 32;
/// How often a place is asked for that others move at the same time.
const TRIES: usize = 5;

fn written(id: MessageId) -> Vec<u8> {
    id.as_u128().to_be_bytes().to_vec()
}

impl Cassandra {
    /// The rows that are to be written: without those that are there already, the others at the places that were decided.
    pub(crate) async fn take_ids(&self, shape: &Shape, rows: Vec<Row>) -> Result<Vec<Row>> {
        if rows.iter().all(|row| row.id.is_none()) {
            return Ok(rows);
        }
        let taken: Vec<_> = rows.into_iter().map(|row| self.take_id(shape, row)).collect();
        let taken: Vec<Option<Row>> = stream::iter(taken).buffered(AT_ONCE).try_collect().await?;
        Ok(taken.into_iter().flatten().collect())
    }

    async fn take_id(&self, shape: &Shape, mut row: Row) -> Result<Option<Row>> {
        let Some(id) = row.id.map(written) else { return Ok(Some(row)) };
        let wall = self.wall();
        let (ttl, RowKey { at, seq, writer }) = (shape.ttl(row.key.at, wall), row.key);
        let values = (&shape.uid, &id, i32::from(row.shard), row.kind.number(), at, seq, writer, ttl);
        let mut mine = self.was_applied(self.link().ask(&self.link().say.id_take, values).await)?;
        for _ in 0..TRIES {
            if mine {
                return Ok(Some(row));
            }
            let (place, sure) =
                futures_util::future::try_join(self.place_of(shape, &id), self.is_sure(shape, &id)).await?;
            if sure {
                return Ok(None);
            }
            let Some((shard, kind, key)) = place else {
                return Err(unknown("the place of a message that is appended again has just expired"));
            };
            // Within half of what a push may take, whoever reads is not past it.
            if key.at >= wall - shape.slack() / 2 {
                (row.shard, row.kind, row.key) = (shard, kind, key);
                return Ok(Some(row));
            }
            let place = (i32::from(row.shard), row.kind.number(), at, seq, writer);
            let (a, b, c, d, e) = place;
            let values = (ttl, a, b, c, d, e, &shape.uid, &id, key.seq, key.writer);
            mine = self.was_applied(self.link().ask(&self.link().say.id_move, values).await)?;
        }
        Err(unknown("others append the same message at the same time"))
    }

    fn was_applied(&self, answer: std::result::Result<Answer, crate::error::Trouble>) -> Result<bool> {
        match answer.and_then(Answer::applied) {
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
