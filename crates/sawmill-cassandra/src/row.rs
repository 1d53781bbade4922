//! Where a row of the log is, and what is known of it without its messages.

use sawmill::clock::Timestamp;

/// Which rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    /// What was due when it was pushed, by the time of the push.
    Ready,
    /// What was not, by the time at which it is due.
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

/// The place of a row within a shard: its time in milliseconds; when it was pushed, in microseconds; and by whom. No two rows have the
/// same.
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

/// A row as it is named in a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) kind: Kind,
    pub(crate) key: RowKey,
    /// How many messages it has.
    pub(crate) many: u32,
    pub(crate) bytes: u32,
    /// When the last of them was created.
    pub(crate) created: i64,
    /// It was pushed soon after a push that took long: what that one has pushed may be far before it. Known only until it is named.
    pub(crate) slow: bool,
}

/// A time as it is stored.
pub(crate) fn from_time(time: Timestamp) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// A time that was stored.
pub(crate) fn to_time(millis: i64) -> Timestamp {
    Timestamp::from_millis(u64::try_from(millis).unwrap_or_default())
}
