//! The observer interface: every effect on the store at the moment it happens, whether or not a caller learns
//! of it.

use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Entry, EntryKey, Version};
use sawmill::{Message, Timestamp};

use crate::control::NodeId;

/// Observes the store itself, not the answers that nodes get.
pub trait Observer: Send + Sync {
    /// Handles an event that has just happened. May query the store.
    fn saw(&self, at: Duration, event: &Event<'_>);
}

/// An effect on the store.
#[derive(Debug)]
pub enum Event<'a> {
    /// A ledger entry changed. For a member that left or was declared dead, the new value is `None`.
    Committed {
        /// The node that sent the write.
        node: NodeId,
        /// The key of the entry.
        key: &'a EntryKey,
        /// The entry before; `None` if it is new.
        old: Option<&'a Entry>,
        /// Its version now; the last version of a deleted entry.
        version: Version,
        /// Its value now; `None` if it is deleted.
        value: Option<&'a Bytes>,
        /// True if the sender had already got an unknown outcome.
        late: bool,
    },
    /// A write was refused because the entry was not as expected.
    Refused {
        /// The node that sent the write.
        node: NodeId,
        /// The key of the entry.
        key: &'a EntryKey,
        /// The version that the write expected.
        expected: Option<Version>,
        /// The version that the entry has.
        found: Option<Version>,
    },
    /// A message became readable.
    Readable {
        /// The topic.
        topic: &'a Topic,
        /// The shard.
        shard: u16,
        /// Its number in the shard, from which its position is made.
        number: u64,
        /// The message.
        message: &'a Message,
    },
    /// A message is in the log, but not readable before its promotion.
    KeptAside {
        /// The topic.
        topic: &'a Topic,
        /// The shard it will be in.
        shard: u16,
        /// When it is due.
        due: Timestamp,
        /// The message.
        message: &'a Message,
    },
    /// A message was dropped from the log.
    Trimmed {
        /// The topic.
        topic: &'a Topic,
        /// The shard.
        shard: u16,
        /// The number it had in the shard.
        number: u64,
        /// The message.
        message: &'a Message,
    },
    /// Everything written until now is durable: a crash of the store does not undo it. Sent only if something
    /// was not durable before.
    Durable,
    /// The store has crashed and undone what was not durable.
    StoreCrashed {
        /// The entries that changed, as they are now.
        undone: &'a [(EntryKey, Option<Entry>)],
    },
    /// A topic and all its messages were removed.
    TopicDeleted {
        /// The topic.
        topic: &'a Topic,
    },
}
