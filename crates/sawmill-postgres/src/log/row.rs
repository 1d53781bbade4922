//! Conversions between Sawmill's values and PostgreSQL's columns. Stored values are validated when read.

use std::error::Error as StdError;

use bytes::{BufMut, Bytes, BytesMut};
use sawmill_engine::Result;
use sawmill_engine::model::{Headers, Message, MessageId};
use sawmill_engine::runtime::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};

use crate::error::corrupt;
use crate::log::pack::unpack;
use crate::log::topics::wrong_row;

/// The columns that [`message`] reads.
pub(crate) const COLUMNS: &str = "id, created_ms, due_ms, key, headers, payload";

/// A message id as a `uuid`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u128);

impl ToSql for Id {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn StdError + Sync + Send>> {
        out.put_u128(self.0);
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Id {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(u128::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(kind: &Type) -> bool {
        *kind == Type::UUID
    }
}

/// Converts a time to a column. Every time fits.
pub(crate) fn from_time(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Reverses [`from_time`].
pub(crate) fn to_time(millis: i64) -> Option<Timestamp> {
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

/// Converts a shard to a column. Shard numbers always fit.
pub(crate) fn from_shard(shard: u16) -> i16 {
    i16::try_from(shard).unwrap_or(i16::MAX)
}

/// Reads the message in [`COLUMNS`], which start at column `at`.
pub(crate) fn message(row: &Row, at: usize) -> Result<Message> {
    type Columns<'a> = (Id, i64, Option<i64>, Option<&'a [u8]>, Option<&'a [u8]>, &'a [u8]);
    let read = || -> Result<Columns<'_>, tokio_postgres::Error> {
        Ok((
            row.try_get(at)?,
            row.try_get(at + 1)?,
            row.try_get(at + 2)?,
            row.try_get(at + 3)?,
            row.try_get(at + 4)?,
            row.try_get(at + 5)?,
        ))
    };
    let (id, created, due, key, headers, payload) = read().map_err(wrong_row)?;
    let wrong = |what: &str| corrupt(format!("message {:032x} with a strange {what}", id.0));
    Ok(Message {
        id: MessageId::from_u128(id.0),
        key: key.map(Bytes::copy_from_slice),
        payload: Bytes::copy_from_slice(payload),
        headers: match headers {
            Some(bytes) => Headers::decode(bytes).ok_or_else(|| wrong("set of headers"))?,
            None => Headers::default(),
        },
        due: due.map(|millis| to_time(millis).ok_or_else(|| wrong("due time"))).transpose()?,
        created: to_time(created).ok_or_else(|| wrong("creation time"))?,
    })
}

/// Reads all messages of a row in [`COLUMNS`]; `many` is their number.
pub(crate) fn messages(row: &Row, at: usize, many: i32) -> Result<Vec<Message>> {
    if many == 1 {
        return Ok(vec![message(row, at)?]);
    }
    let read = || -> Result<(Id, i64, &[u8]), tokio_postgres::Error> {
        Ok((row.try_get(at)?, row.try_get(at + 1)?, row.try_get(at + 5)?))
    };
    let (id, created, pack) = read().map_err(wrong_row)?;
    let many = usize::try_from(many).ok();
    let unpacked = many.zip(to_time(created)).and_then(|(many, created)| {
        // One copy of the pack; the messages are slices of it.
        unpack(Bytes::copy_from_slice(pack), many, created)
    });
    unpacked
        .ok_or_else(|| corrupt(format!("a pack that begins with message {:032x} and cannot be read", id.0)))
}

/// Returns the numbers of the messages in a row, up to the last.
pub(crate) fn numbers(last: i64, many: i32) -> std::ops::RangeInclusive<i64> {
    last.saturating_sub(i64::from(many) - 1)..=last
}
