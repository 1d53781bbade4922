//! Packs the messages of one push that go to one shard in one row. The cost of a row is paid once for all of
//! them, and fewer rows must be scanned while the settle window is open.

use bytes::{Buf, BufMut, Bytes};
use sawmill_engine::model::{Headers, Message, MessageId};

use crate::log::row::{from_time, to_time};

/// The limits of a pack: at most this many messages and about this many bytes, because a reader that wants
/// some of them reads all.
const MAX_MESSAGES: u32 = 256;
const MAX_BYTES: usize = 64 << 10;

/// The version of the encoding, in the first byte.
const FORMAT: u8 = 1;
/// The flags of a message: its optional parts.
const DUE: u8 = 1;
const KEY: u8 = 2;
const HEADERS: u8 = 4;

/// Encoded messages.
#[derive(Debug, Clone)]
pub(crate) struct Pack {
    pub(crate) many: u32,
    /// When the last of them was created.
    pub(crate) created: i64,
    pub(crate) body: Vec<u8>,
}

impl Pack {
    pub(crate) fn new(message: &Message) -> Self {
        let mut pack = Self { many: 0, created: 0, body: vec![FORMAT] };
        pack.add(message);
        pack
    }

    /// Returns whether a message may be added.
    pub(crate) fn takes(&self, message: &Message) -> bool {
        self.many < MAX_MESSAGES && self.body.len().saturating_add(message.payload.len()) <= MAX_BYTES
    }

    pub(crate) fn add(&mut self, message: &Message) {
        let out = &mut self.body;
        let headers = (!message.headers.is_empty()).then(|| message.headers.encode());
        let flag = |has: bool, flag: u8| if has { flag } else { 0 };
        out.put_u128(message.id.as_u128());
        out.put_i64(from_time(message.created));
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
            // The length always fits: messages have a size limit.
            out.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
            out.put_slice(part);
        }
        self.many += 1;
        self.created = self.created.max(from_time(message.created));
    }
}

/// Decodes a pack; `None` if it is malformed.
pub(crate) fn unpack(mut bytes: Bytes, many: u32) -> Option<Vec<Message>> {
    if bytes.try_get_u8().ok()? != FORMAT {
        return None;
    }
    let messages: Option<Vec<Message>> = (0..many).map(|_| message(&mut bytes)).collect();
    messages.filter(|_| bytes.is_empty())
}

fn message(bytes: &mut Bytes) -> Option<Message> {
    let id = MessageId::from_u128(bytes.try_get_u128().ok()?);
    let created = to_time(bytes.try_get_i64().ok()?);
    let flags = bytes.try_get_u8().ok()?;
    let due = if flags & DUE == 0 { None } else { Some(to_time(bytes.try_get_i64().ok()?)) };
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
    use sawmill_engine::runtime::Timestamp;

    fn messages() -> Vec<Message> {
        let plain = |id: u128, payload: &'static str| Message {
            id: MessageId::from_u128(id),
            key: None,
            payload: payload.into(),
            headers: Headers::default(),
            due: None,
            created: Timestamp::from_millis(1_000 + id as u64 % 7),
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
            assert_eq!(pack.many as usize, count);
            assert_eq!(pack.created, messages.iter().map(|m| from_time(m.created)).max().unwrap());
            assert_eq!(unpack(pack.body.into(), count as u32).as_deref(), Some(messages));
        }
    }

    #[test]
    fn what_is_no_pack_is_refused() {
        let whole = Bytes::from(pack(&messages()).body);
        for end in 0..whole.len() {
            assert_eq!(unpack(whole.slice(..end), 4), None, "{end} bytes of it");
        }
        assert_eq!(unpack(whole.clone(), 3), None, "one is left");
        assert_eq!(unpack(whole, 5), None, "one is missing");
        assert_eq!(unpack(Bytes::from_static(b"\x02"), 0), None, "another format");
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
    }
}
