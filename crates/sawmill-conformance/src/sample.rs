//! Sample messages for the checks of a log.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::Headers;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::Record;
use sawmill::{ErrorKind, Message, MessageId, Result, Timestamp};

/// Returns the wall clock's time.
pub(crate) fn now() -> Timestamp {
    Env::system().wall()
}

/// Returns the time this many seconds later.
pub(crate) fn seconds_after(time: Timestamp, seconds: u64) -> Timestamp {
    time + Duration::from_secs(seconds)
}

/// Returns an unused id. Successive ids do not sort in that order, which exposes an engine that reads by id
/// instead of by the order of appending.
pub(crate) fn fresh_id() -> MessageId {
    let env = Env::system();
    let random = u128::from(env.rng().next_u64()) << 16 | u128::from(env.rng().next_u64() & 0xffff);
    MessageId::from_u128(u128::from(env.wall().as_millis()) << 80 | random)
}

/// Makes a message with this payload, due at once.
pub(crate) fn message(text: impl Into<String>) -> Message {
    Message {
        id: fresh_id(),
        key: None,
        payload: Bytes::from(text.into()),
        headers: Headers::default(),
        due: None,
        created: now(),
    }
}

/// Makes a record with this payload for a shard.
pub(crate) fn record(shard: u16, text: impl Into<String>) -> Record {
    Record::once(shard, message(text))
}

/// Makes a record with this payload for a shard, due at a time.
pub(crate) fn record_due(shard: u16, text: impl Into<String>, due: Timestamp) -> Record {
    Record::once(shard, Message { due: Some(due), ..message(text) })
}

/// Makes records for one shard with the payloads `{prefix}{number}`.
pub(crate) fn records(shard: u16, prefix: &str, numbers: std::ops::Range<usize>) -> Vec<Record> {
    numbers.map(|number| record(shard, format!("{prefix}{number}"))).collect()
}

/// Returns the payloads of the records made by [`records`].
pub(crate) fn numbered(prefix: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{prefix}{number}")).collect()
}

/// Returns the payload of a message as text.
pub(crate) fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

/// Returns the payloads of messages as text.
pub(crate) fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(text).collect()
}

/// Asserts that a call was refused with an error of this kind.
pub(crate) fn assert_refused<T: Debug>(what: &str, answer: Result<T>, kind: ErrorKind) {
    match answer {
        Ok(answer) => panic!("{what} should be refused with {kind:?}, and was answered {answer:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{what} is refused with the wrong kind: {error:?}"),
    }
}
