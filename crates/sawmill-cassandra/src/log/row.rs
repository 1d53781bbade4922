//! The keys of rows in the log, and their description in segments.

use sawmill_engine::runtime::Timestamp;

/// The two kinds of rows, which lie in different partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// Due when it was pushed; ordered by the time of the push.
    Ready,
    /// Delayed when it was pushed; ordered by due time.
    Aside,
}

impl Kind {
    pub(crate) const BOTH: [Kind; 2] = [Kind::Ready, Kind::Aside];

    pub(crate) fn number(self) -> i8 {
        match self {
            Kind::Ready => 0,
            Kind::Aside => 1,
        }
    }

    pub(crate) fn of(number: i8) -> Option<Self> {
        Self::BOTH.into_iter().find(|kind| kind.number() == number)
    }
}

/// The key of a row within a shard: its time in milliseconds, the time of the push in microseconds, and the
/// store that pushed it. No two rows have the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub(crate) struct RowKey {
    pub(crate) at: i64,
    pub(crate) seq: i64,
    pub(crate) writer: i64,
}

impl RowKey {
    /// Before every row.
    pub(crate) const FIRST: Self = Self { at: -1, seq: -1, writer: i64::MIN };

    /// After every row.
    pub(crate) const LAST: Self = Self { at: i64::MAX, seq: i64::MAX, writer: i64::MAX };

    /// After all rows of this time.
    pub(crate) fn end_of(at: i64) -> Self {
        Self { at, seq: i64::MAX, writer: i64::MAX }
    }
}

/// The entry that names a row in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) kind: Kind,
    pub(crate) key: RowKey,
    /// The number of messages in the row.
    pub(crate) many: u32,
    pub(crate) bytes: u32,
    /// The latest creation time of these messages.
    pub(crate) created: i64,
    /// It was pushed soon after a slow push, whose rows may lie far before it. Not stored in the segment.
    pub(crate) slow: bool,
}

/// Encodes a time.
pub(crate) fn from_time(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Decodes a time.
pub(crate) fn to_time(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or_default())
}
