//! Claims: the record that a worker has taken a block of messages, and which of them are done.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::Progress;
use super::{Position, Span};

/// The fencing number of a claim. Of two claims on one shard, the later one has the greater token. A system
/// that remembers the greatest token that it has seen can therefore refuse a superseded worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a worker: its name and a random part that is new at each start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(String);

impl WorkerId {
    /// Creates the id with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text of the id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A worker's claim on a block of messages of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// The fencing number.
    pub token: Token,
    /// The worker that holds the claim. `None` if the worker gave it back: then no message that is not done
    /// was ever started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<WorkerId>,
    /// The cursor before the block.
    pub from: Position,
    /// The span with which the log reads the block again.
    pub span: Span,
    /// The number of messages in the block.
    pub count: u32,
    /// The messages that need nothing more, by index.
    #[serde(default, skip_serializing_if = "Progress::is_empty")]
    pub done: Progress,
    /// The number of failures of each message that waits in place, by index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<u32, u32>,
    /// The pass over the shard to which the claim belongs: how often the group had been moved by a seek when
    /// it was opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pass: u32,
    /// The number of workers that died while they held the claim.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deaths: u32,
    /// True if the claim was opened under at-most-once: messages that a dead owner has not done must not be
    /// started again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub once: bool,
    /// True if an owner died under at-most-once: messages that are not done are lost, and go to the dead
    /// letters.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lost: bool,
    /// The messages that an owner is known to have started and not done before it died under at-most-once.
    /// They are lost, and the others are not. This is known from a journal.
    #[serde(default, skip_serializing_if = "Progress::is_empty")]
    pub started: Progress,
    /// In [`Format::NEXT`](super::Format::NEXT): the token of the claim when it was first written in that
    /// format.
    #[cfg(any(test, feature = "next-format"))]
    #[doc(hidden)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Token>,
}

impl Claim {
    /// Returns the number of messages that are not done.
    pub fn open(&self) -> u64 {
        u64::from(self.count).saturating_sub(self.done.len())
    }
}

/// Returns true for zero, so that serde skips a field with the default value.
pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// Returns true for false, so that serde skips a field with the default value.
pub(super) fn is_false(flag: &bool) -> bool {
    !*flag
}
