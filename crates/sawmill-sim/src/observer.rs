//! What a checker sees: every effect on the store, at the moment it happens, whether or not anybody was told.

use std::time::Duration;

use bytes::Bytes;
use sawmill::Message;
use sawmill::clock::Timestamp;
use sawmill::ledger::{Entry, EntryKey, Version};
use sawmill::topic::Topic;

use crate::control::NodeId;

/// Somebody who watches the store itself, not the answers that nodes get.
pub trait Observer: Send + Sync {
    /// This has just happened. The store can be looked at from here.
    fn saw(&self, at: Duration, event: &Event<'_>);
}

/// An effect on the store.
#[derive(Debug)]
pub enum Event<'a> {
    /// An entry of the ledger was changed. A member that left or was declared dead is an entry without a new value.
    Committed {
        /// Who sent the write.
        node: NodeId,
        /// Which entry.
        key: &'a EntryKey,
        /// The entry before; `None` if it is new.
        old: Option<&'a Entry>,
        /// Its version now; of a deleted entry, the last it had.
        version: Version,
        /// Its value now; `None` if it is deleted.
        value: Option<&'a Bytes>,
        /// True if the sender had already been told that the outcome is unknown.
        late: bool,
    },
    /// A write was refused because the entry was not as expected.
    Refused {
        /// Who sent the write.
        node: NodeId,
        /// Which entry.
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
        /// Its number in the shard: what its position is made from.
        number: u64,
        /// The message.
        message: &'a Message,
    },
    /// A message is in the log, and not readable before it is promoted.
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
    /// All that was written until now lasts: a crash of the store does not undo it. Told only if something did not last yet.
    Lasting,
    /// The store has crashed, and has undone what did not last yet.
    StoreCrashed {
        /// The entries that changed by it, as they are now.
        undone: &'a [(EntryKey, Option<Entry>)],
    },
    /// A topic was removed, and all its messages with it.
    TopicDeleted {
        /// The topic.
        topic: &'a Topic,
    },
}
