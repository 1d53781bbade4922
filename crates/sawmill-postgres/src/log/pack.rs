//! Packs: messages of one push that go to the same shard share one row. The cost of a row (its header, its
//! index entry, its WAL record) is then paid once for all of them.
//!
//! The messages of a pack were created at the same time and are numbered without gaps; the row carries the
//! number of the last one. So the index still finds "everything after this spot", which begins in the middle
//! of a row at most.

use bytes::{Buf, BufMut, Bytes};
use sawmill_engine::model::{Headers, Message, MessageId};
use sawmill_engine::runtime::Timestamp;

use crate::log::row::{from_time, to_time};

/// The limits of a pack. Reading a few of its messages means reading all of them.
const MAX_MESSAGES: usize = 256;
const MAX_BYTES: usize = 64 << 10;

/// The format version, in the first byte.
const FORMAT: u8 = 1;
/// Flags for the optional parts of a message.
const DUE: u8 = 1;
const KEY: u8 = 2;
const HEADERS: u8 = 4;

/// A pack under construction.
#[derive(Debug)]
pub(crate) struct Pack {
    pub(crate) first: MessageId,
    pub(crate) created: Timestamp,
    pub(crate) many: usize,
    pub(crate) bytes: Vec<u8>,
}

impl Pack {
    pub(crate) fn new(message: &Message) -> Self {
        let (first, created) = (message.id, message.created);
        let mut pack = Self { first, created, many: 0, bytes: vec![FORMAT] };
        pack.add(message);
        pack
    }

    /// Returns whether a message may be added.
    pub(crate) fn takes(&self, message: &Message) -> bool {
        self.many < MAX_MESSAGES
            && self.created == message.created
            && self.bytes.len().saturating_add(message.payload.len()) <= MAX_BYTES
    }

    pub(crate) fn add(&mut self, message: &Message) {
        let out = &mut self.bytes;
        let headers = (!message.headers.is_empty()).then(|| message.headers.encode());
        let flag = |has: bool, flag: u8| if has { flag } else { 0 };
        out.put_u128(message.id.as_u128());
        out.put_u8(
            flag(message.due.is_some(), DUE)
                | flag(message.key.is_some(), KEY)
                | flag(headers.is_some(), HEADERS),
        );
        if let Some(due) = message.due {
            out.put_i64(from_time(due));
        }
        for part in [message.key.as_deref(), headers.as_deref(), Some(&message.payload)].into_iter().flatten()
        {
            // Larger parts do not get here: the size of messages is limited.
            out.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
            out.put_slice(part);
        }
        self.many += 1;
    }
}

/// Unpacks the messages of a pack. Returns `None` if the bytes are not a pack.
pub(crate) fn unpack(mut bytes: Bytes, many: usize, created: Timestamp) -> Option<Vec<Message>> {
    if bytes.try_get_u8().ok()? != FORMAT {
        return None;
    }
    let mut messages = Vec::with_capacity(many.min(MAX_MESSAGES));
    for _ in 0..many {
        messages.push(message(&mut bytes, created)?);
    }
    bytes.is_empty().then_some(messages)
}

fn message(bytes: &mut Bytes, created: Timestamp) -> Option<Message> {
    let id = MessageId::from_u128(bytes.try_get_u128().ok()?);
    let flags = bytes.try_get_u8().ok()?;
    let due = if flags & DUE == 0 { None } else { Some(to_time(bytes.try_get_i64().ok()?)?) };
    let key = if flags & KEY == 0 { None } else { Some(part(bytes)?) };
    let headers = if flags & HEADERS == 0 { Headers::default() } else { Headers::decode(&part(bytes)?)? };
    Some(Message { id, key, payload: part(bytes)?, headers, due, created })
}

fn part(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREATED: Timestamp = Timestamp::from_millis(1_000);

    fn messages() -> Vec<Message> {
        let plain = |id: u128, payload: &'static str| Message {
            id: MessageId::from_u128(id),
            key: None,
            payload: payload.into(),
            headers: Headers::default(),
            due: None,
            created: CREATED,
        };
        let headers: Headers = [("a", "b")].into_iter().collect();
        let due = Some(Timestamp::from_millis(900));
        vec![
            plain(1, ""),
            Message { key: Some("key".into()), ..plain(u128::MAX, "payload") },
            Message { due, headers: headers.clone(), ..plain(3, "later") },
            Message { key: Some(Bytes::new()), due, headers, ..plain(4, "all of it") },
        ]
    }

    fn pack(messages: &[Message]) -> Pack {
        let mut pack = Pack::new(&messages[0]);
        messages[1..].iter().for_each(|message| pack.add(message));
        pack
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        for count in 1..=4 {
            let messages = &messages()[..count];
            let pack = pack(messages);
            assert_eq!(pack.many, count);
            assert_eq!(unpack(pack.bytes.into(), count, CREATED).as_deref(), Some(messages));
        }
    }

    #[test]
    fn what_is_no_pack_is_refused() {
        let pack = pack(&messages());
        let whole = Bytes::from(pack.bytes);
        for end in 0..whole.len() {
            assert_eq!(unpack(whole.slice(..end), 4, CREATED), None, "{end} bytes of it");
        }
        assert_eq!(unpack(whole.clone(), 3, CREATED), None, "one is left");
        assert_eq!(unpack(whole, 5, CREATED), None, "one is missing");
        assert_eq!(unpack(Bytes::from_static(b"\x02"), 0, CREATED), None, "another format");
    }

    #[test]
    fn a_pack_has_an_end() {
        let message = &messages()[0];
        let mut pack = Pack::new(message);
        while pack.takes(message) {
            pack.add(message);
        }
        assert_eq!(pack.many, MAX_MESSAGES);
        let large = Message { payload: vec![0; MAX_BYTES].into(), ..message.clone() };
        assert!(!Pack::new(message).takes(&large));
        assert!(!Pack::new(&large).takes(message));
        let other = Message { created: Timestamp::from_millis(1_001), ..message.clone() };
        assert!(!Pack::new(message).takes(&other));
    }
}
