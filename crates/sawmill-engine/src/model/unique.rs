//! Unique messages: names of which each belongs to at most one live message of a topic.
//!
//! The names of a topic are kept in the ledger, in a few buckets. Each bucket is one small value, which is
//! changed by compare-and-set. A push first reserves its name for the id of its message, then appends the
//! message under that id, and then marks the name as sure. A push that finds a reservation that is not sure
//! cannot know whether the other pusher died before it appended. It appends its own message under the
//! reserved id, which adds one message at most where the engine can tell. So a name never waits for a pusher
//! that is gone.
//!
//! Workers release a name when its message is settled for good, and only then count the message as settled.
//! If a worker dies in between, the message runs once more under a name that is free. A name that is never
//! released cannot result.
//!
//! The changes of a bucket are pure functions on its value. The crate `sawmill` reads and writes the buckets.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{EntryKey, GroupName, Message, MessageId, Topic, unreadable};
use crate::fault;
use crate::runtime::Timestamp;
use crate::{Error, ErrorKind, Result};

/// The maximum size of the name of a unique message, in bytes.
pub const MAX_UNIQUE_BYTES: usize = 200;

/// The header by which workers recognize a message whose name they must release.
pub(super) const HEADER: &str = "sawmill-unique";
/// The number of ledger entries over which the names of a topic are spread.
pub const BUCKET_COUNT: u64 = 64;
/// The maximum size of a bucket in bytes. It fits into one entry with room to spare.
const BUCKET_BYTES: usize = 480 << 10;

/// The request that a message be the only one with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unique {
    /// The name.
    pub name: String,
    /// The time for which the name is taken; `None` for as long as the message is live.
    pub period: Option<Duration>,
}

impl Unique {
    /// Checks the name, and marks a message whose name must be released when it is settled.
    pub fn mark(&self, message: &mut Message) -> Result<()> {
        let bytes = self.name.len();
        if !(1..=MAX_UNIQUE_BYTES).contains(&bytes) {
            return Err(Error::invalid(format!(
                "the name of a unique message has {bytes} bytes, and must have from 1 to {MAX_UNIQUE_BYTES}: choose \
                 another one, or use a hash of it"
            )));
        }
        if self.period.is_none() {
            message.headers.set(HEADER, self.name.clone());
        }
        Ok(())
    }

    /// Returns the time from which the name is free whatever became of the message. `None` if there is no
    /// such time.
    pub fn until(&self, message: &Message, topic: &Topic, now: Timestamp) -> Option<Timestamp> {
        // Nobody settles messages that are dropped unread.
        let dropped = || message.due.unwrap_or(now).max(now) + topic.retention;
        let period = self.period.map(|period| if fault!(PeriodEndsEarly) { period / 2 } else { period });
        period.map(|period| now + period).or_else(|| topic.drops_unread.then(dropped))
    }
}

impl Message {
    /// Returns the name that must be released when this message is settled.
    pub fn unique_name(&self) -> Option<&str> {
        if self.headers.is_empty() { None } else { self.headers.text(HEADER) }
    }
}

/// A bucket: some of the names of a topic, as they are kept in one entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NameBucket {
    /// The names that are taken, each with the message that has it.
    pub names: BTreeMap<String, Taken>,
}

/// The message that has a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taken {
    /// The id of the message.
    pub id: MessageId,
    /// True if the message is known to be in the log.
    pub sure: bool,
    /// The time from which the name is free whatever became of the message; `None` if there is no such time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// The groups in which the message is settled for good.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub settled: BTreeSet<GroupName>,
}

/// The state of a name, as a push finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// The name belongs to this message: append it.
    Free,
    /// The name belongs to a message that may or may not be in the log: append under its id.
    Doubtful(MessageId),
    /// The name belongs to a message that is in the log.
    There(MessageId),
}

impl Taken {
    fn is_over(&self, now: Timestamp, groups: &[GroupName]) -> bool {
        // A group may have become the last to settle it, because another group was removed since.
        self.until.is_some_and(|until| until <= now && !fault!(PeriodNeverEnds))
            || (!self.settled.is_empty() && self.settled_by(groups))
    }

    fn settled_by(&self, groups: &[GroupName]) -> bool {
        groups.iter().all(|group| self.settled.contains(group))
    }
}

impl NameBucket {
    /// Decodes the bucket in this entry. Returns an empty bucket if there is no entry.
    pub fn decode(key: &EntryKey, value: &[u8]) -> Result<Self> {
        serde_json::from_slice(value).map_err(|error| unreadable(key, error))
    }

    /// Removes the names whose time is over, and encodes the value to store.
    pub fn encode(&mut self, now: Timestamp) -> Result<Bytes> {
        let ends = |until: Timestamp| until <= now && !fault!(PeriodNeverEnds);
        self.names.retain(|_, taken| !taken.until.is_some_and(ends));
        let value = serde_json::to_vec(self).unwrap_or_default();
        match value.len() <= BUCKET_BYTES {
            true => Ok(value.into()),
            false => Err(Error::new(
                ErrorKind::Full,
                "the topic has too many live unique messages: let workers catch up, or make fewer of them unique",
            )),
        }
    }

    /// Returns true if the name belongs to the message with this id.
    pub fn has(&self, name: &str, id: MessageId) -> bool {
        self.names.get(name).is_some_and(|taken| taken.id == id)
    }

    /// Reserves a name for a message, unless it belongs to another one. `groups` are the groups of the topic.
    /// They do not matter as long as no group has settled the message that has the name.
    pub fn reserve(
        &mut self,
        name: &str,
        id: MessageId,
        until: Option<Timestamp>,
        now: Timestamp,
        groups: &[GroupName],
    ) -> Reservation {
        match self.names.get(name).filter(|taken| !taken.is_over(now, groups)) {
            Some(taken) if taken.sure || fault!(ReservedNameIsPushed) => {
                return Reservation::There(taken.id);
            }
            // The reservation comes from a commit whose outcome was unknown.
            Some(taken) if taken.id == id => return Reservation::Free,
            Some(taken) if !fault!(UniqueForgotten) => return Reservation::Doubtful(taken.id),
            _ => {}
        }
        let taken = Taken { id, sure: false, until, settled: BTreeSet::new() };
        self.names.insert(name.to_owned(), taken);
        Reservation::Free
    }

    /// Records that the message is in the log.
    pub fn confirm(&mut self, name: &str, id: MessageId) {
        if let Some(taken) = self.names.get_mut(name).filter(|taken| taken.id == id) {
            taken.sure = true;
        }
    }

    /// Records that the message is settled for good in a group. Once it is settled in all groups, its name is
    /// free.
    pub fn settle(&mut self, name: &str, id: MessageId, group: &GroupName, groups: &[GroupName]) {
        let Some(taken) = self.names.get_mut(name).filter(|taken| taken.id == id) else { return };
        if !taken.sure && fault!(UnsureNameNotFreed) {
            return;
        }
        taken.settled.insert(group.clone());
        if taken.settled_by(groups) {
            self.names.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1000);
    const LATER: Timestamp = Timestamp::from_millis(2000);

    fn id(number: u128) -> MessageId {
        MessageId::from_u128(number)
    }

    fn groups(names: &[&str]) -> Vec<GroupName> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    fn reserve(bucket: &mut NameBucket, number: u128) -> Reservation {
        bucket.reserve("a", id(number), None, NOW, &[])
    }

    #[test]
    fn a_name_is_reserved_then_doubtful_then_sure() {
        let mut bucket = NameBucket::default();
        assert_eq!(reserve(&mut bucket, 1), Reservation::Free);
        assert_eq!(reserve(&mut bucket, 1), Reservation::Free, "its own");
        assert_eq!(reserve(&mut bucket, 2), Reservation::Doubtful(id(1)));
        bucket.confirm("a", id(2));
        assert_eq!(reserve(&mut bucket, 2), Reservation::Doubtful(id(1)), "another's message says nothing");
        bucket.confirm("a", id(1));
        assert_eq!(reserve(&mut bucket, 2), Reservation::There(id(1)));
        assert_eq!(bucket.reserve("b", id(2), None, NOW, &[]), Reservation::Free);
    }

    #[test]
    fn a_name_is_free_when_every_group_has_settled_its_message() {
        let mut bucket = NameBucket::default();
        let (one, both) = (groups(&["g1"]), groups(&["g1", "g2"]));
        reserve(&mut bucket, 1);
        bucket.settle("a", id(9), &both[0], &one);
        assert!(bucket.has("a", id(1)), "another's message");
        bucket.settle("a", id(1), &both[0], &both);
        bucket.settle("a", id(1), &both[0], &both);
        assert_eq!(bucket.reserve("a", id(2), None, NOW, &both), Reservation::Doubtful(id(1)));
        let after = bucket.clone();
        bucket.settle("a", id(1), &both[1], &both);
        assert_eq!(bucket, NameBucket::default());
        // The group that had not settled it is removed.
        let mut bucket = after;
        assert_eq!(bucket.reserve("a", id(2), None, NOW, &one), Reservation::Free);
    }

    #[test]
    fn a_message_that_is_settled_again_does_not_free_the_name_of_another() {
        let mut bucket = NameBucket::default();
        let one = groups(&["g"]);
        reserve(&mut bucket, 1);
        bucket.settle("a", id(1), &one[0], &one);
        reserve(&mut bucket, 2);
        let before = bucket.clone();
        bucket.settle("a", id(1), &one[0], &one);
        bucket.confirm("a", id(1));
        assert_eq!(bucket, before);
    }

    #[test]
    fn a_name_for_a_time_is_free_from_then_on_and_leaves_the_bucket() {
        let mut bucket = NameBucket::default();
        assert_eq!(bucket.reserve("a", id(1), Some(LATER), NOW, &[]), Reservation::Free);
        assert_eq!(bucket.reserve("a", id(2), Some(LATER), NOW, &[]), Reservation::Doubtful(id(1)));
        assert_eq!(bucket.clone().reserve("a", id(2), Some(LATER), LATER, &[]), Reservation::Free);
        bucket.reserve("b", id(3), None, NOW, &[]);
        bucket.encode(NOW).unwrap();
        assert_eq!(bucket.names.len(), 2);
        bucket.encode(LATER).unwrap();
        assert_eq!(bucket.names.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_bucket_is_read_back_and_has_an_end() {
        let key = EntryKey::raw("uniques/t/000");
        let mut bucket = NameBucket::default();
        bucket.reserve("a", id(1), Some(LATER), NOW, &[]);
        bucket.settle("a", id(1), &groups(&["g"])[0], &groups(&["g", "h"]));
        let value = bucket.encode(NOW).unwrap();
        assert_eq!(NameBucket::decode(&key, &value).unwrap(), bucket);
        assert_eq!(NameBucket::decode(&key, b"?").unwrap_err().kind(), ErrorKind::Corrupt);
        for number in 0..2000 {
            bucket.reserve(&format!("{number:0200}"), id(number), None, NOW, &[]);
        }
        assert_eq!(bucket.encode(NOW).unwrap_err().kind(), ErrorKind::Full);
    }
}
