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
//! **No living worker is left behind.** The store's format is raised in two steps: a new format is announced; then the members of
//! all groups are listed, and only if all of them understand it, it becomes the store's. A worker that joins writes its member entry
//! first and reads the store's format then. An old worker that joins meanwhile finds one of three things:
//! - The new format: it leaves.
//! - The announcement: it takes it back, and stays. The second step names the version of the announcement, so that only one of the
//!   two is done. If that is the second step, the worker reads again, and leaves.
//! - Neither: then it has read before the announcement. Its member entry was there before the members were listed, and is seen.
//!
//! A worker that was declared dead, and a program of a version that knew no formats, may be there when the format is raised. They
//! cannot read entries of the new format. Entries that nobody has written in it yet they may write in the old one.

use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

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
    /// That of stores and programs that do not speak of formats.
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

/// The error of a program that is older than something: `what` says what, and that it has `format`.
pub(crate) fn outdated(what: impl std::fmt::Display, format: Format, understood: Format) -> Error {
    let program = env!("CARGO_PKG_VERSION");
    let what = format!(
        "{what} format {format}, and this program (sawmill {program}) understands formats up to {understood}: upgrade it"
    );
    Error::new(ErrorKind::Outdated, what)
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
struct Stored {
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

    /// The store's format, as this program last saw it: what older programs have to understand to use the store.
    pub fn format(&self) -> Format {
        Format(self.formats().seen.load(Ordering::Relaxed))
    }

    /// The newest format that this program understands.
    pub(crate) fn understood(&self) -> Format {
        Format(self.formats().understood.load(Ordering::Relaxed))
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
        self.understand(&self.stored_format().await?.1)
    }

    fn understand(&self, stored: &Stored) -> Result<()> {
        match stored.format > self.understood() {
            true => Err(outdated("the store has", stored.format, self.understood())),
            false => Ok(()),
        }
    }

    /// As [`check_format`](Sawmill::check_format), for a worker whose member entry is written. If it stays, the store does not get
    /// a format that it does not understand.
    pub(crate) async fn check_member_format(&self) -> Result<()> {
        loop {
            let (expect, stored) = self.stored_format().await?;
            self.understand(&stored)?;
            if stored.next.is_none_or(|next| next <= self.understood()) {
                return Ok(());
            }
            match self.write_format(expect, Stored { next: None, ..stored }).await? {
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
    /// left in their groups to do so.
    pub(crate) async fn raise_format(
        &self,
        sightings: &mut Sightings,
        ttl: std::time::Duration,
    ) -> Result<()> {
        loop {
            let (expect, stored) = self.stored_format().await?;
            let target = stored.next.unwrap_or(self.understood());
            if stored.format >= target && stored.next.is_none() {
                return Ok(());
            }
            // The members are listed after the announcement was read.
            if target > self.understood() || !self.all_understand(target, sightings, ttl).await? {
                return Ok(());
            }
            let write = match stored.next {
                None => Stored { next: Some(target), ..stored },
                Some(_) => Stored { format: target.max(stored.format), next: None },
            };
            if !matches!(self.write_format(expect, write).await?, Commit::Done(_)) {
                // Another did something, or nobody knows: the next look tells.
                return Ok(());
            }
            if write.next.is_none() {
                self.saw_format(write.format);
                tracing::info!(format = write.format.0, "the store's format was raised");
                return Ok(());
            }
        }
    }

    async fn write_format(&self, expect: Option<Version>, stored: Stored) -> Result<Commit> {
        let value = serde_json::to_vec(&stored).unwrap_or_default();
        self.ledger().commit(Write { key: EntryKey::format(), expect, value: Some(value.into()) }).await
    }

    /// True if every member of every group understands this format.
    async fn all_understand(
        &self,
        format: Format,
        sightings: &mut Sightings,
        ttl: std::time::Duration,
    ) -> Result<bool> {
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
        Ok(old.is_empty() || planted::is(Bug::FormatTooSoon))
    }

    async fn stored_format(&self) -> Result<(Option<Version>, Stored)> {
        let key = EntryKey::format();
        let Some(entry) = self.ledger().get(&key).await? else { return Ok((None, Stored::default())) };
        let stored: Stored = serde_json::from_slice(&entry.value).map_err(|error| {
            let what = format!("ledger entry {key} does not say which format the store has");
            Error::new(ErrorKind::Corrupt, what).caused_by(error)
        })?;
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
