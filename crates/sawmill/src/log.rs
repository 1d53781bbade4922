//! The first seam: where messages live.
//!
//! A log is append-only and read in order per shard. It knows nothing of groups, claims or workers. Everything an engine
//! must promise is written on the method that promises it; the conformance suite holds every engine to each sentence.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::checkup::Finding;
use crate::clock::Timestamp;
use crate::engine::Capabilities;
use crate::error::{Error, ErrorKind, Result};
use crate::message::{Message, MessageId};
use crate::planted::{self, Bug};
use crate::shard::shard_of;
use crate::topic::{Topic, TopicName, TopicSpec};

/// Where messages live.
///
/// Every call ends within a bounded time; a store that does not answer is an error.
///
/// An error of kind [`Unknown`](crate::ErrorKind::Unknown) means that the call may have taken effect, or may still; every
/// other error means that it has not and will not. A topic that does not exist (any more) is an error of kind
/// [`NotFound`](crate::ErrorKind::NotFound), a shard that it does not have one of kind
/// [`Invalid`](crate::ErrorKind::Invalid).
#[async_trait]
pub trait Log: Any + Send + Sync {
    /// What this engine can do, and its limits. Always the same for one log.
    fn capabilities(&self) -> Capabilities;

    /// Creates a topic, or finds the one that is there with the same number of shards. A topic with another number of
    /// shards is an error of kind [`Exists`](crate::ErrorKind::Exists), and stays as it is.
    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic>;

    /// The topic with this name, lanes included.
    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>>;

    /// All topics of this namespace, lanes included, by name.
    async fn topics(&self) -> Result<Vec<Topic>>;

    /// Removes a topic and its messages. A topic created later under the same name has another `uid`. False if there
    /// was none.
    async fn delete_topic(&self, topic: &Topic) -> Result<bool>;

    /// The shard of a key, always the same for one number of shards. Others than us may write to an engine's shards: then this
    /// is where they put the key.
    fn shard_of(&self, key: &[u8], shards: u16) -> u16 {
        shard_of(key, shards)
    }

    /// Appends messages, each to its shard, durably: when this returns `Ok`, a crash of everything loses none.
    ///
    /// Within a shard, messages of one call that are due are readable in the order given, and after everything that was
    /// acknowledged before the call. An error of kind `Unknown` may leave any of them appended, now or a little later. A
    /// [repeatable](Record::repeatable) record whose id is in the topic already, from a record that was repeatable too, is
    /// not added again, where the engine [can tell](Capabilities::idempotent_append); one that was trimmed may be.
    ///
    /// A message that is not due at `now` is kept aside until [`promote`](Log::promote) is called at its time.
    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()>;

    /// Reads each wanted shard after a position, at most as many messages as wanted, and answers in the same order. A
    /// block may end earlier, so that it does not fill the memory; and a shard may be left out, as an empty block after
    /// which there may be more, for the sake of another that has messages at hand, or because nothing of it is at hand yet.
    ///
    /// An acknowledged message that is due is returned, soon, to every reader whose position is before it. What becomes
    /// readable later never sorts before a position that a read has returned. A message that is not due is not returned.
    async fn read(&self, topic: &Topic, wants: &[Want]) -> Result<Vec<Block>>;

    /// Reads a past block again: the same messages in the same order. If some are gone by now, that is an error of
    /// kind [`Gone`](crate::ErrorKind::Gone).
    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>>;

    /// Makes at most `limit` messages readable that were kept aside and are due at `now`, in ascending order of due time
    /// and those of one time in the order of appending, each in its own shard, and says when the next one is due. Calling
    /// it from several places at once is safe.
    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted>;

    /// The message with this id, readable or kept aside. This is for people who ask after one message: an engine may have
    /// to search for it.
    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<Found>>;

    /// For each shard a position after which lies everything that is readable now and was created at `since` or later:
    /// the last such position, or, where that is hard to find, a somewhat earlier one. It is the end of the shard if
    /// everything was created before.
    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>>;

    /// How much lies after each of these positions, in the same order.
    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog>;

    /// Drops what is not needed any more, and says how many messages of each shard that were.
    ///
    /// `upto` has positions for each shard, in their order. Messages that lie at or before every one of the positions of their
    /// shard and were created before `before` are not needed any more; of a shard without any, or for which `upto` has
    /// nothing, all are needed. The engine may drop what is not needed now, later, or in part; it drops nothing else. What an
    /// earlier call said does not count any more: since then a group may have come, or gone back.
    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>>;

    /// Hints that something of this topic may have become readable, or was kept aside. A hint may be late, lost, or wrong:
    /// of another topic, say, where the engine cannot tell.
    fn news(&self, topic: &Topic) -> Hints;

    /// Gives the hint of [`news`](Log::news) for what was appended by others, who cannot: within a transaction of a user's
    /// own. It may be lost.
    fn announce(&self) {}

    /// What is wrong with the store that it works in spite of: settings under which a crash loses messages, rights that are
    /// missing, transactions that were open for longer than `patience`. Only what is wrong is told.
    async fn check_up(&self, _patience: Duration) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

/// A message and the shard it goes to.
#[derive(Debug, Clone)]
pub struct Record {
    /// The shard it goes to.
    pub shard: u16,
    /// The message.
    pub message: Message,
    /// It may be appended again with the same id, so that the engine has to look whether it is there. Those that are
    /// pushed once, under a new id, are spared the look.
    pub repeatable: bool,
}

impl Record {
    /// A message under a new id, which is appended once.
    pub fn once(shard: u16, message: Message) -> Self {
        Self { shard, message, repeatable: false }
    }

    /// A message whose id follows from what it is made for, so that making it twice adds it once where the engine can
    /// tell. It goes to the shard of its key, or to one that follows from its id.
    pub fn repeatable(topic: &Topic, message: Message) -> Self {
        Self::repeated(topic, message, shard_of)
    }

    /// The same, for a log that may have [a way of its own](Log::shard_of) to place keys.
    pub(crate) fn repeatable_in(log: &dyn Log, topic: &Topic, message: Message) -> Self {
        Self::repeated(topic, message, |key, shards| log.shard_of(key, shards))
    }

    fn repeated(topic: &Topic, message: Message, shard_of: impl Fn(&[u8], u16) -> u16) -> Self {
        let id = message.id.as_u128().to_be_bytes();
        let key = message.key.as_deref().filter(|_| !planted::is(Bug::ShardIgnoresKey));
        let shard = shard_of(key.unwrap_or(&id), topic.shards);
        Self { shard, message, repeatable: true }
    }
}

/// A wish to read a shard.
#[derive(Debug, Clone)]
pub struct Want {
    /// Which shard.
    pub shard: u16,
    /// After which position.
    pub after: Position,
    /// At most how many messages.
    pub limit: usize,
}

/// Messages of one shard that follow one another in the log.
#[derive(Debug, Clone)]
pub struct Block {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// What [`Log::reread`] needs to read them again.
    pub span: Span,
    /// The position after the last of them; where reading began, if there is none.
    pub end: Position,
    /// True if there may be more after them. At the end of a shard to which nothing is appended it is false, sooner or
    /// later.
    pub more: bool,
}

/// What [`Log::find`] found.
#[derive(Debug, Clone)]
pub struct Found {
    /// The shard in which it is.
    pub shard: u16,
    /// The message.
    pub message: Message,
    /// The position before it; none if it is kept aside until it is due.
    pub before: Option<Position>,
}

/// What [`Log::promote`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promoted {
    /// How many messages it made readable.
    pub moved: usize,
    /// When the next one kept aside is due.
    pub next_due: Option<Timestamp>,
}

/// What [`Log::backlog`] found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Readable messages after each position.
    pub ready: Vec<u64>,
    /// Messages of the whole topic that are kept aside because they are not due.
    pub aside: u64,
    /// When the first readable message after the positions was created, of the shard where that is earliest.
    pub oldest: Option<Timestamp>,
}

macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(Bytes);

        impl $name {
            /// As the engine wrote it.
            pub fn new(bytes: impl Into<Bytes>) -> Self {
                Self(bytes.into())
            }

            /// What the engine wrote.
            pub fn as_bytes(&self) -> &[u8] {
                &self.0
            }
        }

        impl From<$name> for String {
            fn from(opaque: $name) -> String {
                opaque.0.iter().map(|byte| format!("{byte:02x}")).collect()
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                let byte = |i| text.get(i..i + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok());
                let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(byte).collect();
                bytes.map(Self::new).ok_or_else(|| format!("{text:?} is not written in hexadecimal"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({})", stringify!($name), String::from(self.clone()))
            }
        }
    };
}

opaque! {
    /// A place in a shard, in the engine's own terms: only the log that made it can read it. The default is the beginning.
    /// It is kept in ledger entries, so it should be small: about 1 KiB at most.
    Position
}

opaque! {
    /// What a log needs to read one block again, in the engine's own terms. As small as a [`Position`].
    Span
}

/// For engines whose positions are plain numbers that grow along the shard.
impl Position {
    /// The position of the message with this number; 0 is the beginning.
    pub fn from_number(number: u64) -> Self {
        if number == 0 { Self::default() } else { Self::new(number.to_be_bytes().to_vec()) }
    }

    /// The least number of several positions; 0 if there is none.
    pub fn least_number(positions: &[Position]) -> Result<u64> {
        let numbers: Result<Vec<u64>> = positions.iter().map(Position::number).collect();
        Ok(numbers?.into_iter().min().unwrap_or(0))
    }

    /// The number that [`Position::from_number`] was given.
    pub fn number(&self) -> Result<u64> {
        match <[u8; 8]>::try_from(self.as_bytes()) {
            Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
            Err(_) if self.as_bytes().is_empty() => Ok(0),
            Err(_) => Err(Error::new(ErrorKind::Corrupt, format!("{self:?} was made by another engine"))),
        }
    }
}

/// For engines whose positions are plain numbers: a block is what lies between two of them.
impl Span {
    /// `count` messages with numbers greater than `after` and not greater than `upto`.
    pub fn from_range(after: u64, upto: u64, count: usize) -> Self {
        let numbers = [after, upto, count as u64];
        Self::new(numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>())
    }

    /// The range and the count that [`Span::from_range`] was given.
    pub fn range(&self) -> Result<(u64, u64, usize)> {
        let number = |i: usize| {
            let bytes = self.as_bytes().get(8 * i..8 * i + 8)?;
            Some(u64::from_be_bytes(bytes.try_into().ok()?))
        };
        match (number(0), number(1), number(2)) {
            (Some(after), Some(upto), Some(count)) => Ok((after, upto, count as usize)),
            _ => Err(Error::new(ErrorKind::Corrupt, format!("{self:?} was made by another engine"))),
        }
    }
}

/// A stream of hints that something may have changed.
///
/// Nothing correct may depend on them: with every hint lost, polling alone must do.
#[derive(Debug, Clone)]
pub struct Hints(watch::Receiver<()>);

impl Hints {
    /// Hints that come whenever the sender is used.
    pub fn new(receiver: watch::Receiver<()>) -> Self {
        Self(receiver)
    }

    /// Hints that never come.
    pub fn never() -> Self {
        Self(watch::channel(()).1)
    }

    /// Completes when there was a hint since the last call.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The sender is gone: there will be no more hints.
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_back_from_positions_and_spans() {
        for number in [0, 1, 258, u64::MAX] {
            assert_eq!(Position::from_number(number).number().unwrap(), number);
        }
        assert_eq!(Position::from_number(0), Position::default());
        assert_eq!(Span::from_range(3, 9, 4).range().unwrap(), (3, 9, 4));
        assert!(Position::new(vec![1]).number().is_err());
        assert!(Span::new(vec![1; 17]).range().is_err());
    }

    #[test]
    fn positions_are_read_back_from_their_text() {
        for bytes in [&[][..], &[0], &[1, 2, 255]] {
            let position = Position::new(bytes.to_vec());
            let text = serde_json::to_string(&position).unwrap();
            assert_eq!(serde_json::from_str::<Position>(&text).unwrap(), position);
        }
        for text in ["\"0\"", "\"zz\"", "\"é\"", "3"] {
            assert!(serde_json::from_str::<Position>(text).is_err(), "{text}");
        }
    }
}
