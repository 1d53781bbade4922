//! Unique messages: a name that one live message of a topic has, and no second.
//!
//! The names of a topic are kept in the ledger, in a few buckets, each one small value that is changed by compare-and-set.
//! A push first reserves its name for the id of its message, then appends the message under that id, then says that it is
//! sure. Whoever finds a reservation that is not sure cannot know whether its pusher died before it appended: they append
//! their own message under the reserved id, which adds one message at most where the engine can tell. So a name never waits
//! for somebody who is gone.
//!
//! Workers give a name back when a message is settled for good, and only then count the message as settled. If they die in
//! between, the message runs once more under a name that is free; a name that is never given back cannot come of it.
//!
//! The changes of a bucket are pure functions on its value; what is sent to the ledger stands below them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::format;
use crate::ledger::{Commit, Entry, EntryKey, Write};
use crate::message::{MAX_UNIQUE_BYTES, Message, MessageId};
use crate::mill::Sawmill;
use crate::planted::{self, Bug};
use crate::push::Checked;
use crate::shard::hash;
use crate::topic::{GroupName, Topic};

/// The header by which workers know a message whose name they have to give back.
pub(crate) const HEADER: &str = "sawmill-unique";
/// Over how many entries of the ledger the names of a topic are spread.
const BUCKETS: u64 = 64;
/// The most bytes of a bucket, so that it fits into one entry with room to spare.
const BUCKET_BYTES: usize = 480 << 10;
/// How often a change is tried against others who change the same bucket.
const TRIES: u32 = 100;
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(200);

/// The wish that a message be the only one with its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unique {
    pub(crate) name: String,
    /// For how long; if not set, as long as the message is live.
    pub(crate) period: Option<Duration>,
}

impl Unique {
    /// Checks the name, and marks a message whose name is to be given back.
    pub(crate) fn mark(&self, message: &mut Message) -> Result<()> {
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

    /// When the name is free whatever became of the message.
    fn until(&self, message: &Message, topic: &Topic, now: Timestamp) -> Option<Timestamp> {
        // What is dropped unread is settled by nobody.
        let dropped = || message.due.unwrap_or(now).max(now) + topic.retention;
        let period =
            self.period.map(|period| if planted::is(Bug::PeriodEndsEarly) { period / 2 } else { period });
        period.map(|period| now + period).or_else(|| topic.drops_unread.then(dropped))
    }
}

impl Message {
    /// The name that is to be given back when this message is settled.
    pub(crate) fn unique_name(&self) -> Option<&str> {
        if self.headers.is_empty() { None } else { self.headers.text(HEADER) }
    }
}

/// Some of the names of a topic, as they are in one entry of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bucket {
    names: BTreeMap<String, Taken>,
}

/// Who has a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Taken {
    id: MessageId,
    /// The message is in the log.
    sure: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    /// The groups in which it is settled for good.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    settled: BTreeSet<GroupName>,
}

/// What a push finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The name is this message's own: append it.
    Free,
    /// The name is that of a message which may be in the log or not: append under its id.
    Doubtful(MessageId),
    /// The name is that of a message which is in the log.
    There(MessageId),
}

impl Taken {
    fn is_over(&self, now: Timestamp, groups: &[GroupName]) -> bool {
        // A group may have been the last to settle it because another was removed since.
        self.until.is_some_and(|until| until <= now && !planted::is(Bug::PeriodNeverEnds))
            || (!self.settled.is_empty() && self.settled_by(groups))
    }

    fn settled_by(&self, groups: &[GroupName]) -> bool {
        groups.iter().all(|group| self.settled.contains(group))
    }
}

impl Bucket {
    fn decode(key: &EntryKey, entry: Option<&Entry>) -> Result<Self> {
        let Some(entry) = entry else { return Ok(Self::default()) };
        serde_json::from_slice(&entry.value).map_err(|error| format::unreadable(key, error))
    }

    /// The value to store, without what is over.
    fn encode(&mut self, now: Timestamp) -> Result<Bytes> {
        let ends = |until: Timestamp| until <= now && !planted::is(Bug::PeriodNeverEnds);
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

    fn has(&self, name: &str, id: MessageId) -> bool {
        self.names.get(name).is_some_and(|taken| taken.id == id)
    }

    /// Reserves a name for a message, unless it is another's. The groups are those of the topic; they do not matter as long
    /// as no group has settled the message that has the name.
    fn reserve(
        &mut self,
        name: &str,
        id: MessageId,
        until: Option<Timestamp>,
        now: Timestamp,
        groups: &[GroupName],
    ) -> Found {
        match self.names.get(name).filter(|taken| !taken.is_over(now, groups)) {
            Some(taken) if taken.sure || planted::is(Bug::ReservedNameIsPushed) => {
                return Found::There(taken.id);
            }
            // From a commit of which it was not known whether it would take effect.
            Some(taken) if taken.id == id => return Found::Free,
            Some(taken) if !planted::is(Bug::UniqueForgotten) => return Found::Doubtful(taken.id),
            _ => {}
        }
        let taken = Taken { id, sure: false, until, settled: BTreeSet::new() };
        self.names.insert(name.to_owned(), taken);
        Found::Free
    }

    /// The message is in the log.
    fn confirm(&mut self, name: &str, id: MessageId) {
        if let Some(taken) = self.names.get_mut(name).filter(|taken| taken.id == id) {
            taken.sure = true;
        }
    }

    /// The message is settled for good in a group; when it is in all of them, its name is free.
    fn settle(&mut self, name: &str, id: MessageId, group: &GroupName, groups: &[GroupName]) {
        let Some(taken) = self.names.get_mut(name).filter(|taken| taken.id == id) else { return };
        if !taken.sure && planted::is(Bug::UnsureNameNotFreed) {
            return;
        }
        taken.settled.insert(group.clone());
        if taken.settled_by(groups) {
            self.names.remove(name);
        }
    }
}

// ── the ledger ──

fn bucket_of(topic: &Topic, name: &str) -> EntryKey {
    EntryKey::uniques(topic, (hash(&[name.as_bytes()]) % BUCKETS) as u8)
}

/// Reserves the names of unique messages, and gives each message the id under which it is to be known. True for those that
/// are not to be appended, because their name is that of a message which is there, or of an earlier one of the same call.
pub(crate) async fn reserve(mill: &Sawmill, topic: &Topic, messages: &mut [Checked]) -> Result<Vec<bool>> {
    let mut buckets: BTreeMap<EntryKey, Vec<usize>> = BTreeMap::new();
    let mut firsts: BTreeMap<String, usize> = BTreeMap::new();
    let mut seconds = Vec::new();
    for (nth, checked) in messages.iter().enumerate() {
        let Some(unique) = &checked.unique else { continue };
        match firsts.get(&unique.name) {
            Some(first) => seconds.push((nth, *first)),
            None => {
                firsts.insert(unique.name.clone(), nth);
                buckets.entry(bucket_of(topic, &unique.name)).or_default().push(nth);
            }
        }
    }
    let mut is_there = vec![false; messages.len()];
    for (key, wanted) in buckets {
        reserve_in(mill, topic, &key, &wanted, messages).await?.into_iter().zip(&wanted).for_each(
            |(found, nth)| match found {
                Found::Free => {}
                Found::Doubtful(id) => messages[*nth].message.id = id,
                Found::There(id) => (messages[*nth].message.id, is_there[*nth]) = (id, true),
            },
        );
    }
    for (second, first) in seconds {
        (messages[second].message.id, is_there[second]) = (messages[first].message.id, true);
    }
    Ok(is_there)
}

/// Reserves the wanted names of one bucket.
async fn reserve_in(
    mill: &Sawmill,
    topic: &Topic,
    key: &EntryKey,
    wanted: &[usize],
    messages: &mut [Checked],
) -> Result<Vec<Found>> {
    let mut unsure = None;
    let mut pause = Pause::new(mill);
    loop {
        let now = mill.env().wall();
        let entry = mill.ledger().get(key).await?;
        let expect = entry.as_ref().map(|entry| entry.version);
        let mut bucket = Bucket::decode(key, entry.as_ref())?;
        if unsure.is_some_and(|unsure| unsure != expect) {
            // If that commit took effect and its names are gone again, messages have come and gone under these ids.
            for nth in wanted {
                let Checked { message, unique: Some(unique), .. } = &mut messages[*nth] else { continue };
                if !bucket.has(&unique.name, message.id) {
                    message.id = mill.new_ids(1).first().copied().unwrap_or(message.id);
                }
            }
        }
        let uniques =
            || wanted.iter().filter_map(|nth| messages[*nth].unique.as_ref().map(|u| (u, &messages[*nth])));
        let is_settled = |name: &str| bucket.names.get(name).is_some_and(|taken| !taken.settled.is_empty());
        let groups = match uniques().any(|(unique, _)| is_settled(&unique.name)) {
            true => mill.groups_of(topic).await?,
            false => Vec::new(),
        };
        let before = bucket.clone();
        let mut found = Vec::new();
        for (unique, Checked { message, .. }) in uniques() {
            let until = unique.until(message, topic, now);
            found.push(bucket.reserve(&unique.name, message.id, until, now, &groups));
        }
        if bucket == before {
            return Ok(found);
        }
        let write = Write { key: key.clone(), expect, value: Some(bucket.encode(now)?) };
        match mill.ledger().commit(write).await? {
            Commit::Done(_) => return Ok(found),
            Commit::Conflict => {}
            Commit::Unknown => unsure = Some(expect),
        }
        pause.next().await?;
    }
}

/// Says that messages are in the log. What cannot be said now costs the next push of that name an append more.
pub(crate) async fn confirm(mill: &Sawmill, topic: &Topic, messages: &[(String, MessageId)]) {
    for (key, names) in by_bucket(topic, messages.iter().map(|(name, id)| (name.as_str(), *id))) {
        let confirmed =
            change(mill, &key, |bucket| names.iter().for_each(|(name, id)| bucket.confirm(name, *id)));
        if let Err(error) = confirmed.await {
            tracing::debug!(%error, %key, "unique messages are pushed, but not marked as sure");
        }
    }
}

/// Gives back the names of messages that a group has settled for good.
pub(crate) async fn settle(
    mill: &Sawmill,
    topic: &Topic,
    group: &GroupName,
    messages: impl Iterator<Item = (&str, MessageId)>,
) -> Result<()> {
    let groups = mill.groups_of(topic).await?;
    for (key, names) in by_bucket(topic, messages) {
        change(mill, &key, |bucket| {
            names.iter().for_each(|(name, id)| bucket.settle(name, *id, group, &groups));
        })
        .await?;
    }
    Ok(())
}

/// Gives back all names that a group keeps taken: a person sent it elsewhere, and which messages it will never settle cannot
/// be told.
pub(crate) async fn settle_all(mill: &Sawmill, topic: &Topic, group: &GroupName) -> Result<()> {
    let entries = mill.ledger().list(&EntryKey::all_uniques(topic)).await?;
    if entries.is_empty() {
        return Ok(());
    }
    let groups = mill.groups_of(topic).await?;
    for entry in entries {
        change(mill, &entry.key, |bucket| {
            let live = bucket.names.iter().filter(|(_, taken)| taken.until.is_none());
            let live: Vec<_> = live.map(|(name, taken)| (name.clone(), taken.id)).collect();
            live.iter().for_each(|(name, id)| bucket.settle(name, *id, group, &groups));
        })
        .await?;
    }
    Ok(())
}

fn by_bucket<'a>(
    topic: &Topic,
    messages: impl Iterator<Item = (&'a str, MessageId)>,
) -> BTreeMap<EntryKey, Vec<(&'a str, MessageId)>> {
    let mut buckets: BTreeMap<EntryKey, Vec<(&str, MessageId)>> = BTreeMap::new();
    for (name, id) in messages {
        buckets.entry(bucket_of(topic, name)).or_default().push((name, id));
    }
    buckets
}

/// Changes a bucket by something that may be done twice, until that is in the ledger or nothing is left to change.
async fn change(mill: &Sawmill, key: &EntryKey, change: impl Fn(&mut Bucket)) -> Result<()> {
    let mut pause = Pause::new(mill);
    loop {
        let entry = mill.ledger().get(key).await?;
        let mut bucket = Bucket::decode(key, entry.as_ref())?;
        let before = bucket.clone();
        change(&mut bucket);
        if bucket == before {
            return Ok(());
        }
        let value = Some(bucket.encode(mill.env().wall())?);
        let write = Write { key: key.clone(), expect: entry.map(|entry| entry.version), value };
        if let Commit::Done(_) = mill.ledger().commit(write).await? {
            return Ok(());
        }
        pause.next().await?;
    }
}

/// The pauses between tries, each longer than the one before.
struct Pause<'a> {
    mill: &'a Sawmill,
    tries: u32,
    next: Duration,
}

impl<'a> Pause<'a> {
    fn new(mill: &'a Sawmill) -> Self {
        Self { mill, tries: 0, next: FIRST_PAUSE }
    }

    async fn next(&mut self) -> Result<()> {
        self.tries += 1;
        if self.tries >= TRIES {
            let what = "too many change the names of unique messages at the same time: try again later";
            return Err(Error::new(ErrorKind::Unavailable, what));
        }
        let env = self.mill.env();
        env.sleep(env.dice().jitter(self.next)).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        Ok(())
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

    fn reserve(bucket: &mut Bucket, number: u128) -> Found {
        bucket.reserve("a", id(number), None, NOW, &[])
    }

    #[test]
    fn a_name_is_reserved_then_doubtful_then_sure() {
        let mut bucket = Bucket::default();
        assert_eq!(reserve(&mut bucket, 1), Found::Free);
        assert_eq!(reserve(&mut bucket, 1), Found::Free, "its own");
        assert_eq!(reserve(&mut bucket, 2), Found::Doubtful(id(1)));
        bucket.confirm("a", id(2));
        assert_eq!(reserve(&mut bucket, 2), Found::Doubtful(id(1)), "another's message says nothing");
        bucket.confirm("a", id(1));
        assert_eq!(reserve(&mut bucket, 2), Found::There(id(1)));
        assert_eq!(bucket.reserve("b", id(2), None, NOW, &[]), Found::Free);
    }

    #[test]
    fn a_name_is_free_when_every_group_has_settled_its_message() {
        let mut bucket = Bucket::default();
        let (one, both) = (groups(&["g1"]), groups(&["g1", "g2"]));
        reserve(&mut bucket, 1);
        bucket.settle("a", id(9), &both[0], &one);
        assert!(bucket.has("a", id(1)), "another's message");
        bucket.settle("a", id(1), &both[0], &both);
        bucket.settle("a", id(1), &both[0], &both);
        assert_eq!(bucket.reserve("a", id(2), None, NOW, &both), Found::Doubtful(id(1)));
        let after = bucket.clone();
        bucket.settle("a", id(1), &both[1], &both);
        assert_eq!(bucket, Bucket::default());
        // The group that was waited for is removed.
        let mut bucket = after;
        assert_eq!(bucket.reserve("a", id(2), None, NOW, &one), Found::Free);
    }

    #[test]
    fn a_message_that_is_settled_again_does_not_free_the_name_of_another() {
        let mut bucket = Bucket::default();
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
        let mut bucket = Bucket::default();
        assert_eq!(bucket.reserve("a", id(1), Some(LATER), NOW, &[]), Found::Free);
        assert_eq!(bucket.reserve("a", id(2), Some(LATER), NOW, &[]), Found::Doubtful(id(1)));
        assert_eq!(bucket.clone().reserve("a", id(2), Some(LATER), LATER, &[]), Found::Free);
        bucket.reserve("b", id(3), None, NOW, &[]);
        bucket.encode(NOW).unwrap();
        assert_eq!(bucket.names.len(), 2);
        bucket.encode(LATER).unwrap();
        assert_eq!(bucket.names.keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_bucket_is_read_back_and_has_an_end() {
        let key = EntryKey::raw("uniques/t/000");
        let mut bucket = Bucket::default();
        bucket.reserve("a", id(1), Some(LATER), NOW, &[]);
        bucket.settle("a", id(1), &groups(&["g"])[0], &groups(&["g", "h"]));
        let value = bucket.encode(NOW).unwrap();
        let entry = Entry { key: key.clone(), version: crate::ledger::Version(1), value };
        assert_eq!(Bucket::decode(&key, Some(&entry)).unwrap(), bucket);
        let broken = Entry { value: Bytes::from_static(b"?"), ..entry };
        assert_eq!(Bucket::decode(&key, Some(&broken)).unwrap_err().kind(), ErrorKind::Corrupt);
        for number in 0..2000 {
            bucket.reserve(&format!("{number:0200}"), id(number), None, NOW, &[]);
        }
        assert_eq!(bucket.encode(NOW).unwrap_err().kind(), ErrorKind::Full);
    }
}
