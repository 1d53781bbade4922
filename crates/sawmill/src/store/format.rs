//! The format of an open store: read, checked, and raised once every member understands the next one.
//!
//! [`Format`] explains why no program loses what another one wrote, and why no live worker is locked out.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sawmill_engine::Result;
use sawmill_engine::fault;
use sawmill_engine::model::{Format, Member, ShardState, outdated};
use sawmill_engine::storage::{Commit, Entry, EntryKey, Version};
use serde::{Deserialize, Serialize};

use super::{Backoff, Cell, LivenessTracker, Store, json_cell, remove_silent};

/// The formats as an open store knows them.
pub(super) struct Formats {
    /// The newest format that this program understands.
    understood: AtomicU32,
    /// The store's format, as last read. It never decreases.
    seen: AtomicU32,
}

impl Default for Formats {
    fn default() -> Self {
        Self {
            understood: AtomicU32::new(Format::NEWEST.number()),
            seen: AtomicU32::new(Format::FIRST.number()),
        }
    }
}

/// The ledger's entry of the store's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredFormat {
    format: Format,
    /// The format that was announced, and is not in force yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Format>,
}

json_cell!(shared StoredFormat);

impl Store {
    /// Makes this program understand formats up to this one.
    #[cfg(any(test, feature = "next-format"))]
    pub(crate) fn understand(&self, format: Format) {
        self.formats.understood.store(format.number(), Ordering::Relaxed);
    }

    /// Returns the store's format, as last read. A program must understand it to use the store.
    pub(crate) fn format(&self) -> Format {
        Format::from_number(self.formats.seen.load(Ordering::Relaxed))
    }

    /// Returns the newest format that this program understands.
    pub(crate) fn understood_format(&self) -> Format {
        Format::from_number(self.formats.understood.load(Ordering::Relaxed))
    }

    /// Returns the newest format that this program's member entries declare.
    pub(crate) fn declared_format(&self) -> Format {
        let overstated = u32::from(fault!(OverstatesFormat));
        Format::from_number(self.understood_format().number() + overstated)
    }

    /// Decodes the entry of a shard. Fails if this program does not understand its format.
    pub(crate) fn decode_shard(&self, entry: &Entry) -> Result<ShardState> {
        let mut state = ShardState::decode(&entry.key, &entry.value)?;
        if state.format > self.understood_format() {
            if !fault!(OldRewritesNew) {
                let what = format!("ledger entry {} has", entry.key);
                return Err(outdated(what, state.format, self.understood_format()));
            }
            state.forget_formats();
        }
        Ok(state)
    }

    /// Encodes the state of a shard in the store's format, or in a newer one that the entry has already.
    pub(crate) fn encode_shard(&self, state: &mut ShardState) -> Bytes {
        state.raise(self.format());
        state.encode()
    }

    /// Fails if this program does not understand the store's format.
    pub(crate) async fn check_format(&self) -> Result<()> {
        self.refuse_newer_format(&self.stored_format().await?.1)
    }

    fn refuse_newer_format(&self, stored: &StoredFormat) -> Result<()> {
        match stored.format > self.understood_format() {
            true => Err(outdated("the store has", stored.format, self.understood_format())),
            false => Ok(()),
        }
    }

    /// Checks the format for a worker that has just written its member entry, and withdraws an announced
    /// format that this program does not understand. After `Ok`, the store's format is not raised beyond what
    /// the worker understands while it is a member.
    pub(crate) async fn check_member_format(&self) -> Result<()> {
        let key = EntryKey::format();
        let mut backoff = Backoff::new(self.env(), &key);
        loop {
            let (expect, stored) = self.stored_format().await?;
            self.refuse_newer_format(&stored)?;
            if stored.next.is_none_or(|next| next <= self.understood_format()) {
                return Ok(());
            }
            let mut withdrawn = StoredFormat { next: None, ..stored };
            match self.format_cell().replace(expect, &mut withdrawn).await? {
                Commit::Done(_) => return Ok(()),
                // Another program raised or withdrew it: read again.
                Commit::Conflict => {}
                Commit::Unknown => backoff.doubt(),
            }
            backoff.pause().await?;
        }
    }

    /// Learns the store's format, so that entries are written in it.
    pub(crate) async fn learn_format(&self) -> Result<()> {
        self.stored_format().await.map(|_| ())
    }

    /// Raises the store's format to the newest that this program understands, if every member of every group
    /// understands it. Returns the members that are in the way.
    ///
    /// `tracker` keeps what was seen of members that do not understand it. The silent ones are declared dead
    /// here, since their groups may have no other member to do so.
    pub(crate) async fn raise_format(
        &self,
        tracker: &mut LivenessTracker,
        ttl: Duration,
    ) -> Result<Vec<EntryKey>> {
        loop {
            let (expect, stored) = self.stored_format().await?;
            let target = stored.next.unwrap_or(self.understood_format());
            if target > self.understood_format() || (stored.format >= target && stored.next.is_none()) {
                return Ok(Vec::new());
            }
            // The members must be listed after the announcement was read.
            let old = self.members_older_than(target, tracker, ttl).await?;
            if !old.is_empty() && !fault!(FormatTooSoon) {
                return Ok(old);
            }
            let mut write = match stored.next {
                None => StoredFormat { next: Some(target), ..stored },
                Some(_) => StoredFormat { format: target.max(stored.format), next: None },
            };
            if !matches!(self.format_cell().replace(expect, &mut write).await?, Commit::Done(_)) {
                // Conflict or unknown outcome: the next check reads the entry again.
                return Ok(Vec::new());
            }
            if write.next.is_none() {
                self.saw_format(write.format);
                tracing::info!(format = write.format.number(), "the store's format was raised");
                return Ok(Vec::new());
            }
        }
    }

    /// Lists the living members of all groups that do not understand this format.
    async fn members_older_than(
        &self,
        format: Format,
        tracker: &mut LivenessTracker,
        ttl: Duration,
    ) -> Result<Vec<EntryKey>> {
        let is_old = |entry: &Entry| {
            Member::decode(&entry.key, &entry.value).map_or(Format::FIRST, |member| member.format) < format
        };
        let mut old = self.ledger().list(&EntryKey::all_members()).await?;
        old.retain(is_old);
        let removed = remove_silent(self, tracker, &old, ttl).await?;
        Ok(old.into_iter().map(|entry| entry.key).filter(|key| !removed.contains(key)).collect())
    }

    fn format_cell(&self) -> Cell<'_, StoredFormat> {
        Cell::new(self, EntryKey::format())
    }

    async fn stored_format(&self) -> Result<(Option<Version>, StoredFormat)> {
        let Some((version, stored)) = self.format_cell().read_versioned().await? else {
            return Ok((None, StoredFormat::default()));
        };
        self.saw_format(stored.format);
        Ok((Some(version), stored))
    }

    fn saw_format(&self, format: Format) {
        self.formats.seen.fetch_max(format.number(), Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
