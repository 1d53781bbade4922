//! A small world for hand-made histories.

use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::{
    Fate, GroupName, Headers, Lane, NewClaim, Report, Rules, ShardState, Token, Topic, WorkerId,
};
use sawmill::engine::storage::{Entry, EntryKey, Position, Span, Version};
use sawmill::{Message, MessageId, Timestamp};
use sawmill_sim::checker::{Book, GroupRules, How, Intent, Invariant, Rulebook, RunId, Started, Written};
use sawmill_sim::{NodeId, Sim};

pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const BACKOFF: Duration = Duration::from_secs(4);
pub(crate) const SNOOZE: Duration = Duration::from_secs(1);
/// The world's wall clock at time 0.
const WALL: Duration = Duration::ZERO;

/// A small world: one topic with one used shard, one group, and workers `a` and `b` on their own nodes.
pub(crate) struct World {
    pub(crate) book: Book,
    pub(crate) topic: Topic,
    pub(crate) nodes: Vec<NodeId>,
    versions: std::collections::BTreeMap<String, (u64, Bytes)>,
    pub(crate) state: ShardState,
    copies: u64,
    lives: [u32; 2],
    pub(crate) now: Duration,
}

impl World {
    pub(crate) fn new(ordered: bool, once: bool) -> Self {
        Self::with(Self::rules(ordered, once))
    }

    /// Returns the rules of a group without limits.
    pub(crate) fn rules(ordered: bool, once: bool) -> GroupRules {
        GroupRules {
            name: "g".into(),
            topics: vec!["t".into()],
            ordered,
            once,
            logs_failures: false,
            retries: 2,
            immediate: 1,
            backoff: (BACKOFF, 4 * BACKOFF),
            max_in_flight: None,
            limit: None,
            rate: None,
            per_key: None,
        }
    }

    /// Creates a world whose one group has these rules.
    pub(crate) fn with(group: GroupRules) -> Self {
        let sim = Sim::new(0);
        let rules =
            Rulebook { ttl: TTL, fastest: 1000, skew: Duration::ZERO, snooze: SNOOZE, groups: vec![group] };
        let topic = Topic {
            name: "t".parse().unwrap(),
            uid: "t1".into(),
            shards: 2,
            retention: Duration::from_secs(60),
            drops_unread: false,
        };
        let nodes = vec![sim.add_node("a"), sim.add_node("b")];
        let (book, versions) = (Book::new(rules), Default::default());
        let mut world = Self {
            book,
            topic,
            nodes,
            versions,
            state: ShardState::default(),
            copies: 0,
            lives: [0, 0],
            now: Duration::from_secs(1),
        };
        world.write(0, EntryKey::member(&group_name(), "a"), Some("x".into()));
        world.write(1, EntryKey::member(&group_name(), "b"), Some("x".into()));
        world
    }

    /// Returns the world's wall clock.
    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp::from_millis((WALL + self.now).as_millis() as u64)
    }

    pub(crate) fn end(&mut self, run: RunId, how: How) {
        self.book.set_time(self.now, self.wall());
        self.book.ended(run, how);
    }

    /// Pushes a message to this shard, with this key, readable as this number.
    pub(crate) fn push_to(&mut self, shard: u16, number: u64, key: Option<&'static str>) -> Message {
        let key = key.map(Bytes::from);
        let intent = Intent { topic: "t".into(), key: key.clone(), headers: Headers::default(), due: None };
        let message = Message { key, ..message(self.book.intended(intent), None) };
        self.book.readable(&self.topic, shard, number, &message);
        message
    }

    /// Adds a copy of a message to a lane of the group.
    pub(crate) fn copy(&mut self, of: &Message, lane: Lane, due: Option<Timestamp>) -> Message {
        let origin = ("sawmill-origin", of.origin().to_string());
        self.copy_with(of, lane, due, [origin, ("sawmill-attempts", "1".to_owned())].into_iter().collect())
    }

    /// Resends a dead letter: adds a copy without attempts to the retry lane.
    pub(crate) fn send_back(&mut self, letter: &Message) -> Message {
        let origin = ("sawmill-origin", letter.origin().to_string());
        self.copy_with(letter, Lane::Retry, None, [origin].into_iter().collect())
    }

    fn copy_with(&mut self, of: &Message, lane: Lane, due: Option<Timestamp>, headers: Headers) -> Message {
        self.book.set_time(self.now, self.wall());
        self.copies += 1;
        let id = MessageId::from_u128(1_000_000 + u128::from(self.copies));
        let copy = Message { id, due, headers, created: self.wall(), ..of.clone() };
        let lane = self.lane(lane);
        self.book.readable(&lane, 0, self.copies, &copy);
        copy
    }

    /// Returns a lane of the group.
    pub(crate) fn lane(&self, lane: Lane) -> Topic {
        let name = self.topic.name.lane(&group_name(), lane);
        Topic { name, uid: format!("{lane:?}"), ..self.topic.clone() }
    }

    /// Declares the other worker dead and lets this node's worker take over its claim. Returns the new token.
    pub(crate) fn take_over(&mut self, node: usize, rules: Rules) -> Token {
        self.now += TTL;
        let dead = self.worker(1 - node);
        self.write(node, EntryKey::member(&group_name(), dead.as_str()), None);
        self.lives[1 - node] += 1;
        let next = self.worker(1 - node);
        self.write(1 - node, EntryKey::member(&group_name(), next.as_str()), Some("x".into()));
        let me = self.worker(node);
        let taken = self.state.adopt(&me, rules, |_| true);
        self.commit(node);
        taken[0].token
    }

    /// Returns the current worker of this node.
    pub(crate) fn worker(&self, node: usize) -> WorkerId {
        match self.lives[node] {
            0 => worker(node),
            life => WorkerId::new(format!("{}{life}", ["a", "b"][node])),
        }
    }

    /// Requests and writes the cancellation of a message.
    pub(crate) fn cancel(&mut self, id: MessageId) {
        self.book.cancel_begins(id);
        self.write(0, EntryKey::cancel(&self.topic.clone(), id), Some("{}".into()));
    }

    pub(crate) fn write(&mut self, node: usize, key: EntryKey, value: Option<Bytes>) {
        self.book.set_time(self.now, self.wall());
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

    pub(crate) fn claim_block(&mut self, node: usize, from: u64, to: u64) -> Token {
        let count = (to - from) as u32;
        let new = NewClaim {
            span: Span::from_range(from, to, count as usize),
            end: Position::from_number(to),
            count,
        };
        let token = self.state.claim_block(&self.worker(node), Rules::default(), &new).unwrap();
        self.commit(node);
        token
    }

    pub(crate) fn settle(&mut self, node: usize, token: Token, index: u32, fate: Fate) {
        let report =
            Report { token, fates: [(fate, [index].into_iter().collect())].into(), ..Report::default() };
        self.state.settle(&self.worker(node), &report).unwrap();
        self.commit(node);
    }

    pub(crate) fn start(&mut self, node: usize, message: &Message, token: Token) -> RunId {
        self.book.set_time(self.now, self.wall());
        let started = Started {
            group: "g",
            topic: "t",
            message,
            origin: message.origin(),
            token,
            node: self.nodes[node],
            at: self.now,
            wall: self.wall(),
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
