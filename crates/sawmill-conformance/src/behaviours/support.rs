//! Helpers shared by the tests: waits, and direct access to the ledger.

use std::time::Duration;

use sawmill::admin::GroupStatus;
use sawmill::engine::model::{Claim, GroupName, Member, Rules, ShardState, Topic, WorkerId};
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Commit, Entry, EntryKey, Version, Write};
use sawmill::{Push, Sawmill, TopicSpec};

use super::faulty_store::FaultyStore;
pub use super::place::{Place, Subject};
use super::place::{Seams, nothing_is_left};
use crate::waits::left;

/// How long to wait for an expected event on a busy machine.
pub const DEADLINE: Duration = Duration::from_secs(40);
/// For workers that must not be declared dead, even on a busy machine.
pub const LONG_TTL: Duration = Duration::from_secs(60);
/// For workers whose death the test waits for.
pub const SHORT_TTL: Duration = Duration::from_secs(2);
/// For members without heartbeats; see [`Peek::join_silently`].
pub const SILENT_TTL: Duration = Duration::from_secs(10);
/// The poll interval without notifications.
pub const POLL: Duration = Duration::from_millis(50);

impl Place {
    /// Returns the two seams within a [`FaultyStore`]; see [`FaultyStore::mill`].
    pub fn faulty(&self) -> FaultyStore {
        FaultyStore::new(self.store())
    }

    /// Returns a key for each shard.
    pub fn key_per_shard(&self, shards: u16) -> Vec<String> {
        key_per_shard(shards, |key, shards| self.shard_of(key, shards))
    }
}

/// Creates a topic with this many shards.
pub async fn topic(mill: &Sawmill, name: &str, shards: u16) -> Topic {
    let spec = TopicSpec { shards, ..TopicSpec::new(name.parse().unwrap()) };
    mill.create_topic_with(&spec).await.unwrap()
}

/// Makes messages without a key, with these numbers as payloads.
pub fn numbered(numbers: std::ops::Range<usize>) -> Vec<Push> {
    numbers.map(|number| Push::new(number.to_string())).collect()
}

/// Returns a key for each shard.
pub fn key_per_shard(shards: u16, shard_of: impl Fn(&[u8], u16) -> u16) -> Vec<String> {
    let key_of =
        |shard| (0..).map(|i| format!("key-{i}")).find(|key| shard_of(key.as_bytes(), shards) == shard);
    (0..shards).filter_map(key_of).collect()
}

/// Waits for an expected event.
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    match Env::system().within(DEADLINE, future).await {
        Some(value) => value,
        None => panic!("test timed out: {what}"),
    }
}

/// Repeats the check until it is true.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !holds().await {
            Env::system().sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// Waits until the group `default` of topic `orders` has done this many messages.
pub async fn orders_done(mill: &Sawmill, count: u64) {
    group_has_done(mill, "orders", "default", count).await;
}

/// Waits until a group has done this many messages, and asserts that it has not done more. On timeout the
/// message includes the group's status, to tell a loss from a slow machine.
pub async fn group_has_done(mill: &Sawmill, topic: &str, group: &str, count: u64) {
    let status = async || mill.admin().status(topic, group).await.unwrap();
    let reached = async {
        loop {
            let done = status().await.done;
            if done >= count {
                break done;
            }
            Env::system().sleep(Duration::from_millis(10)).await;
        }
    };
    if let Some(done) = Env::system().within(DEADLINE, reached).await {
        assert_eq!(done, count, "{group} has done messages of {topic} twice");
        return;
    }
    let last = status().await;
    let settled = last.done + last.dead + last.dropped + last.cancelled;
    if left(&last) == 0 && settled < count {
        panic!("of {count} messages of {topic} some were lost; {group} has nothing left: {last:?}");
    }
    panic!("test timed out: {group} has done {count} messages of {topic}; it has {last:?}");
}

/// Waits until a group has these counts. If it does not and has nothing left to do, it never will: something
/// is lost.
pub async fn group_is(
    mill: &Sawmill,
    topic: &str,
    group: &str,
    what: &str,
    holds: impl Fn(&GroupStatus) -> bool,
) {
    let status = async || mill.admin().status(topic, group).await.unwrap();
    let reached = async {
        while !holds(&status().await) {
            Env::system().sleep(Duration::from_millis(10)).await;
        }
    };
    if Env::system().within(DEADLINE, reached).await.is_some() {
        return;
    }
    let before = status().await;
    // A message that moves from one count to another may be in neither for a moment.
    Env::system().sleep(Duration::from_secs(1)).await;
    let last = status().await;
    if left(&before) == 0 && left(&last) == 0 && !holds(&last) {
        panic!("lost: {what} does not come any more; {group} has nothing of {topic} left: {last:?}");
    }
    panic!("test timed out: {what}; of {topic} {group} has {last:?}");
}

/// Waits until a number has reached this value, and asserts that it is not greater.
pub async fn counted(what: &str, count: usize, mut number: impl AsyncFnMut() -> usize) {
    let mut last = None;
    let reached = async {
        loop {
            let now = number().await;
            if now >= count {
                break now;
            }
            last = Some(now);
            Env::system().sleep(Duration::from_millis(10)).await;
        }
    };
    let Some(reached) = Env::system().within(DEADLINE, reached).await else {
        if nothing_is_left().await && number().await < count {
            panic!("lost: {what}, {count} in all, and nothing waits any more; last seen: {last:?}");
        }
        panic!("test timed out: {what}, {count} in all; last seen: {last:?}");
    };
    assert_eq!(reached, count, "{what}: some were counted twice");
}

/// The ledger's entries of one group on one topic, read from the store.
pub struct Peek {
    pub store: Seams,
    pub topic: Topic,
    pub group: GroupName,
}

impl Peek {
    pub fn new(place: &Place, topic: &Topic, group: &str) -> Self {
        Self { store: place.store(), topic: topic.clone(), group: group.parse().unwrap() }
    }

    pub fn key(&self, shard: u16) -> EntryKey {
        EntryKey::shard(&self.topic, &self.group, shard)
    }

    /// Returns a shard's entry; the default if there is none.
    pub async fn shard(&self, shard: u16) -> (Option<Version>, ShardState) {
        match self.store.ledger.get(&self.key(shard)).await.unwrap() {
            Some(entry) => (Some(entry.version), ShardState::decode(&entry.key, &entry.value).unwrap()),
            None => (None, ShardState::default()),
        }
    }

    pub async fn shards(&self) -> Vec<ShardState> {
        let entries = self.store.ledger.list(&EntryKey::shards(&self.topic, &self.group)).await.unwrap();
        entries.iter().map(|entry| ShardState::decode(&entry.key, &entry.value).unwrap()).collect()
    }

    pub async fn claims(&self) -> Vec<Claim> {
        self.shards().await.into_iter().flat_map(|state| state.claims).collect()
    }

    pub async fn members(&self) -> Vec<Entry> {
        self.store.ledger.list(&EntryKey::members(&self.group)).await.unwrap()
    }

    pub async fn member_ids(&self) -> Vec<String> {
        self.members().await.iter().map(|entry| entry.key.last().to_owned()).collect()
    }

    /// Adds a member that does nothing and sends no more heartbeats.
    pub async fn join_silently(&self, name: &str) -> WorkerId {
        let ttl_ms = SILENT_TTL.as_millis() as u64;
        let member = Member { beat: 1, slots: 1, ttl_ms, ..Member::default() };
        let key = EntryKey::member(&self.group, name);
        let write = Write { key, expect: None, value: Some(member.encode()) };
        assert!(matches!(self.store.ledger.commit(write).await.unwrap(), Commit::Done(_)));
        WorkerId::new(name)
    }

    /// Takes over all claims of a shard, as a worker does that has declared their owners dead.
    pub async fn take_over(&self, shard: u16, by: &WorkerId, rules: Rules) -> Vec<Claim> {
        let (expect, mut state) = self.shard(shard).await;
        let claims = state.adopt(by, rules, |_| true);
        assert!(!claims.is_empty(), "there is nothing to take over in {state:?}");
        let write = Write { key: self.key(shard), expect, value: Some(state.encode()) };
        assert!(matches!(self.store.ledger.commit(write).await.unwrap(), Commit::Done(_)));
        claims
    }
}

/// Opens a store of each engine: in memory, and a real one with its place.
pub async fn engines(on: Subject) -> Vec<(Sawmill, Option<Place>)> {
    let place = on.place();
    vec![(Sawmill::open("memory:").await.unwrap(), None), (place.mill().await, Some(place))]
}
