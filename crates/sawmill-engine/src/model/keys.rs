//! Keys of ledger entries. This file lists everything that the ledger stores, and the name of each kind of
//! entry.

use std::fmt;

use super::{GroupName, MessageId, Topic, TopicName};

/// The key of an entry, or a prefix of several keys: parts joined by `/`, made of letters, digits, `.`, `_`
/// and `-`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryKey(String);

impl EntryKey {
    /// Creates a key from its text, for tests of a ledger and for engines that read stored keys. The core
    /// creates its keys with the functions below.
    pub fn raw(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the text of the key.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the last part of the key.
    pub fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// Returns the key of the store's format.
    pub fn format() -> Self {
        Self("store/format".to_owned())
    }

    /// Returns the key of the settings of a group of a topic.
    pub fn group(topic: &Topic, group: &GroupName) -> Self {
        Self(format!("groups/{}/{group}", topic.uid))
    }

    /// Returns the prefix of the settings of all groups of a topic.
    pub fn groups(topic: &Topic) -> Self {
        Self(format!("groups/{}/", topic.uid))
    }

    /// Returns the key of a member of a group.
    pub fn member(group: &GroupName, worker: &str) -> Self {
        Self(format!("members/{group}/{worker}"))
    }

    /// Returns the prefix of all members of a group.
    pub fn members(group: &GroupName) -> Self {
        Self(format!("members/{group}/"))
    }

    /// Returns the prefix of all members of all groups.
    pub fn all_members() -> Self {
        Self("members/".to_owned())
    }

    /// Returns the group of a member, if this is the key of one.
    pub fn group_of_member(&self) -> Option<&str> {
        self.0.strip_prefix("members/")?.split('/').next()
    }

    /// Returns the key of the holder of a name. Only one living worker of a group holds a name at a time.
    pub fn name(group: &GroupName, name: &str) -> Self {
        Self(format!("names/{group}/{name}"))
    }

    /// Returns the key of a group's cursor and claims on one shard.
    pub fn shard(topic: &Topic, group: &GroupName, shard: u16) -> Self {
        Self(format!("shards/{}/{group}/{shard:04}", topic.uid))
    }

    /// Returns the prefix of a group's cursors and claims on all shards of a topic.
    pub fn shards(topic: &Topic, group: &GroupName) -> Self {
        Self(format!("shards/{}/{group}/", topic.uid))
    }

    /// Returns the prefixes of everything that is stored about the topic or lane with this uid.
    pub fn all_of(uid: &str) -> [EntryKey; 7] {
        ["groups", "shards", "duties", "cancels", "pauses", "uniques", "schedules"]
            .map(|kind| Self(format!("{kind}/{uid}/")))
    }

    /// Returns the key of the note that a topic or lane is being deleted, and that everything else about it
    /// must be removed.
    pub fn deletion(topic: &Topic) -> Self {
        Self(format!("deletions/{}/{}", topic.name.base(), topic.uid))
    }

    /// Returns the prefix of all deletions of topics with this name, and of their lanes.
    pub fn deletions(name: &TopicName) -> Self {
        Self(format!("deletions/{}/", name.base()))
    }

    /// Returns the key of the cancellation of a message of a topic.
    pub fn cancel(topic: &Topic, id: MessageId) -> Self {
        Self(format!("cancels/{}/{id}", topic.uid))
    }

    /// Returns the prefix of all cancellations of messages of a topic.
    pub fn cancels(topic: &Topic) -> Self {
        Self(format!("cancels/{}/", topic.uid))
    }

    /// Returns the key of the entry that says whether a group of a topic is paused.
    pub fn pause(topic: &Topic, group: &GroupName) -> Self {
        Self(format!("pauses/{}/{group}", topic.uid))
    }

    /// Returns the prefix of the entries that say which groups of a topic are paused.
    pub fn pauses(topic: &Topic) -> Self {
        Self(format!("pauses/{}/", topic.uid))
    }

    /// Returns the key of one bucket of names of a topic's live unique messages.
    pub fn uniques(topic: &Topic, bucket: u8) -> Self {
        Self(format!("uniques/{}/{bucket:03}", topic.uid))
    }

    /// Returns the prefix of all buckets of names of a topic's live unique messages.
    pub fn all_uniques(topic: &Topic) -> Self {
        Self(format!("uniques/{}/", topic.uid))
    }

    /// Returns the key of a schedule of a topic.
    pub fn schedule(topic: &Topic, name: &str) -> Self {
        Self(format!("schedules/{}/{name}", topic.uid))
    }

    /// Returns the prefix of all schedules of a topic.
    pub fn schedules(topic: &Topic) -> Self {
        Self(format!("schedules/{}/", topic.uid))
    }

    /// Returns the key of a grant, which says what the holder of a secret may do.
    pub fn grant(id: &str) -> Self {
        Self(format!("grants/{id}"))
    }

    /// Returns the prefix of all grants.
    pub fn grants() -> Self {
        Self("grants/".to_owned())
    }

    /// Returns the key of the entry that names the maintenance worker of a topic.
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
