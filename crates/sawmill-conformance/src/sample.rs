//! Messages to try a log with.

use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use sawmill::clock::Timestamp;
use sawmill::env::Env;
use sawmill::log::Record;
use sawmill::message::{Headers, Message, MessageId};
use sawmill::{ErrorKind, Result};

/// The wall clock now.
pub(crate) fn now() -> Timestamp {
    Env::system().wall()
}

/// So many seconds after a time.
pub(crate) fn seconds_after(time: Timestamp, seconds: u64) -> Timestamp {
    time + Duration::from_secs(seconds)
}

/// An id that was never used. Ids made one after another do not sort in that order, so that an engine which reads by id
/// instead of by the order of appending is found out.
pub(crate) fn fresh_id() -> MessageId {
    let env = Env::system();
    let random = u128::from(env.dice().roll()) << 16 | u128::from(env.dice().roll() & 0xffff);
    MessageId::from_u128(u128::from(env.wall().as_millis()) << 80 | random)
}

/// A message that says this, due at once.
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

/// A record that says this, for a shard.
pub(crate) fn record(shard: u16, text: impl Into<String>) -> Record {
    Record::once(shard, message(text))
}

/// A record that says this, for a shard, due at a time.
pub(crate) fn record_due(shard: u16, text: impl Into<String>, due: Timestamp) -> Record {
    Record::once(shard, Message { due: Some(due), ..message(text) })
}

/// Records for one shard that say `{prefix}{number}` for each number.
pub(crate) fn records(shard: u16, prefix: &str, numbers: std::ops::Range<usize>) -> Vec<Record> {
    numbers.map(|number| record(shard, format!("{prefix}{number}"))).collect()
}

/// What records made by [`records`] say.
pub(crate) fn numbered(prefix: &str, numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("{prefix}{number}")).collect()
}

/// What a message says.
pub(crate) fn text(message: &Message) -> String {
    String::from_utf8_lossy(&message.payload).into_owned()
}

/// What messages say.
pub(crate) fn texts(messages: &[Message]) -> Vec<String> {
    messages.iter().map(text).collect()
}

/// Holds that a call was refused, with an error of this kind.
pub(crate) fn assert_refused<T: Debug>(what: &str, answer: Result<T>, kind: ErrorKind) {
    match answer {
        Ok(answer) => panic!("{what} should be refused with {kind:?}, and was answered {answer:?}"),
        Err(error) => assert_eq!(error.kind(), kind, "{what} is refused with the wrong kind: {error:?}"),
    }
}
