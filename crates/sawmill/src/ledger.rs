//! The second seam: who has done what.
//!
//! A ledger is a small set of named, versioned entries, and one way to change them: compare-and-set on a single entry.
//! All that must change together (a shard's cursor and its claims) lives in one entry, because one conditional write is
//! the promise that every engine can keep. What the entries mean is the core's business.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use crate::checkup::Finding;
use crate::error::Result;
use crate::log::Hints;
use crate::message::MessageId;
use crate::topic::{GroupName, Topic, TopicName};

/// Who has done what: small entries, versioned, changed by compare-and-set.
///
/// An entry changes and vanishes by a commit alone. Every call ends within a bounded time; a store that does not answer is
/// an error, or [`Commit::Unknown`].
#[async_trait]
pub trait Ledger: Send + Sync + 'static {
    /// The entry with this key. Every commit that was answered with [`Commit::Done`] before this call is seen.
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>>;

    /// All entries whose keys begin with this prefix, which ends with a `/`, ascending by the bytes of their keys. Every commit that was answered with
    /// [`Commit::Done`] before this call is seen; entries may be of slightly different times.
    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>>;

    /// Changes one entry if it is as expected, durably. An error means that nothing was and will be written; when that
    /// is not certain, the answer is [`Commit::Unknown`].
    async fn commit(&self, write: Write) -> Result<Commit>;

    /// As [`commit`](Ledger::commit), for a change that need not outlive a crash of the whole store: that may undo it, but
    /// only together with everything that was written after it. A crash of the process, or of a worker, undoes nothing.
    /// Engines to which it makes no difference commit as usual.
    async fn commit_lightly(&self, write: Write) -> Result<Commit> {
        self.commit(write).await
    }

    /// Hints that some entry may have changed. A hint may be late, lost, or wrong.
    fn watch(&self) -> Hints;

    /// As [`Log::check_up`](crate::log::Log::check_up), for where the ledger is.
    async fn check_up(&self, _patience: Duration) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

/// One conditional change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Which entry.
    pub key: EntryKey,
    /// The version it must have; `None` if it must not exist.
    pub expect: Option<Version>,
    /// Its new value, of 512 KiB at most; `None` to delete an entry that exists. The key of a deleted entry is never used
    /// again, so that a version never means two things.
    pub value: Option<Bytes>,
}

/// How a commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Commit {
    /// It is written, durably, and this is the entry's version now (of a deleted entry: the last it had).
    Done(Version),
    /// The entry was not as expected. Nothing was written.
    Conflict,
    /// No answer came back: it may be written already, may still be, or never. Not to be repeated blindly.
    ///
    /// The same write may be sent again: of two writes that expect the same version at most one takes effect.
    Unknown,
}

/// An entry's version. It grows with every change of the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// An entry as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub key: EntryKey,
    /// Its version.
    pub version: Version,
    /// Its value.
    pub value: Bytes,
}

/// The name of an entry, or the beginning of several names: parts joined by `/`, of letters, digits, `.`, `_`, `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey(String);

impl EntryKey {
    /// A key of one's own, for trying out a ledger. The core makes its keys by the functions below.
    pub fn raw(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last part of the key.
    pub fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// The format of the store.
    pub fn format() -> Self {
        Self("store/format".to_owned())
    }

    /// The settings of a group of a topic.
    pub fn group(topic: &Topic, group: &GroupName) -> Self {
        Self(format!("groups/{}/{group}", topic.uid))
    }

    /// Before the settings of all groups of a topic.
    pub fn groups(topic: &Topic) -> Self {
        Self(format!("groups/{}/", topic.uid))
    }

    /// A member of a group.
    pub fn member(group: &GroupName, worker: &str) -> Self {
        Self(format!("members/{group}/{worker}"))
    }

    /// Before all members of a group.
    pub fn members(group: &GroupName) -> Self {
        Self(format!("members/{group}/"))
    }

    /// Before all members of all groups.
    pub fn all_members() -> Self {
        Self("members/".to_owned())
    }

    /// Who has a name that one living worker of a group has at a time.
    pub fn name(group: &GroupName, name: &str) -> Self {
        Self(format!("names/{group}/{name}"))
    }

    /// The cursor and the claims of a group on one shard.
    pub fn shard(topic: &Topic, group: &GroupName, shard: u16) -> Self {
        Self(format!("shards/{}/{group}/{shard:04}", topic.uid))
    }

    /// Before the cursors and claims of a group on all shards of a topic.
    pub fn shards(topic: &Topic, group: &GroupName) -> Self {
        Self(format!("shards/{}/{group}/", topic.uid))
    }

    /// Before everything that is kept about the topic or lane with this uid.
    pub fn all_of(uid: &str) -> [EntryKey; 7] {
        ["groups", "shards", "duties", "cancels", "pauses", "uniques", "schedules"]
            .map(|kind| Self(format!("{kind}/{uid}/")))
    }

    /// A topic or a lane that is being deleted: what else is kept about it is to go.
    pub fn deletion(topic: &Topic) -> Self {
        Self(format!("deletions/{}/{}", topic.name.base(), topic.uid))
    }

    /// Before all deletions of topics of this name, and of their lanes.
    pub fn deletions(name: &TopicName) -> Self {
        Self(format!("deletions/{}/", name.base()))
    }

    /// A message of a topic that was cancelled.
    pub fn cancel(topic: &Topic, id: MessageId) -> Self {
        Self(format!("cancels/{}/{id}", topic.uid))
    }

    /// Before all messages of a topic that were cancelled.
    pub fn cancels(topic: &Topic) -> Self {
        Self(format!("cancels/{}/", topic.uid))
    }

    /// Whether a group of a topic is paused.
    pub fn pause(topic: &Topic, group: &GroupName) -> Self {
        Self(format!("pauses/{}/{group}", topic.uid))
    }

    /// Before what says which groups of a topic are paused.
    pub fn pauses(topic: &Topic) -> Self {
        Self(format!("pauses/{}/", topic.uid))
    }

    /// Some of the names of a topic's live unique messages.
    pub fn uniques(topic: &Topic, bucket: u8) -> Self {
        Self(format!("uniques/{}/{bucket:03}", topic.uid))
    }

    /// Before the names of all of a topic's live unique messages.
    pub fn all_uniques(topic: &Topic) -> Self {
        Self(format!("uniques/{}/", topic.uid))
    }

    /// A schedule of a topic.
    pub fn schedule(topic: &Topic, name: &str) -> Self {
        Self(format!("schedules/{}/{name}", topic.uid))
    }

    /// Before all schedules of a topic.
    pub fn schedules(topic: &Topic) -> Self {
        Self(format!("schedules/{}/", topic.uid))
    }

    /// What the holder of a secret may do.
    pub fn grant(id: &str) -> Self {
        Self(format!("grants/{id}"))
    }

    /// Before all that says what holders of secrets may do.
    pub fn grants() -> Self {
        Self("grants/".to_owned())
    }

    /// Who looks after a topic.
    pub fn duty(topic: &Topic) -> Self {
        Self(format!("duties/{}/keeper", topic.uid))
    }
}

impl fmt::Debug for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for EntryKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
