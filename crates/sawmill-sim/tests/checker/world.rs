//! A world small enough to be wrong by hand.

use std::time::Duration;

use bytes::Bytes;
use sawmill::clock::Timestamp;
use sawmill::ledger::{Entry, EntryKey, Version};
use sawmill::log::{Position, Span};
use sawmill::message::Headers;
use sawmill::shard::{Fate, Grab, Report, Rules, ShardState};
use sawmill::topic::{GroupName, Topic};
use sawmill::{Message, MessageId, Token, WorkerId};
use sawmill_sim::checker::{Book, GroupRules, Intent, Invariant, Rulebook, RunId, Started, Written};
use sawmill_sim::{NodeId, Sim};

pub(crate) const TTL: Duration = Duration::from_secs(2);

/// A small world: one topic with one shard, one group, and workers `a` and `b` on nodes of their own.
pub(crate) struct World {
    pub(crate) book: Book,
    pub(crate) topic: Topic,
    pub(crate) nodes: Vec<NodeId>,
    versions: std::collections::BTreeMap<String, (u64, Bytes)>,
    pub(crate) state: ShardState,
    pub(crate) now: Duration,
}

impl World {
    pub(crate) fn new(ordered: bool, once: bool) -> Self {
        let group = GroupRules {
            name: "g".into(),
            topics: vec!["t".into()],
            ordered,
            once,
            logs_failures: false,
            retries: 1,
            limit: None,
            rate: None,
        };
        let sim = Sim::new(0);
        let rules = Rulebook { ttl: TTL, skew: Duration::ZERO, groups: vec![group] };
        let topic = Topic {
            name: "t".parse().unwrap(),
            uid: "t1".into(),
            shards: 1,
            retention: Duration::from_secs(60),
            drops_unread: false,
        };
        let nodes = vec![sim.add_node("a"), sim.add_node("b")];
        let (book, versions) = (Book::new(rules), Default::default());
        let mut world =
            Self { book, topic, nodes, versions, state: ShardState::default(), now: Duration::from_secs(1) };
        world.write(0, EntryKey::member(&group_name(), "a"), Some("x".into()));
        world.write(1, EntryKey::member(&group_name(), "b"), Some("x".into()));
        world
    }

    pub(crate) fn write(&mut self, node: usize, key: EntryKey, value: Option<Bytes>) {
        let old = self.versions.get(key.as_str()).cloned();
        let version = old.as_ref().map_or(1, |(version, _)| version + 1);
        match &value {
            Some(value) => self.versions.insert(key.as_str().to_owned(), (version, value.clone())),
            None => self.versions.remove(key.as_str()),
        };
        let old = old.map(|(version, value)| Entry { key: key.clone(), version: Version(version), value });
        let written = Written {
            at: self.now,
            node: self.nodes[node],
            key: &key,
            old: old.as_ref(),
            version: Version(version),
            value: value.as_ref(),
        };
        self.book.committed(&written, &|_| Vec::new());
    }

    /// Pushes message number `n` (from 0) with a key, acknowledged and readable as number `n + 1`.
    pub(crate) fn push(&mut self, due: Option<u64>) -> Message {
        let due = due.map(Timestamp::from_millis);
        let intent = Intent { topic: "t".into(), key: Some("k".into()), headers: Headers::default(), due };
        let number = self.book.intended(intent);
        let message = message(number, due);
        self.book.acknowledged(&[number], &[message.id]);
        self.book.readable(&self.topic, 0, number as u64 + 1, &message);
        message
    }

    pub(crate) fn commit(&mut self, node: usize) {
        let (key, value) = (EntryKey::shard(&self.topic, &group_name(), 0), self.state.encode());
        self.write(node, key, Some(value));
    }

    pub(crate) fn grab(&mut self, node: usize, from: u64, to: u64) -> Token {
        let count = (to - from) as u32;
        let grab =
            Grab { span: Span::from_range(from, to, count as usize), end: Position::from_number(to), count };
        let token = self.state.grab(&worker(node), Rules::default(), &grab).unwrap();
        self.commit(node);
        token
    }

    pub(crate) fn settle(&mut self, node: usize, token: Token, index: u32, fate: Fate) {
        let report =
            Report { token, fates: [(fate, [index].into_iter().collect())].into(), ..Report::default() };
        self.state.settle(&worker(node), &report).unwrap();
        self.commit(node);
    }

    pub(crate) fn start(&mut self, node: usize, message: &Message, token: Token) -> RunId {
        let started = Started {
            group: "g",
            topic: "t",
            message,
            origin: message.id,
            token,
            node: self.nodes[node],
            at: self.now,
            wall: Timestamp::from_millis(1_000),
        };
        self.book.started(&started, &|_| Vec::new()).0
    }

    pub(crate) fn found(&self) -> Option<Invariant> {
        self.book.violation().map(|violation| violation.invariant)
    }
}

pub(crate) fn group_name() -> GroupName {
    "g".parse().unwrap()
}

pub(crate) fn worker(node: usize) -> WorkerId {
    WorkerId::new(["a", "b"][node])
}

pub(crate) fn message(number: usize, due: Option<Timestamp>) -> Message {
    Message {
        id: MessageId::from_u128(1000 + number as u128),
        key: Some("k".into()),
        payload: Intent::payload(number),
        headers: Headers::default(),
        due,
        created: Timestamp::from_millis(1),
    }
}
