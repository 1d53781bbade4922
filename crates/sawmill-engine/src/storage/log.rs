//! The first storage interface: the log, which keeps messages.
//!
//! A log is append-only, and is read in order per shard. It knows nothing of groups, claims or workers. Every
//! promise of an engine is documented on the method that makes it. The conformance suite checks each sentence
//! on every engine.

use std::any::Any;
use std::time::Duration;

use async_trait::async_trait;

use crate::Result;
use crate::model::{Message, MessageId, Topic, TopicName, TopicSpec, shard_of};
use crate::runtime::Timestamp;
use crate::storage::{Capabilities, Finding, Notifications, Position, Span};

/// A store of messages.
///
/// Every call ends within a bounded time. If the store does not answer, the call returns an error.
///
/// An error of kind [`Unknown`](crate::ErrorKind::Unknown) means that the call may have taken effect, or may
/// still do so. Every other error means that it has not taken effect and will not. If a topic does not exist,
/// or no longer exists, the error is of kind [`NotFound`](crate::ErrorKind::NotFound). If the topic has no
/// such shard, the error is of kind [`Invalid`](crate::ErrorKind::Invalid).
#[async_trait]
pub trait Log: Any + Send + Sync {
    /// Returns the abilities and limits of this log. They never change for one log.
    fn capabilities(&self) -> Capabilities;

    /// Creates a topic, or returns the existing one if it has the same number of shards. If it has another
    /// number of shards, the error is of kind [`Exists`](crate::ErrorKind::Exists), and the topic stays as it
    /// is.
    async fn create_topic(&self, spec: &TopicSpec) -> Result<Topic>;

    /// Returns the topic or lane with this name.
    async fn topic(&self, name: &TopicName) -> Result<Option<Topic>>;

    /// Returns all topics of this namespace, lanes included, ordered by name.
    async fn topics(&self) -> Result<Vec<Topic>>;

    /// Removes a topic and its messages. A topic that is created later under the same name has another `uid`.
    /// Returns false if the topic did not exist.
    async fn delete_topic(&self, topic: &Topic) -> Result<bool>;

    /// Returns the shard of a key. It is always the same for one number of shards. If other programs write to
    /// an engine's shards as well, it is the shard in which they put the key.
    fn shard_of(&self, key: &[u8], shards: u16) -> u16 {
        shard_of(key, shards)
    }

    /// Appends messages durably, each to its shard. Once this returns `Ok`, a crash of everything loses none
    /// of them.
    ///
    /// Within a shard, the due messages of one call are readable in the order given, and after everything
    /// that was acknowledged before the call. An error of kind `Unknown` may leave any of the messages
    /// appended, now or a little later. If the engine [supports it](Capabilities::idempotent_append), a
    /// [repeatable](Record::repeatable) record is not added again when its id is in the topic already from
    /// another repeatable record. If that message was trimmed, the record may be added again.
    ///
    /// A message that is not due at `now` is kept aside until [`promote`](Log::promote) is called at its due
    /// time.
    async fn append(&self, topic: &Topic, now: Timestamp, records: Vec<Record>) -> Result<()>;

    /// Reads each requested shard after a position, at most as many messages as requested, and returns the
    /// blocks in the order of the requests. A block may be shorter, so that it does not fill the memory. A
    /// shard may also be left out: its block is then empty and has `more = true`, and the caller must ask
    /// again. This happens when another shard has messages at hand, or when nothing of this shard is at hand
    /// yet.
    ///
    /// An acknowledged message that is due is returned, soon, to every reader whose position is before it. A
    /// message that becomes readable later never sorts before a position that a read has returned. A message
    /// that is not due is not returned.
    async fn read(&self, topic: &Topic, wants: &[ReadRequest]) -> Result<Vec<Block>>;

    /// Reads a past block again: the same messages in the same order. If some of them are gone by now, the
    /// error is of kind [`Gone`](crate::ErrorKind::Gone).
    async fn reread(&self, topic: &Topic, shard: u16, span: &Span) -> Result<Vec<Message>>;

    /// Makes at most `limit` messages readable that were kept aside and are due at `now`, each in its own
    /// shard. They become readable in ascending order of due time; messages with the same due time keep the
    /// order in which they were appended. Returns the due time of the next message as well. Concurrent calls
    /// from several places are safe.
    async fn promote(&self, topic: &Topic, now: Timestamp, limit: usize) -> Result<Promoted>;

    /// Returns the message with this id, whether it is readable or kept aside. This is for people who ask for
    /// one message: the engine may have to search for it.
    async fn find(&self, topic: &Topic, id: MessageId) -> Result<Option<FoundMessage>>;

    /// Returns for each shard a position after which lies everything that is readable now and was created at
    /// `since` or later. It is the last such position or, where that is hard to find, a somewhat earlier one.
    /// It is the end of the shard if everything was created before `since`.
    async fn positions(&self, topic: &Topic, since: Timestamp) -> Result<Vec<Position>>;

    /// Returns how much lies after each of these positions, in the same order.
    async fn backlog(&self, topic: &Topic, after: &[(u16, Position)]) -> Result<Backlog>;

    /// Drops messages that are no longer needed, and returns how many were dropped of each shard.
    ///
    /// `upto` lists positions for each shard, in the order of the shards. A message is no longer needed if it
    /// lies at or before every listed position of its shard and was created before `before`. If no position
    /// is listed for a shard, or `upto` ends before the shard, all its messages are needed. The engine may
    /// drop unneeded messages now, later, or in part. It drops nothing else. The arguments of an earlier call
    /// no longer count: a group may have come, or gone back, since then.
    async fn trim(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<Vec<u64>>;

    /// Returns hints that a message of this topic may have become readable, or was kept aside. A hint may be
    /// late, lost, or wrong. For example, it may concern another topic if the engine cannot tell topics
    /// apart.
    fn message_notifications(&self, topic: &Topic) -> Notifications;

    /// Gives the hint of [`message_notifications`](Log::message_notifications) for messages that were
    /// appended within a user's own transaction, whose writer cannot give it. The hint may be lost.
    fn notify(&self) {}

    /// Reports problems in spite of which the store works: settings under which a crash loses messages,
    /// missing rights, and transactions that were open for longer than `patience`. Checks that pass are not
    /// reported.
    async fn diagnose(&self, _patience: Duration) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

/// A message to append, and its shard.
#[derive(Debug, Clone)]
pub struct Record {
    /// The shard that receives the message.
    pub shard: u16,
    /// The message.
    pub message: Message,
    /// The message may be appended again with the same id, so the engine must look whether it is there
    /// already. Messages that are pushed once, under a new id, do not need this lookup.
    pub repeatable: bool,
}

impl Record {
    /// Creates a record for a message with a new id, which is appended once.
    pub fn once(shard: u16, message: Message) -> Self {
        Self { shard, message, repeatable: false }
    }

    /// Creates a record for a message whose id derives from its purpose, so that a repeated append adds it
    /// once where the engine can tell. It goes to the shard of its key, or without a key to a shard that
    /// derives from its id.
    pub fn repeatable(topic: &Topic, message: Message) -> Self {
        Self::repeated(topic, message, shard_of)
    }

    /// Creates a repeatable record for a log that may have [its own placement of keys](Log::shard_of).
    pub fn repeatable_in(log: &dyn Log, topic: &Topic, message: Message) -> Self {
        Self::repeated(topic, message, |key, shards| log.shard_of(key, shards))
    }

    fn repeated(topic: &Topic, message: Message, shard_of: impl Fn(&[u8], u16) -> u16) -> Self {
        let id = message.id.as_u128().to_be_bytes();
        let key = message.key.as_deref();
        let shard = shard_of(key.unwrap_or(&id), topic.shards);
        Self { shard, message, repeatable: true }
    }
}

/// A request to read one shard.
#[derive(Debug, Clone)]
pub struct ReadRequest {
    /// The shard to read.
    pub shard: u16,
    /// The position after which to read.
    pub after: Position,
    /// The maximum number of messages to return.
    pub limit: usize,
}

/// Consecutive messages of one shard.
#[derive(Debug, Clone)]
pub struct Block {
    /// The messages, in order.
    pub messages: Vec<Message>,
    /// The span with which [`Log::reread`] reads the messages again.
    pub span: Span,
    /// The position after the last message; without messages, the position at which reading began.
    pub end: Position,
    /// True if there may be more messages after these. At the end of a shard to which nothing is appended, it
    /// becomes false sooner or later.
    pub more: bool,
}

/// The result of [`Log::find`].
#[derive(Debug, Clone)]
pub struct FoundMessage {
    /// The shard that contains the message.
    pub shard: u16,
    /// The message.
    pub message: Message,
    /// The position before the message; `None` if the message is kept aside until it is due.
    pub before: Option<Position>,
}

/// The result of [`Log::promote`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Promoted {
    /// The number of messages that became readable.
    pub moved: usize,
    /// The due time of the next message that is kept aside.
    pub next_due: Option<Timestamp>,
}

/// The result of [`Log::backlog`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Backlog {
    /// The number of readable messages after each position.
    pub ready: Vec<u64>,
    /// The number of messages of the whole topic that are kept aside because they are not due.
    pub aside: u64,
    /// The creation time of the first readable message after its position, in the shard where that time is
    /// earliest.
    pub oldest: Option<Timestamp>,
}
