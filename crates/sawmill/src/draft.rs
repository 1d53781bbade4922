//! Drafts and finishes: what a user writes within a transaction of their own, where the engine can.
//!
//! The core checks, names and places messages, and knows who may say that one is done. Writing it is the engine's, in its own
//! functions (`push_within`, `finish_within`), because what a transaction is only its driver knows.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::handler::Context;
use crate::log::{Log, Record};
use crate::message::{Message, MessageId, Push};
use crate::mill::Sawmill;
use crate::topic::Topic;
use crate::worker::base_name;

/// Messages that are checked and have their ids, but are in no log yet. To be written within a transaction of one's own, by
/// the `push_within` of the engine: they exist when that is committed, and do not when it is rolled back.
#[must_use = "a draft is not pushed: write it with the engine's `push_within`"]
pub struct Draft {
    mill: Sawmill,
    topic: Topic,
    now: Timestamp,
    records: Vec<Record>,
}

impl Sawmill {
    /// Messages for a transaction of one's own, to be written with the `push_within` of the engine: an order and its e-mail
    /// in one commit.
    ///
    /// [Unique](Push::unique) messages cannot be drafted, nor those that [follow](Push::follows) others: make a column of your
    /// own unique instead.
    pub async fn draft<M: Into<Push>>(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Draft> {
        let name = base_name(topic)?;
        let messages: Vec<Push> = messages.into_iter().map(Into::into).collect();
        let (ids, now) = (self.new_ids(messages.len()), self.env().wall());
        // Not from the cache: a topic that is gone could only be noticed within the transaction.
        let topic = self.find(&name).await?;
        // Those without a key stay together, so that few shards are held by a transaction that takes its time.
        let keyless = (self.next_shard() % usize::from(topic.shards)) as u16;
        let mut records = Vec::with_capacity(messages.len());
        for (push, id) in messages.into_iter().zip(ids) {
            let checked = self.check(push, id, now)?;
            if checked.unique.is_some() || checked.repeated {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "a message that is unique, or follows another, cannot be pushed within a transaction, which may be \
                     rolled back: push it by itself, or make a column of your own unique",
                ));
            }
            let shard =
                checked.message.key.as_deref().map_or(keyless, |key| self.log().shard_of(key, topic.shards));
            records.push(Record::once(shard, checked.message));
        }
        Ok(Draft { mill: self.clone(), topic, now, records })
    }
}

impl Draft {
    /// The ids of the messages, in their order.
    pub fn ids(&self) -> impl Iterator<Item = MessageId> {
        self.records.iter().map(|record| record.message.id)
    }

    /// Says that the transaction is committed, so that workers need not find out by themselves, which takes them up to
    /// the time between two [looks](crate::Capabilities::idle_poll).
    pub fn announce(&self) {
        let ids: Vec<MessageId> = self.ids().collect();
        if !ids.is_empty() {
            self.mill.door().pushed(&self.topic.name, &ids);
            self.mill.log().announce();
        }
    }

    /// For engines: their own log, in which it is to be written; an error if its messages live elsewhere.
    pub fn log<L: Log>(&self) -> Result<&L> {
        own(self.mill.log())
    }

    /// For engines: the topic to append to.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// For engines: when it was made. What is due later is to be kept aside.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// For engines: what is to be appended, none of it [repeatable](Record::repeatable).
    pub fn records(&self) -> &[Record] {
        &self.records
    }
}

impl fmt::Debug for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Draft").field("topic", &self.topic.name).field("records", &self.records).finish()
    }
}

impl Context {
    /// For engines: their own log, in which this message lives; an error if it lives elsewhere.
    pub fn log<L: Log>(&self) -> Result<&L> {
        own(self.source.site.mill.log())
    }

    /// For engines: notes that the handler has finished this message within a transaction, or that it was finished
    /// before. Under [exactly-once](crate::Delivery::ExactlyOnce) a handler that has not may not say that it is done.
    pub fn finished(&self) {
        self.source.site.finishes.add(&self.message);
    }
}

/// The log as the engine's own.
fn own<L: Log>(log: &dyn Log) -> Result<&L> {
    (log as &dyn Any).downcast_ref().ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            "the messages live in another store than the transaction: use one on the store that Sawmill has open",
        )
    })
}

/// The messages of a worker whose handlers run now and have finished them within a transaction.
#[derive(Default)]
pub(crate) struct Finishes(Mutex<HashSet<MessageId>>);

impl Finishes {
    fn held(&self) -> MutexGuard<'_, HashSet<MessageId>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn add(&self, message: &Message) {
        self.held().insert(message.id);
    }

    /// True if this message was finished. It is forgotten.
    pub(crate) fn take(&self, message: &Message) -> bool {
        self.held().remove(&message.id)
    }
}
