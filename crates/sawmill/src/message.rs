//! Messages: what is pushed, and what comes out.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::env::Env;
use crate::error::{Error, Result};
use crate::unique::Unique;

/// The most bytes a key may have.
pub const MAX_KEY_BYTES: usize = 1024;
/// The most bytes that the names and values of all headers of one message may have together.
pub const MAX_HEADER_BYTES: usize = 32 * 1024;
/// The most bytes the name of a unique message may have.
pub const MAX_UNIQUE_BYTES: usize = 200;
/// Header names that begin so are the library's own.
pub const RESERVED_HEADER_PREFIX: &str = "sawmill-";

/// A message as it lies in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Made by the pusher, so that pushing again after an unknown outcome changes nothing where the engine can tell.
    pub id: MessageId,
    /// Messages with the same key go to the same shard, and never run at the same time within a worker.
    pub key: Option<Bytes>,
    /// What the message says.
    pub payload: Bytes,
    /// Small named values beside the payload.
    pub headers: Headers,
    /// Not to be started before this time.
    pub due: Option<Timestamp>,
    /// When it was pushed, by the pusher's clock.
    pub created: Timestamp,
}

impl Message {
    /// The payload, read as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(&self.payload).map_err(|error| {
            let name = std::any::type_name::<T>();
            Error::invalid(format!("the payload of {} cannot be read as JSON ({name})", self.id))
                .caused_by(error)
        })
    }
}

/// A message to be pushed: a payload and what goes with it.
///
/// ```
/// use std::time::Duration;
/// use sawmill::Push;
///
/// let reminder = Push::new("call Alice").key("alice").header("lang", "en").after(Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    pub(crate) key: Option<Bytes>,
    pub(crate) payload: Bytes,
    pub(crate) headers: Headers,
    pub(crate) due: Due,
    pub(crate) unique: Option<Unique>,
    /// The id it is to have, if it does not get a new one.
    pub(crate) id: Option<MessageId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    Now,
    At(Timestamp),
    After(Duration),
}

impl Push {
    /// A message with this payload, due at once.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        let (payload, headers) = (payload.into(), Headers::default());
        Self { key: None, payload, headers, due: Due::Now, unique: None, id: None }
    }

    /// Gives it a key: messages with the same key keep together, and in ordered groups keep their order.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header. Names that begin with `sawmill-` are refused when it is pushed.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.0.push((name.into(), value.into()));
        self
    }

    /// Not to be started before this time.
    #[must_use]
    pub fn at(mut self, due: Timestamp) -> Self {
        self.due = Due::At(due);
        self
    }

    /// Not to be started before this much time has passed from the push.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Not to be added while a message with this name is live in the topic: the push then returns the id of that one, and
    /// what this one says is dropped. A message is live until every group of the topic has settled it: it is done, or dead,
    /// or dropped. One that waits for its next attempt is live; a dead letter that is resent is not unique again.
    ///
    /// Names have nothing to do with [keys](Push::key). Each such push costs two small writes to the ledger.
    ///
    /// ```
    /// use sawmill::{Push, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("reports").await?;
    /// let first = mill.push("reports", Push::new("customer 7").unique("report-7")).await?;
    /// let second = mill.push("reports", Push::new("customer 7").unique("report-7")).await?;
    /// assert_eq!(first, second, "it waits already");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn unique(mut self, name: impl Into<String>) -> Self {
        self.unique = Some(Unique { name: name.into(), period: None });
        self
    }

    /// Not to be added within this time after a push with this name, whether that one is done by then or not: the push
    /// returns the id of the earlier one. The time is told by the clocks of those who push.
    #[must_use]
    pub fn unique_for(mut self, name: impl Into<String>, period: Duration) -> Self {
        self.unique = Some(Unique { name: name.into(), period: Some(period) });
        self
    }

    /// Made of another message for this purpose, and therefore the same one however often it is pushed: a handler that is run
    /// again pushes it again, and it is added once, where the engine [can tell](crate::Capabilities::idempotent_append). The
    /// topic knows it until it is trimmed.
    ///
    /// It cannot be [unique](Push::unique) as well.
    ///
    /// ```
    /// use sawmill::{Push, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("orders").await?;
    /// # mill.create_topic("invoices").await?;
    /// let order = mill.push("orders", "3 planks").await?;
    /// let invoice = || Push::new("for 3 planks").follows(order, "invoice");
    /// let first = mill.push("invoices", invoice()).await?;
    /// assert_eq!(mill.push("invoices", invoice()).await?, first);
    /// assert_eq!(mill.peek("invoices", "default", 10).await?.len(), 1, "it was added once");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn follows(mut self, id: MessageId, purpose: &str) -> Self {
        // Copies on lanes have purposes, too.
        self.id = Some(id.derive(&format!("follows: {purpose}")));
        self
    }

    /// The message to append, or why it cannot be one.
    pub(crate) fn into_message(self, id: MessageId, now: Timestamp) -> Result<Message> {
        if let Some((name, _)) =
            self.headers.0.iter().find(|(name, _)| name.starts_with(RESERVED_HEADER_PREFIX))
        {
            return Err(Error::invalid(format!(
                "header {name:?}: names that begin with {RESERVED_HEADER_PREFIX:?} are the library's own; choose another name"
            )));
        }
        if self.headers.0.iter().any(|(name, _)| name.is_empty()) {
            return Err(Error::invalid("a header has an empty name; give it one"));
        }
        let due = match self.due {
            Due::Now => None,
            Due::At(due) => Some(due),
            Due::After(delay) => Some(now + delay),
        };
        Ok(Message { id, key: self.key, payload: self.payload, headers: self.headers, due, created: now })
    }
}

impl<T: Into<Bytes>> From<T> for Push {
    fn from(payload: T) -> Self {
        Push::new(payload)
    }
}

/// Small named values beside the payload. A name may stand more than once; order is kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Headers(pub(crate) Vec<(String, Bytes)>);

impl Headers {
    /// The first value with this name.
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// The first value with this name, if it is text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn set(&mut self, name: &str, value: impl Into<Bytes>) {
        self.0.retain(|(other, _)| other != name);
        self.0.push((name.to_owned(), value.into()));
    }

    pub(crate) fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// The headers as bytes, for engines that store them in one field; see [`Headers::decode`].
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size() + 8 * self.0.len());
        for (name, value) in &self.0 {
            for part in [name.as_bytes(), value] {
                bytes.extend_from_slice(&(part.len() as u32).to_be_bytes());
                bytes.extend_from_slice(part);
            }
        }
        bytes
    }

    /// What [`Headers::encode`] made; `None` if these bytes are nothing that it makes.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut part = || -> Option<Option<&[u8]>> {
            if bytes.is_empty() {
                return Some(None);
            }
            let (length, rest) = bytes.split_first_chunk::<4>()?;
            let (part, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            bytes = rest;
            Some(Some(part))
        };
        let mut headers = Vec::new();
        while let Some(name) = part()? {
            let name = std::str::from_utf8(name).ok()?.to_owned();
            headers.push((name, Bytes::copy_from_slice(part()??)));
        }
        Some(Self(headers))
    }
}

impl<N: Into<String>, V: Into<Bytes>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        Self(headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// The name of a message: 128 bits that begin with its creation time, written as 26 letters and digits. One that was made of something
/// without a time, such as the key of a request, has none.
///
/// Ids made one after another by one process sort in that order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(u128);

/// Crockford's base 32: digits and capitals without I, L, O and U.
const ALPHABET: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

impl MessageId {
    /// The id with these 128 bits.
    pub const fn from_u128(bits: u128) -> Self {
        Self(bits)
    }

    /// Its 128 bits.
    pub const fn as_u128(self) -> u128 {
        self.0
    }

    /// When the message was made, by the clock of who made it; 1970 if its id has no time.
    pub const fn created(self) -> Timestamp {
        Timestamp::from_millis((self.0 >> 80) as u64)
    }

    /// The id of the copy of this message that is made for `purpose`: the same for the same purpose, so that making the
    /// copy twice is told from making two copies. It keeps the time at its beginning.
    pub(crate) fn derive(self, purpose: &str) -> MessageId {
        let high = crate::shard::hash(&[&self.0.to_be_bytes(), b"high", purpose.as_bytes()]);
        let low = crate::shard::hash(&[&self.0.to_be_bytes(), b"low", purpose.as_bytes()]);
        let random = (u128::from(high) << 64 | u128::from(low)) & RANDOM_BITS;
        MessageId(self.0 & !RANDOM_BITS | random)
    }
}

const RANDOM_BITS: u128 = (1 << 80) - 1;

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 26];
        for (i, place) in text.iter_mut().rev().enumerate() {
            *place = ALPHABET[(self.0 >> (5 * i) & 31) as usize];
        }
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for MessageId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong =
            || Error::invalid(format!("{text:?} is not a message id: an id has 26 letters and digits"));
        if text.len() != 26 || text.as_bytes()[0] > b'7' {
            return Err(wrong());
        }
        text.bytes()
            .try_fold(0u128, |bits, byte| {
                let digit = ALPHABET.iter().position(|letter| *letter == byte.to_ascii_uppercase());
                Ok(bits << 5 | digit.ok_or_else(wrong)? as u128)
            })
            .map(MessageId)
    }
}

impl Serialize for MessageId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Makes ids that sort in the order in which they were made.
pub(crate) struct IdMaker {
    last: Mutex<u128>,
}

impl IdMaker {
    pub(crate) fn new() -> Self {
        Self { last: Mutex::new(0) }
    }

    /// Makes `count` ids, calling `take` with each.
    pub(crate) fn make(&self, env: &Env, count: usize, mut take: impl FnMut(MessageId)) {
        let time = u128::from(env.wall().as_millis()) << 80;
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if time > *last {
            // The top random bit stays clear, so that there is room to count up within the millisecond.
            let random = u128::from(env.dice().roll()) << 64 | u128::from(env.dice().roll());
            *last = time | random & (RANDOM_BITS >> 1);
        }
        for _ in 0..count {
            *last += 1;
            take(MessageId(*last));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_from_its_text() {
        for bits in [0, 1, u128::MAX, 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef] {
            let id = MessageId(bits);
            assert_eq!(id.to_string().parse::<MessageId>().unwrap(), id);
            assert_eq!(id.to_string().to_lowercase().parse::<MessageId>().unwrap(), id);
        }
    }

    #[test]
    fn what_is_no_id_is_refused() {
        for text in ["", "0", "8ZZZZZZZZZZZZZZZZZZZZZZZZZ", "0123456789012345678901234U", "ééééééééééééé"]
        {
            assert!(text.parse::<MessageId>().is_err(), "{text}");
        }
    }

    #[test]
    fn ids_sort_as_they_are_made() {
        let (maker, env, mut ids) = (IdMaker::new(), Env::system(), Vec::new());
        for _ in 0..100 {
            maker.make(&env, 10, |id| ids.push(id));
        }
        assert!(ids.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn derived_ids_differ_by_purpose_and_are_stable() {
        let id = MessageId(77 << 80 | 5);
        assert_eq!(id.derive("retry 1"), id.derive("retry 1"));
        assert_ne!(id.derive("retry 1"), id.derive("retry 2"));
        assert_eq!(id.derive("retry 1").as_u128() >> 80, 77);
    }

    #[test]
    fn headers_are_read_back_from_their_bytes() {
        let headers: Headers = [("a", "1"), ("", ""), ("a", "2")].into_iter().collect();
        assert_eq!(Headers::decode(&headers.encode()), Some(headers));
        assert_eq!(Headers::decode(&[]), Some(Headers::default()));
        assert_eq!(Headers::decode(&[0, 0, 0, 9, 1]), None);
        assert_eq!(Headers::decode(&[0, 0, 0, 0]), None);
    }
}
