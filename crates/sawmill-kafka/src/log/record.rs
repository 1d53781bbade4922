//! Converts messages to records and back. Payload, key and headers are Kafka's own, so other clients can read
//! them; the remaining fields are in one more header.
//!
//! Records of other producers lack that header. Their id is derived from the broker's time, the partition and
//! the offset, so it is the same for all readers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use rdkafka::message::{
    BorrowedMessage, Header, Headers as _, Message as _, OwnedHeaders, Timestamp as Time,
};
use sawmill_engine::model::{Headers, Message, MessageId};
use sawmill_engine::runtime::Timestamp;

/// Header with the id, the creation time, and the due time if there is one: 16, 8 and 8 bytes.
pub(crate) const FIELDS: &str = "sawmill-message";

/// Returns a record's timestamp in milliseconds since 1970; 0 if it has none.
pub(crate) fn time_of(message: &BorrowedMessage<'_>) -> u64 {
    match message.timestamp() {
        Time::CreateTime(time) | Time::LogAppendTime(time) => time.try_into().unwrap_or(0),
        Time::NotAvailable => 0,
    }
}

/// Returns the headers of a record. A missing value becomes an empty one.
pub(crate) fn headers_of<'a>(message: &'a BorrowedMessage<'_>) -> Vec<(&'a str, &'a [u8])> {
    let Some(headers) = message.headers() else { return Vec::new() };
    // The driver panics on header names that are not UTF-8, which other clients may write.
    let read = catch_unwind(AssertUnwindSafe(|| {
        headers.iter().map(|header| (header.key, header.value.unwrap_or_default())).collect()
    }));
    read.unwrap_or_default()
}

/// Encodes the fields that a plain record lacks.
pub(crate) fn fields(message: &Message) -> Vec<u8> {
    let mut fields = message.id.as_u128().to_be_bytes().to_vec();
    fields.extend_from_slice(&message.created.as_millis().to_be_bytes());
    fields.extend(message.due.iter().flat_map(|due| due.as_millis().to_be_bytes()));
    fields
}

/// Returns the headers to send a message with.
pub(crate) fn headers(message: &Message, more: &[(&str, &[u8])]) -> OwnedHeaders {
    let fields = fields(message);
    let count = 1 + more.len() + message.headers.iter().count();
    let mut headers =
        OwnedHeaders::new_with_capacity(count).insert(Header { key: FIELDS, value: Some(&fields) });
    for (name, value) in more {
        headers = headers.insert(Header { key: name, value: Some(*value) });
    }
    for (name, value) in message.headers.iter() {
        headers = headers.insert(Header { key: name, value: Some(&value[..]) });
    }
    headers
}

/// Returns the record's timestamp, the time of creation, by which the broker can search. 0 would mean now.
pub(crate) fn record_time(message: &Message) -> Option<i64> {
    i64::try_from(message.created.as_millis()).ok().filter(|time| *time > 0)
}

/// Decodes the message of any producer's record. `own` lists headers that are not part of the message.
pub(crate) fn message_of(
    key: Option<&[u8]>,
    payload: Option<&[u8]>,
    headers: &[(&str, &[u8])],
    place: Place,
    own: &[&str],
) -> Message {
    let fields = headers.iter().find(|(name, _)| *name == FIELDS).and_then(|(_, value)| read_fields(value));
    let rest =
        headers.iter().filter(|(name, _)| !(own.contains(name) || fields.is_some() && *name == FIELDS));
    let (id, created, due) = fields.unwrap_or_else(|| place.fields());
    Message {
        id,
        key: key.map(Bytes::copy_from_slice),
        payload: payload.map(Bytes::copy_from_slice).unwrap_or_default(),
        headers: rest.map(|(name, value)| (*name, Bytes::copy_from_slice(value))).collect::<Headers>(),
        due,
        created,
    }
}

type Fields = (MessageId, Timestamp, Option<Timestamp>);

fn read_fields(bytes: &[u8]) -> Option<Fields> {
    let (id, rest) = bytes.split_first_chunk::<16>()?;
    let (created, rest) = rest.split_first_chunk::<8>()?;
    let time = |bytes: &[u8; 8]| Timestamp::from_millis(u64::from_be_bytes(*bytes));
    let due = match rest.len() {
        0 => None,
        _ => Some(time(rest.try_into().ok()?)),
    };
    Some((MessageId::from_u128(u128::from_be_bytes(*id)), time(created), due))
}

/// The position and timestamp of a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) partition: u16,
    pub(crate) offset: u64,
    pub(crate) time: u64,
}

impl Place {
    fn fields(self) -> Fields {
        const LONGEST: u64 = (1 << 48) - 1;
        let time = self.time.min(LONGEST);
        let bits = u128::from(time) << 80 | u128::from(self.partition) << 64 | u128::from(self.offset);
        (MessageId::from_u128(bits), Timestamp::from_millis(time), None)
    }
}

/// Decodes a record of a shard.
pub(crate) fn read(message: &BorrowedMessage<'_>) -> Option<(u64, Message)> {
    let offset = u64::try_from(message.offset()).ok()?;
    let partition = u16::try_from(message.partition()).ok()?;
    let place = Place { partition, offset, time: time_of(message) };
    Some((offset, message_of(message.key(), message.payload(), &headers_of(message), place, &[])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> Place {
        Place { partition: 3, offset: 9, time: 77 }
    }

    #[test]
    fn fields_are_read_back() {
        for due in [None, Some(Timestamp::from_millis(5))] {
            let message = Message {
                id: MessageId::from_u128(u128::MAX - 1),
                key: None,
                payload: Bytes::from_static(b"p"),
                headers: Headers::default(),
                due,
                created: Timestamp::from_millis(4),
            };
            let bytes = fields(&message);
            let headers = [(FIELDS, &bytes[..])];
            assert_eq!(message_of(None, Some(b"p"), &headers, place(), &[]), message);
        }
    }

    #[test]
    fn what_others_wrote_is_read_too() {
        let headers = [("a", &b"1"[..]), (FIELDS, b"too short"), ("a", b"")];
        let message = message_of(Some(b"k"), None, &headers, place(), &[]);
        assert_eq!(message.id.as_u128(), 77 << 80 | 3 << 64 | 9);
        assert_eq!((message.created, message.due), (Timestamp::from_millis(77), None));
        assert_eq!(message.headers.iter().count(), 3, "all headers are the message's");
        assert!(message.payload.is_empty() && message.key.as_deref() == Some(b"k"));
    }
}
