//! Formats: the rules by which programs of two versions share a store without loss of each other's data.
//!
//! Every worker rewrites entries of shards that others have written. If it left out fields that it does not
//! know, they would be lost. So the entry of a shard says in which format it is, and a program refuses a
//! format that is newer than it understands. One entry of the ledger, the store's format, says which format
//! may be written.
//!
//! **No write loses anything.** A program writes an entry in the format of the store as it last saw it, and
//! never in an older one than it has read the entry in. The write names the version that it was made from. So
//! a program that replaces an entry has read it and understood it.
//!
//! **No live worker is left behind.** The store's format is raised in two steps. Step 1 announces the new
//! format. Step 2 lists the members of all groups and makes the new format the store's format, if all of them
//! understand it. A worker that joins writes its member entry first, and reads the store's format then. An
//! old worker that joins meanwhile reads one of three states:
//! - The new format: the worker leaves.
//! - The announcement: the worker withdraws it, and stays. Step 2 and the withdrawal both expect the version
//!   of the announcement, so only one of them succeeds. If step 2 wins, the worker reads the format again,
//!   and leaves.
//! - Neither: the worker has read before the announcement. Its member entry is older than the listing, so
//!   step 2 sees it.
//!
//! Two kinds of program may still be running when the format is raised: a worker that was declared dead, and
//! a version that predates formats. Neither can read an entry in the new format. Both may still write an
//! entry that is in the old format.

use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use super::EntryKey;
use crate::{Error, ErrorKind};

/// The number of a format of stored entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Format(u32);

impl Format {
    /// The format of stores and programs that predate format numbers.
    pub const FIRST: Self = Self(1);
    /// The newest format that this program understands.
    pub const NEWEST: Self = Self(1);
    /// The format after the newest, which only tests use. Its additional fields have no meaning.
    #[cfg(any(test, feature = "next-format"))]
    #[doc(hidden)]
    pub const NEXT: Self = Self(Self::NEWEST.0 + 1);

    /// The newest format that can be decoded at all.
    #[cfg(any(test, feature = "next-format"))]
    pub const DECODED: Self = Self::NEXT;
    /// The newest format that can be decoded at all.
    #[cfg(not(any(test, feature = "next-format")))]
    pub const DECODED: Self = Self::NEWEST;

    /// Returns the format with this number.
    pub const fn from_number(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number of the format.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// Returns true if entries in this format carry no number.
    pub fn is_first(&self) -> bool {
        *self <= Self::FIRST
    }
}

impl Default for Format {
    fn default() -> Self {
        Self::FIRST
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// Makes the error for a format that is newer than this program understands. `what` is the beginning of the
/// message, such as "the store has".
pub fn outdated(what: impl std::fmt::Display, format: Format, understood: Format) -> Error {
    let program = env!("CARGO_PKG_VERSION");
    let what = format!(
        "{what} format {format}, and this program (sawmill {program}) understands formats up to {understood}: upgrade the program"
    );
    Error::new(ErrorKind::Outdated, what)
}

/// Makes the error for an entry that cannot be decoded and that does not matter to other programs: a worker
/// that meets one waits until the entry is gone.
pub fn corrupt(key: &EntryKey, error: serde_json::Error) -> Error {
    let what = format!("ledger entry {key} cannot be decoded: it is damaged, or a newer version wrote it");
    Error::new(ErrorKind::Corrupt, what).caused_by(error)
}

/// Makes the error for an entry that programs rewrite for one another, that has no format, and that cannot be
/// decoded. If it is JSON, a newer program has written it, and this one must not touch it.
pub fn unreadable(key: &EntryKey, error: serde_json::Error) -> Error {
    let kind = match error.classify() {
        Category::Data => ErrorKind::Outdated,
        _ => ErrorKind::Corrupt,
    };
    let program = env!("CARGO_PKG_VERSION");
    let what = format!(
        "ledger entry {key} cannot be decoded by this program (sawmill {program}): upgrade the program if a newer \
         version wrote the entry"
    );
    Error::new(kind, what).caused_by(error)
}
