//! Transactions: pushing and finishing messages within a user's own transaction, on engines that support it.
//!
//! The queue checks messages, gives them ids and shards, and knows which message a handler may finish. Only
//! an engine's driver knows what a transaction is, so each engine has its own functions (`push_within`,
//! `finish_within`) that take these types.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use super::{Log, Record};
use crate::model::{GroupName, MessageId, Topic, TopicName};
use crate::runtime::Timestamp;
use crate::{Error, ErrorKind, Result};

/// A callback that tells observers that messages were pushed.
pub type OnPushed = Arc<dyn Fn(&TopicName, &[MessageId]) + Send + Sync>;

/// Messages that are checked and have their ids, but are in no log yet.
///
/// The engine's `push_within` writes them within a user's own transaction: they exist if it is committed, and
/// do not exist if it is rolled back. `Sawmill::draft` makes drafts.
#[must_use = "a draft is not pushed: write it with the engine's `push_within`"]
pub struct Draft {
    log: Arc<dyn Log>,
    topic: Arc<Topic>,
    now: Timestamp,
    records: Vec<Record>,
    on_pushed: OnPushed,
}

impl Draft {
    /// Makes a draft of records for a topic of this log. The queue calls this; users call `Sawmill::draft`.
    pub fn new(
        log: Arc<dyn Log>,
        topic: Arc<Topic>,
        now: Timestamp,
        records: Vec<Record>,
        on_pushed: OnPushed,
    ) -> Self {
        Self { log, topic, now, records, on_pushed }
    }

    /// Lists the ids of the messages, in their order.
    pub fn ids(&self) -> impl Iterator<Item = MessageId> {
        self.records.iter().map(|record| record.message.id)
    }

    /// Tells workers that the transaction is committed. Without this call they find the messages at their next
    /// poll, after [`idle_poll`](super::Capabilities::idle_poll) at most.
    pub fn notify(&self) {
        let ids: Vec<MessageId> = self.ids().collect();
        if !ids.is_empty() {
            (self.on_pushed)(&self.topic.name, &ids);
            self.log.notify();
        }
    }

    /// For engines: returns the log as the engine's own type. Returns an error if the messages belong in
    /// another store.
    pub fn log<L: Log>(&self) -> Result<&L> {
        downcast_log(&*self.log)
    }

    /// For engines: returns the topic to append to.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// For engines: returns the time at which the draft was made. Messages that are due later must be kept
    /// aside.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// For engines: returns the records to append, none of them [repeatable](Record::repeatable).
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("topic", &self.topic.name).field("records", &self.records).finish()
    }
}

/// A message that a handler holds, and may finish within a transaction of its own. `sawmill::Context` is one.
pub trait Finishable: Send + Sync {
    /// Returns the id that the push returned.
    fn id(&self) -> MessageId;

    /// Returns the group in which the message is handled.
    fn group(&self) -> &GroupName;

    /// Returns the log that contains the message.
    fn log(&self) -> &dyn Log;

    /// Records that the handler has finished this message within a transaction, or that it was finished
    /// before. An exactly-once handler that has not called this may not say that the message is done.
    fn finished(&self);
}

/// Returns a log as an engine's own type. Returns an error if it belongs to another engine.
pub fn downcast_log<L: Log>(log: &dyn Log) -> Result<&L> {
    (log as &dyn Any).downcast_ref().ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            "the messages live in another store than the transaction: use one on the store that Sawmill has open",
        )
    })
}
