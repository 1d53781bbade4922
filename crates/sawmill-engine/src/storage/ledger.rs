//! The second storage interface: the ledger, which records which worker has done what.
//!
//! A ledger is a small set of named, versioned entries. One operation changes them: compare-and-set on a
//! single entry. All data that must change together, such as a shard's cursor and its claims, is in one
//! entry, because one conditional write is the promise that every engine can keep. Only the core interprets
//! the entries.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::Result;
use crate::storage::{EntryKey, Finding, Notifications};

/// A store of small, versioned entries, which are changed by compare-and-set.
///
/// Only a commit changes or removes an entry. Every call ends within a bounded time. If the store does not
/// answer, the call returns an error or [`Commit::Unknown`].
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// Returns the entry with this key. Every commit that was answered with [`Commit::Done`] before this call
    /// is seen.
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>>;

    /// Returns all entries whose keys begin with this prefix, in ascending order of the bytes of their keys.
    /// The prefix ends with a `/`. Every commit that was answered with [`Commit::Done`] before this call is
    /// seen. The entries may be of slightly different times.
    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>>;

    /// Changes one entry durably, if it is as expected. An error means that nothing was written and nothing
    /// will be. If that is not certain, the answer is [`Commit::Unknown`].
    async fn commit(&self, write: Write) -> Result<Commit>;

    /// Commits like [`commit`](Ledger::commit), but the change need not survive a crash of the whole store.
    /// Such a crash may undo the change, but only together with everything that was written after it. A crash
    /// of the process, or of a worker, undoes nothing. Engines to which this makes no difference commit as
    /// usual.
    async fn commit_lightly(&self, write: Write) -> Result<Commit> {
        self.commit(write).await
    }

    /// Returns hints that some entry may have changed. A hint may be late, lost, or wrong.
    fn entry_notifications(&self) -> Notifications;

    /// Checks the store of the ledger, as [`Log::diagnose`](crate::storage::Log::diagnose) checks that of the
    /// log.
    async fn diagnose(&self, _patience: Duration) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

/// A conditional change of one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The key of the entry.
    pub key: EntryKey,
    /// The version that the entry must have; `None` if it must not exist.
    pub expect: Option<Version>,
    /// The new value, of at most 512 KiB; `None` to delete an entry that exists. The key of a deleted entry
    /// is never used again, so that a version never means two things.
    pub value: Option<Bytes>,
}

/// The outcome of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// The entry was written, as durably as was asked for. This is its version now; for a deleted entry, it is the
    /// last version that it had.
    Done(Version),
    /// The entry was not as expected. Nothing was written.
    Conflict,
    /// No answer came back. The write may have taken effect, may still take effect, or may never do so. It
    /// must not be repeated blindly.
    ///
    /// The same write may be sent again: of two writes that expect the same version, at most one takes
    /// effect.
    Unknown,
}

/// The version of an entry. It grows with every change of the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// An entry, as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: EntryKey,
    /// The version.
    pub version: Version,
    /// The value.
    pub value: Bytes,
}
