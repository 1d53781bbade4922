//! The names of unique messages: reserved, confirmed and released in the ledger.
//!
//! [`NameBucket`] has the rules. This file applies them to the entries of a topic.

use std::collections::BTreeMap;

use bytes::Bytes;
use sawmill_engine::Result;
use sawmill_engine::model::{BUCKET_COUNT, GroupName, MessageId, NameBucket, Reservation, Topic, hash};
use sawmill_engine::storage::{Commit, Entry, EntryKey};

use super::push::CheckedPush;
use super::{Backoff, Cell, CellValue, Edit, Store};

impl CellValue for NameBucket {
    fn decode(_: &Store, entry: &Entry) -> Result<Self> {
        Self::decode(&entry.key, &entry.value)
    }

    fn encode(&mut self, store: &Store) -> Result<Bytes> {
        self.encode(store.env().wall())
    }
}

fn bucket_of(topic: &Topic, name: &str) -> EntryKey {
    EntryKey::uniques(topic, (hash(&[name.as_bytes()]) % BUCKET_COUNT) as u8)
}

/// Reserves the names of unique messages, and gives each message its final id. Returns true for each message
/// that must not be appended, because its name is taken by a present message or by an earlier one of the same
/// call.
pub(crate) async fn reserve(store: &Store, topic: &Topic, messages: &mut [CheckedPush]) -> Result<Vec<bool>> {
    let mut buckets: BTreeMap<EntryKey, Vec<usize>> = BTreeMap::new();
    let mut firsts: BTreeMap<String, usize> = BTreeMap::new();
    let mut repeats = Vec::new();
    for (nth, checked) in messages.iter().enumerate() {
        let Some(unique) = &checked.unique else { continue };
        match firsts.get(&unique.name) {
            Some(first) => repeats.push((nth, *first)),
            None => {
                firsts.insert(unique.name.clone(), nth);
                buckets.entry(bucket_of(topic, &unique.name)).or_default().push(nth);
            }
        }
    }
    let mut is_there = vec![false; messages.len()];
    for (key, wanted) in buckets {
        reserve_in(store, topic, &key, &wanted, messages).await?.into_iter().zip(&wanted).for_each(
            |(found, nth)| match found {
                Reservation::Free => {}
                Reservation::Doubtful(id) => messages[*nth].message.id = id,
                Reservation::There(id) => (messages[*nth].message.id, is_there[*nth]) = (id, true),
            },
        );
    }
    for (repeat, first) in repeats {
        (messages[repeat].message.id, is_there[repeat]) = (messages[first].message.id, true);
    }
    Ok(is_there)
}

/// Reserves the wanted names of one bucket.
async fn reserve_in(
    store: &Store,
    topic: &Topic,
    key: &EntryKey,
    wanted: &[usize],
    messages: &mut [CheckedPush],
) -> Result<Vec<Reservation>> {
    let cell = Cell::<NameBucket>::new(store, key.clone());
    let mut backoff = Backoff::new(store.env(), key);
    // The version that the last try with an unknown outcome expected.
    let mut unknown = None;
    loop {
        let now = store.env().wall();
        let (expect, mut bucket) = match cell.read_versioned().await? {
            Some((version, bucket)) => (Some(version), bucket),
            None => (None, NameBucket::default()),
        };
        if unknown.is_some_and(|unknown| unknown != expect) {
            // If that commit took effect and its names are free again, these ids have been used: take new
            // ones.
            for nth in wanted {
                let CheckedPush { message, unique: Some(unique), .. } = &mut messages[*nth] else { continue };
                if !bucket.has(&unique.name, message.id) {
                    message.id = store.new_id();
                }
            }
        }
        let uniques =
            || wanted.iter().filter_map(|nth| messages[*nth].unique.as_ref().map(|u| (u, &messages[*nth])));
        let is_settled = |name: &str| bucket.names.get(name).is_some_and(|taken| !taken.settled.is_empty());
        let groups = match uniques().any(|(unique, _)| is_settled(&unique.name)) {
            true => store.groups_of(topic).await?,
            false => Vec::new(),
        };
        let before = bucket.clone();
        let mut found = Vec::new();
        for (unique, CheckedPush { message, .. }) in uniques() {
            let until = unique.until(message, topic, now);
            found.push(bucket.reserve(&unique.name, message.id, until, now, &groups));
        }
        if bucket == before {
            return Ok(found);
        }
        match cell.replace(expect, &mut bucket).await? {
            Commit::Done(_) => return Ok(found),
            Commit::Conflict => {}
            Commit::Unknown => {
                unknown = Some(expect);
                backoff.doubt();
            }
        }
        backoff.pause().await?;
    }
}

/// Marks names as belonging to messages that are in the log. If that fails, the next push of the name appends
/// once more.
pub(crate) async fn confirm(store: &Store, topic: &Topic, messages: &[(String, MessageId)]) {
    for (key, names) in by_bucket(topic, messages.iter().map(|(name, id)| (name.as_str(), *id))) {
        let confirmed =
            change(store, &key, |bucket| names.iter().for_each(|(name, id)| bucket.confirm(name, *id)));
        if let Err(error) = confirmed.await {
            tracing::debug!(%error, %key, "unique messages are pushed, but not marked as sure");
        }
    }
}

/// Releases the names of messages that a group has settled for good.
pub(crate) async fn release(
    store: &Store,
    topic: &Topic,
    group: &GroupName,
    messages: impl Iterator<Item = (&str, MessageId)>,
) -> Result<()> {
    let groups = store.groups_of(topic).await?;
    for (key, names) in by_bucket(topic, messages) {
        change(store, &key, |bucket| {
            names.iter().for_each(|(name, id)| bucket.settle(name, *id, group, &groups));
        })
        .await?;
    }
    Ok(())
}

/// Releases all names that a group keeps taken. Called at a replay, which skips an unknown set of messages
/// that the group will never settle.
pub(crate) async fn release_all(store: &Store, topic: &Topic, group: &GroupName) -> Result<()> {
    let entries = store.ledger().list(&EntryKey::all_uniques(topic)).await?;
    if entries.is_empty() {
        return Ok(());
    }
    let groups = store.groups_of(topic).await?;
    for entry in entries {
        change(store, &entry.key, |bucket| {
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

/// Applies an idempotent change to a bucket, until it is in the ledger or changes nothing.
async fn change(store: &Store, key: &EntryKey, change: impl Fn(&mut NameBucket)) -> Result<()> {
    let cell = Cell::<NameBucket>::new(store, key.clone());
    cell.edit(|bucket, _| {
        let before = bucket.unwrap_or_default();
        let mut bucket = before.clone();
        change(&mut bucket);
        match bucket == before {
            true => Ok(Edit::Keep(())),
            false => Ok(Edit::Write(bucket, ())),
        }
    })
    .await
}
