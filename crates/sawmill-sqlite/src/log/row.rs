//! Conversions between Sawmill's values and SQLite's columns. Stored data is not trusted.

use bytes::{Bytes, BytesMut};
use rusqlite::Row;
use rusqlite::types::ValueRef;
use sawmill_engine::model::{Headers, Message, MessageId, Topic};
use sawmill_engine::runtime::Timestamp;

use crate::error::{Failure, corrupt};

/// The last message number of a shard: numbers have 40 bits.
pub(crate) const LAST_NUMBER: i64 = (1 << 40) - 1;

/// Selects the rows between two positions for [`message`].
pub(crate) const SELECT_MESSAGES: &str = "SELECT pos, id, created_ms, due_ms, key, headers, payload
     FROM message WHERE pos > ?1 AND pos <= ?2 ORDER BY pos LIMIT ?3";

/// Converts a time to a column value; every time fits.
pub(crate) fn from_time(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Converts a column value of [`from_time`] back.
pub(crate) fn to_time(millis: i64) -> Option<Timestamp> {
    u64::try_from(millis).ok().map(Timestamp::from_millis)
}

/// Parses the id in a topic's uid. A uid that this engine did not make means a missing topic.
pub(crate) fn topic_id(topic: &Topic) -> Result<i64, Failure> {
    let id = topic.uid.strip_prefix('t').and_then(|digits| digits.parse().ok());
    // Only the canonical form, so that no two uids name the same topic.
    id.filter(|id| uid(*id) == topic.uid).ok_or_else(|| topic.missing().into())
}

pub(crate) fn uid(id: i64) -> String {
    format!("t{id}")
}

/// Shared memory for the small values of one block: one allocation per value would cost more than reading it.
/// A message that is kept holds back at most one chunk.
#[derive(Default)]
pub(crate) struct Chunk(BytesMut);

const CHUNK_BYTES: usize = 64 << 10;
const SMALL_BYTES: usize = 1 << 10;

impl Chunk {
    fn copy(&mut self, bytes: &[u8]) -> Bytes {
        if bytes.len() > SMALL_BYTES {
            return Bytes::copy_from_slice(bytes);
        }
        if self.0.capacity() < bytes.len() {
            self.0 = BytesMut::with_capacity(CHUNK_BYTES);
        }
        self.0.extend_from_slice(bytes);
        self.0.split().freeze()
    }
}

/// Reads the position and the message from a row of [`SELECT_MESSAGES`].
pub(crate) fn message(row: &Row<'_>, chunk: &mut Chunk) -> Result<(i64, Message), Failure> {
    let pos: i64 = row.get(0)?;
    let wrong = |what: &str| corrupt(format!("a message at position {pos} with a strange {what}"));
    let id = match row.get_ref(1)? {
        ValueRef::Blob(bytes) => bytes.try_into().ok().map(u128::from_be_bytes),
        _ => None,
    };
    let headers = match row.get_ref(5)? {
        ValueRef::Null => Some(Headers::default()),
        ValueRef::Blob(bytes) => Headers::decode(bytes),
        _ => None,
    };
    let due = match row.get_ref(3)? {
        ValueRef::Null => Some(None),
        ValueRef::Integer(millis) => to_time(millis).map(Some),
        _ => None,
    };
    let created = match row.get_ref(2)? {
        ValueRef::Integer(millis) => to_time(millis),
        _ => None,
    };
    let message = Message {
        id: MessageId::from_u128(id.ok_or_else(|| wrong("id"))?),
        key: match row.get_ref(4)? {
            ValueRef::Null => None,
            ValueRef::Blob(bytes) => Some(chunk.copy(bytes)),
            _ => return Err(wrong("key").into()),
        },
        payload: match row.get_ref(6)? {
            ValueRef::Blob(bytes) => chunk.copy(bytes),
            _ => return Err(wrong("payload").into()),
        },
        headers: headers.ok_or_else(|| wrong("set of headers"))?,
        due: due.ok_or_else(|| wrong("due time"))?,
        created: created.ok_or_else(|| wrong("creation time"))?,
    };
    Ok((pos, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_share_memory_stay_what_they_are() {
        let mut chunk = Chunk::default();
        let values: Vec<Vec<u8>> = (0..2_000).map(|i| vec![i as u8; i % 1_500]).collect();
        let copies: Vec<Bytes> = values.iter().map(|value| chunk.copy(value)).collect();
        assert_eq!(values, copies);
    }

    #[test]
    fn times_are_read_back_and_keep_their_order() {
        let times = [0, 1, 1_700_000_000_000, u64::MAX].map(Timestamp::from_millis);
        for time in times {
            assert_eq!(to_time(from_time(time)), Some(time));
        }
        assert!(times.map(from_time).is_sorted());
        assert_eq!(to_time(-1), None);
    }
}
