//! Formats: programs of two versions share a store, and none of them loses what another has written.
//!
//! Every worker rewrites entries of shards that others have written, and one that left out what it does not know would lose it. So
//! the entry of a shard says in which format it is, and a program refuses a format that is newer than it understands. One entry of
//! the ledger, the store's format, says which format may be written.
//!
//! **No write loses anything.** A program writes an entry in the format of the store as it last saw it, and never in an older one
//! than it has read the entry in. The write names the version that it was made from. So whoever replaces an entry has read it, and
//! has understood it.
//!
//! **No live worker is left behind.** The store's format is raised in two steps. Step 1 announces the new format. Step 2 lists the
//! members of all groups and makes the new format the store's format, if all of them understand it. A worker that joins writes its
//! member entry first, and reads the store's format then. An old worker that joins meanwhile reads one of three states:
//! - The new format: the worker leaves.
//! - The announcement: the worker withdraws it, and stays. Step 2 and the withdrawal both expect the version of the announcement, so
//!   only one of them succeeds. If step 2 wins, the worker reads the format again, and leaves.
//! - Neither: the worker has read before the announcement. Its member entry is older than the listing, so step 2 sees it.
//!
//! Two kinds of program may still be running when the format is raised: a worker that was declared dead, and a version that predates
//! formats. Neither can read an entry in the new format. Both may still write an entry that is in the old format.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;

use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Commit, Entry, EntryKey, Version, Write};
use crate::member::{Member, Sightings};
use crate::mill::Sawmill;
use crate::observe;
use crate::planted::{self, Bug};
use crate::shard::ShardState;

/// The number of a format in which entries are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Format(u32);

impl Format {
    /// The format of stores and programs that predate format numbers.
    pub const FIRST: Self = Self(1);
    /// The newest that this program understands.
    pub const NEWEST: Self = Self(1);
    /// The one after it, which only tests use: it has fields that mean nothing.
    #[cfg(any(test, feature = "next-format"))]
    #[doc(hidden)]
    pub const NEXT: Self = Self(Self::NEWEST.0 + 1);

    /// The newest that can be decoded at all.
    #[cfg(any(test, feature = "next-format"))]
    pub(crate) const DECODED: Self = Self::NEXT;
    /// The newest that can be decoded at all.
    #[cfg(not(any(test, feature = "next-format")))]
    pub(crate) const DECODED: Self = Self::NEWEST;

    /// Its number.
    pub fn number(self) -> u32 {
        self.0
    }

    pub(crate) fn is_first(&self) -> bool {
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

/// Error: `what`, such as "the store has", is followed by a format that is newer than this program understands.
pub(crate) fn outdated(what: impl std::fmt::Display, format: Format, understood: Format) -> Error {
    let program = env!("CARGO_PKG_VERSION");
    let what = format!(
        "{what} format {format}, and this program (sawmill {program}) understands formats up to {understood}: upgrade the program"
    );
    Error::new(ErrorKind::Outdated, what)
}

/// The error of an entry that has no format and cannot be decoded. If it is JSON, a newer program has written it.
pub(crate) fn unreadable(key: &EntryKey, error: serde_json::Error) -> Error {
    let kind = match error.classify() {
        Category::Data => ErrorKind::Outdated,
        _ => ErrorKind::Corrupt,
    };
    let program = env!("CARGO_PKG_VERSION");
    let what = format!(
        "ledger entry {key} cannot be decoded by this program (sawmill {program}): upgrade the program if a newer version wrote the entry"
    );
    Error::new(kind, what).caused_by(error)
}

/// What an open store knows of formats.
pub(crate) struct Formats {
    /// The newest that this program understands.
    understood: AtomicU32,
    /// The store's, as it was last seen. It only grows.
    seen: AtomicU32,
}

impl Default for Formats {
    fn default() -> Self {
        Self { understood: AtomicU32::new(Format::NEWEST.0), seen: AtomicU32::new(Format::FIRST.0) }
    }
}

/// The store's format, as its entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFormat {
    format: Format,
    /// The format that was announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Format>,
}

impl Sawmill {
    /// The same store, opened by a program that understands formats up to this one.
    #[cfg(any(test, feature = "next-format"))]
    #[doc(hidden)]
    #[must_use]
    pub fn understanding(self, format: Format) -> Self {
        self.formats().understood.store(format.0, Ordering::Relaxed);
        self
    }

    /// Returns the store's format, as this program last read it. A program must understand this format to use the store.
    pub fn format(&self) -> Format {
        Format(self.formats().seen.load(Ordering::Relaxed))
    }

    /// The newest format that this program understands.
    pub(crate) fn understood(&self) -> Format {
        Format(self.formats().understood.load(Ordering::Relaxed))
    }

    /// The newest format that this program's member entries declare.
    pub(crate) fn declared_format(&self) -> Format {
        let Format(understood) = self.understood();
        Format(if planted::is(Bug::OverstatesFormat) { understood + 1 } else { understood })
    }

    /// What an entry says of a shard.
    pub(crate) fn decode_shard(&self, entry: &Entry) -> Result<ShardState> {
        let mut state = ShardState::decode(&entry.key, &entry.value)?;
        if state.format > self.understood() {
            if !planted::is(Bug::OldRewritesNew) {
                let what = format!("ledger entry {} has", entry.key);
                return Err(outdated(what, state.format, self.understood()));
            }
            state.forget_formats();
        }
        Ok(state)
    }

    /// The value to store for a shard, in the store's format or a newer one that it has already.
    pub(crate) fn encode_shard(&self, state: &mut ShardState) -> Bytes {
        state.raise(self.format());
        state.encode()
    }

    /// An error if the store has a format that this program does not understand.
    pub(crate) async fn check_format(&self) -> Result<()> {
        self.refuse_newer_format(&self.stored_format().await?.1)
    }

    fn refuse_newer_format(&self, stored: &StoredFormat) -> Result<()> {
        match stored.format > self.understood() {
            true => Err(outdated("the store has", stored.format, self.understood())),
            false => Ok(()),
        }
    }

    /// Checks the format for a worker that has just written its member entry, and withdraws an announced format that this program
    /// does not understand. After `Ok`, the store's format is not raised beyond what the worker understands while it is a member.
    pub(crate) async fn check_member_format(&self) -> Result<()> {
        loop {
            let (expect, stored) = self.stored_format().await?;
            self.refuse_newer_format(&stored)?;
            if stored.next.is_none_or(|next| next <= self.understood()) {
                return Ok(());
            }
            match self.write_format(expect, StoredFormat { next: None, ..stored }).await? {
                Commit::Done(_) => return Ok(()),
                // Raised, or taken back by another, or nobody knows: look again.
                Commit::Conflict => {}
                Commit::Unknown => self.pause_briefly().await,
            }
        }
    }

    /// Learns the store's format, so that entries are written in it.
    pub(crate) async fn learn_format(&self) -> Result<()> {
        self.stored_format().await.map(|_| ())
    }

    /// Raises the store's format to the newest that this program understands, if every member of every group understands it.
    /// `sightings` are what was seen of those that do not: the silent among them are declared dead, since there may be nobody
    /// left in their groups to do so. Returns the members that are in the way.
    pub(crate) async fn raise_format(
        &self,
        sightings: &mut Sightings,
        ttl: std::time::Duration,
    ) -> Result<Vec<EntryKey>> {
        loop {
            let (expect, stored) = self.stored_format().await?;
            let target = stored.next.unwrap_or(self.understood());
            if target > self.understood() || (stored.format >= target && stored.next.is_none()) {
                return Ok(Vec::new());
            }
            // The members are listed after the announcement was read.
            let old = self.members_older_than(target, sightings, ttl).await?;
            if !old.is_empty() && !planted::is(Bug::FormatTooSoon) {
                return Ok(old);
            }
            let write = match stored.next {
                None => StoredFormat { next: Some(target), ..stored },
                Some(_) => StoredFormat { format: target.max(stored.format), next: None },
            };
            if !matches!(self.write_format(expect, write).await?, Commit::Done(_)) {
                // Conflict or unknown outcome: the next check reads the entry again.
                return Ok(Vec::new());
            }
            if write.next.is_none() {
                self.saw_format(write.format);
                tracing::info!(format = write.format.0, "the store's format was raised");
                return Ok(Vec::new());
            }
        }
    }

    async fn write_format(&self, expect: Option<Version>, stored: StoredFormat) -> Result<Commit> {
        let value = serde_json::to_vec(&stored).unwrap_or_default();
        self.ledger().commit(Write { key: EntryKey::format(), expect, value: Some(value.into()) }).await
    }

    /// The living members of all groups that do not understand this format.
    async fn members_older_than(
        &self,
        format: Format,
        sightings: &mut Sightings,
        ttl: std::time::Duration,
    ) -> Result<Vec<EntryKey>> {
        let is_old =
            |entry: &Entry| Member::decode(entry).map_or(Format::FIRST, |member| member.format) < format;
        let mut old = self.ledger().list(&EntryKey::all_members()).await?;
        old.retain(is_old);
        for silent in sightings.look(&old, self.env().now(), ttl) {
            let write = Write { key: silent.key.clone(), expect: Some(silent.version), value: None };
            if let Commit::Done(_) = self.ledger().commit(write).await? {
                observe::declared_dead(&silent.key);
                old.retain(|entry| entry.key != silent.key);
            }
        }
        Ok(old.into_iter().map(|entry| entry.key).collect())
    }

    async fn stored_format(&self) -> Result<(Option<Version>, StoredFormat)> {
        let key = EntryKey::format();
        let Some(entry) = self.ledger().get(&key).await? else { return Ok((None, StoredFormat::default())) };
        let stored: StoredFormat =
            serde_json::from_slice(&entry.value).map_err(|error| unreadable(&key, error))?;
        self.saw_format(stored.format);
        Ok((Some(entry.version), stored))
    }

    fn saw_format(&self, format: Format) {
        self.formats().seen.fetch_max(format.0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
