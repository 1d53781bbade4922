//! The checker's own records: every push, message, claim and run, as observed from outside the core.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::{Lane, ShardState, Token, Topic};
use sawmill::{Message, MessageId, Timestamp};

use super::formats::FormatHistory;
use super::invariant::{Checks, Invariant, Violation};
use super::messages::Pushed;
use super::seeks::Seek;
use super::takeovers::ClaimOfDeadWorker;
use crate::control::NodeId;
use crate::features::Feature;

/// The rules that a run is checked against.
#[derive(Debug, Clone)]
pub struct Rulebook {
    /// How long a worker must be silent before it may be declared dead.
    pub ttl: Duration,
    /// The rate of the fastest steady clock, in thousandths of the world's rate.
    pub fastest: u32,
    /// The maximum error of wall clocks.
    pub skew: Duration,
    /// How long a snooze takes.
    pub snooze: Duration,
    /// The groups.
    pub groups: Vec<GroupRules>,
}

/// The rules of one group.
#[derive(Debug, Clone)]
pub struct GroupRules {
    /// Its name.
    pub name: String,
    /// The names of its topics.
    pub topics: Vec<String>,
    /// Strict order per key.
    pub ordered: bool,
    /// At-most-once.
    pub once: bool,
    /// Messages that are out of attempts are only logged, and get no dead letter.
    pub logs_failures: bool,
    /// The maximum number of retries.
    pub retries: u32,
    /// The number of immediate retries.
    pub immediate: u32,
    /// The wait before the first delayed retry, which doubles each time, and the longest wait.
    pub backoff: (Duration, Duration),
    /// The maximum number of messages that a worker may claim.
    pub max_in_flight: Option<usize>,
    /// How many messages of a topic may run at once.
    pub limit: Option<usize>,
    /// How many messages of a topic may start in a second.
    pub rate: Option<usize>,
    /// How many messages of a key may start in a second.
    pub per_key: Option<usize>,
}

/// A place in the log: topic, shard and number.
pub(super) type Place = (usize, u16, u64);

/// A message in the log.
pub(super) struct LogEntry {
    pub(super) id: MessageId,
    pub(super) origin: MessageId,
    pub(super) key: Option<Bytes>,
    pub(super) created: Timestamp,
}

/// A topic or a lane.
pub(super) struct KnownTopic {
    pub(super) topic: Topic,
    /// The group and kind of the lane, for a lane.
    pub(super) lane: Option<(usize, Lane)>,
    /// The topic is deleted or being deleted.
    pub(super) is_deleted: bool,
}

/// A group's entry for one shard, as in the ledger.
#[derive(Clone)]
pub(super) struct Mirror {
    pub(super) group: usize,
    pub(super) topic: usize,
    pub(super) shard: u16,
    pub(super) state: ShardState,
    /// The numbers of settled messages.
    pub(super) settled: BTreeSet<u64>,
    /// The position of the last seek. Later messages count as settled only through claims opened since.
    pub(super) sent_to: u64,
    /// The messages that were settled before the last seek, and the time of that seek. A trim that was
    /// running then may still drop them.
    pub(super) settled_before: BTreeSet<u64>,
    pub(super) sent_at: Duration,
    /// Messages whose claim was taken from its owner, and how often.
    pub(super) superseded: BTreeMap<u64, u32>,
    /// The same by the pass of the claim: how many workers died while they held it.
    pub(super) deaths: BTreeMap<(u32, u64), u32>,
    /// The tokens of new claims that nobody has adopted.
    pub(super) opened: BTreeSet<Token>,
}

/// A member of a group, as in the ledger.
pub(super) struct MemberRecord {
    pub(super) node: NodeId,
    pub(super) renewed: Duration,
    pub(super) there: bool,
}

/// The number of a handler run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(pub(super) usize);

/// The start of a handler.
#[derive(Debug, Clone, Copy)]
pub struct Started<'a> {
    /// The group.
    pub group: &'a str,
    /// The name of the topic.
    pub topic: &'a str,
    /// The message, or its copy on a lane.
    pub message: &'a Message,
    /// The id that the push returned.
    pub origin: MessageId,
    /// The fencing number that the handler was given.
    pub token: Token,
    /// The node.
    pub node: NodeId,
    /// The simulated time.
    pub at: Duration,
    /// The world's wall clock.
    pub wall: Timestamp,
}

/// How a handler run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It returned done.
    Done,
    /// It failed or panicked.
    Failed,
    /// It returned dead: retries are useless.
    GaveUp,
    /// It snoozed.
    Snoozed,
    /// It stopped its worker.
    Stopped,
    /// It was dropped while it ran, because its worker crashed or was aborted.
    Dropped,
}

/// One run of a handler.
pub(super) struct Run {
    pub(super) group: usize,
    pub(super) id: MessageId,
    pub(super) origin: MessageId,
    pub(super) place: Place,
    pub(super) token: Token,
    /// The member entry of the worker that runs it.
    pub(super) worker: String,
    pub(super) node: NodeId,
    pub(super) at: Duration,
    pub(super) how: Option<How>,
    /// When it ended, by the world's wall clock.
    pub(super) ended: Option<Timestamp>,
    /// The store has undone its report, or the claim it was started under.
    pub(super) undone: bool,
}

/// The history of one message in a group.
#[derive(Default)]
pub(super) struct Handling {
    pub(super) runs: Vec<RunId>,
    /// The copies on the group's retry lane, in order of arrival.
    pub(super) retries: Vec<MessageId>,
    /// The copies on its dead-letter lane.
    pub(super) dead: Vec<MessageId>,
    /// How often it counted as settled because a copy of it exists.
    pub(super) copied: usize,
    pub(super) done: u64,
    /// When it last counted as finally settled.
    pub(super) over: Option<Duration>,
    /// For each resend of a dead letter: the number of copies on the retry lane and on the dead-letter lane
    /// at that time.
    pub(super) lives: Vec<(usize, usize)>,
}

/// Everything that the checker knows.
pub struct Book {
    pub(super) rules: Rulebook,
    pub(super) pushed: Vec<Pushed>,
    /// The number of each message, by its id in the log.
    pub(super) origins: BTreeMap<MessageId, usize>,
    pub(super) topics: Vec<KnownTopic>,
    pub(super) places: BTreeMap<Place, LogEntry>,
    pub(super) by_id: BTreeMap<(usize, MessageId), Vec<(u16, u64)>>,
    pub(super) mirrors: BTreeMap<String, Mirror>,
    pub(super) members: BTreeMap<String, MemberRecord>,
    pub(super) versions: BTreeMap<String, u64>,
    pub(super) runs: Vec<Run>,
    pub(super) handled: BTreeMap<(usize, MessageId), Handling>,
    pub(super) orphans: Vec<(String, Token)>,
    /// Messages that are in the log twice, or have a copy that is.
    pub(super) doubled: BTreeSet<MessageId>,
    /// The paused groups and topics, and the time since when nothing may start.
    pub(super) paused: BTreeMap<(usize, String), Duration>,
    /// Groups and topics that were paused at any time since the faults ended.
    pub(super) held_up: BTreeSet<(usize, String)>,
    /// Messages whose cancellation was requested.
    pub(super) to_cancel: BTreeSet<MessageId>,
    /// Messages that the ledger names as cancelled.
    pub(super) unwanted: BTreeSet<MessageId>,
    /// Messages whose cancellation was acknowledged: the time, and the last token of each shard at that time.
    pub(super) cancelled: BTreeMap<MessageId, (Duration, BTreeMap<String, Token>)>,
    /// The decisions about dead letters, by the topics of their lanes.
    pub(super) letters: BTreeMap<usize, super::letters::Letters>,
    /// Dead letters about which a user may have decided.
    pub(super) unsure_letters: BTreeSet<Place>,
    /// The numbers of messages that may be in the log only once, however often they are pushed.
    pub(super) once_in_the_log: BTreeSet<usize>,
    /// The names that are taken for a period.
    pub(super) periods: super::periods::Periods,
    /// The numbers of messages that a schedule pushes.
    pub(super) ticking: BTreeMap<usize, super::ticks::Ticking>,
    /// The state that a crash of the store would restore.
    pub(super) undoable: super::undone::Undoable,
    /// The journal of each node. A later node with the same journal is the next incarnation of the earlier
    /// one.
    pub(super) journals: BTreeMap<NodeId, usize>,
    /// The deleted topics, by name, and the time when the deletion was acknowledged.
    pub(super) deletions: BTreeMap<String, Option<Duration>>,
    /// The places whose message was trimmed.
    pub(super) trimmed: BTreeSet<Place>,
    /// The names of unique messages, by number.
    pub(super) names: BTreeMap<usize, String>,
    /// The shard of each key, by topic.
    pub(super) key_shards: BTreeMap<(usize, Bytes), u16>,
    /// The seeks of all groups.
    pub(super) seeks: Vec<Seek>,
    /// How often a user moved the cursor of a shard.
    pub(super) passes: BTreeMap<String, u32>,
    /// The claims of workers that died while nothing else was wrong.
    pub(super) claims_of_dead: Vec<ClaimOfDeadWorker>,
    /// The simulated time, and the world's wall clock.
    pub(super) now: Duration,
    pub(super) wall: Timestamp,
    /// The formats of the store, its entries and its members.
    pub(super) formats: FormatHistory,
    /// A trim that was running during a seek has dropped messages that the group should read again. They were
    /// settled before and past their retention. How often they now run is not promised, so later violations
    /// do not count.
    pub(super) is_void: bool,
    /// Features whose use only the checker can detect.
    pub(super) used: Vec<Feature>,
    checks: Checks,
    violation: Option<Violation>,
    is_unreported: bool,
}

impl Book {
    /// An empty book.
    pub fn new(rules: Rulebook) -> Self {
        Self {
            rules,
            pushed: Vec::new(),
            origins: BTreeMap::new(),
            topics: Vec::new(),
            places: BTreeMap::new(),
            by_id: BTreeMap::new(),
            mirrors: BTreeMap::new(),
            members: BTreeMap::new(),
            versions: BTreeMap::new(),
            runs: Vec::new(),
            handled: BTreeMap::new(),
            orphans: Vec::new(),
            doubled: BTreeSet::new(),
            paused: BTreeMap::new(),
            held_up: BTreeSet::new(),
            to_cancel: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            cancelled: BTreeMap::new(),
            letters: BTreeMap::new(),
            unsure_letters: BTreeSet::new(),
            periods: Default::default(),
            ticking: BTreeMap::new(),
            undoable: Default::default(),
            journals: BTreeMap::new(),
            once_in_the_log: BTreeSet::new(),
            deletions: BTreeMap::new(),
            trimmed: BTreeSet::new(),
            names: BTreeMap::new(),
            key_shards: BTreeMap::new(),
            seeks: Vec::new(),
            passes: BTreeMap::new(),
            claims_of_dead: Vec::new(),
            now: Duration::ZERO,
            wall: Timestamp::from_millis(0),
            formats: FormatHistory::default(),
            is_void: false,
            used: Vec::new(),
            checks: Checks::default(),
            violation: None,
            is_unreported: false,
        }
    }

    /// Returns true if later findings do not count; see the field.
    pub fn is_void(&self) -> bool {
        self.is_void
    }

    /// Sets the time of the events that are recorded from now on.
    pub fn set_time(&mut self, now: Duration, wall: Timestamp) {
        (self.now, self.wall) = (now, wall);
    }

    /// Returns the first violation.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Returns the first violation, once.
    pub(super) fn take_unreported(&mut self) -> Option<Violation> {
        if std::mem::take(&mut self.is_unreported) { self.violation.clone() } else { None }
    }

    /// Takes the features that were used since the last call.
    pub(super) fn take_used(&mut self) -> Vec<Feature> {
        std::mem::take(&mut self.used)
    }

    /// Returns how often each invariant was checked.
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// Returns how many handlers were started.
    pub fn starts(&self) -> u64 {
        self.runs.len() as u64
    }

    /// Returns how many pushed messages were acknowledged.
    pub fn acknowledged_count(&self) -> u64 {
        self.pushed.iter().filter(|pushed| pushed.acknowledged.is_some()).count() as u64
    }

    /// Returns the acknowledged messages with their topics.
    pub fn acknowledged_ids(&self) -> Vec<(String, MessageId)> {
        let told = |pushed: &Pushed| Some((pushed.intent.topic.clone(), pushed.acknowledged?));
        self.pushed.iter().filter(|pushed| !pushed.is_deleted).filter_map(told).collect()
    }

    /// Records that the cancellation of a message was requested.
    pub fn cancel_begins(&mut self, id: MessageId) {
        self.to_cancel.insert(id);
    }

    /// Records that a cancellation was acknowledged. No claim that is opened or adopted from now on may start
    /// this message.
    pub fn cancelled(&mut self, id: MessageId) {
        let tokens = self.mirrors.iter().map(|(key, mirror)| (key.clone(), mirror.state.token)).collect();
        self.cancelled.entry(id).or_insert((self.now, tokens));
    }

    /// Records the journal of the worker on this node.
    pub fn keeps_journal(&mut self, node: NodeId, journal: usize) {
        self.journals.insert(node, journal);
    }

    /// Returns true if this node is the next incarnation of an earlier one, by its journal.
    pub(super) fn is_next_life(&self, node: NodeId, earlier: NodeId) -> bool {
        node > earlier && self.journals.get(&node).is_some_and(|of| self.journals.get(&earlier) == Some(of))
    }

    /// Checks an invariant. The first failure becomes the violation of this run.
    pub(super) fn check(
        &mut self,
        invariant: Invariant,
        holds: bool,
        what: impl FnOnce(&Self) -> (String, Vec<String>),
    ) -> bool {
        self.checks.count(invariant);
        if !holds && self.violation.is_none() && !self.is_void {
            let (what, about) = what(self);
            self.violation = Some(Violation { invariant, what, about });
            self.is_unreported = true;
        }
        holds
    }

    /// Records a violation.
    pub(super) fn wrong(&mut self, invariant: Invariant, what: String, about: Vec<String>) {
        self.check(invariant, false, |_| (what, about));
    }

    pub(super) fn group(&self, name: &str) -> Option<usize> {
        self.rules.groups.iter().position(|group| group.name == name)
    }

    /// Returns the index of a topic or lane, adding it if it is new.
    pub(super) fn topic(&mut self, topic: &Topic) -> usize {
        if let Some(known) = self.topics.iter().position(|known| known.topic.uid == topic.uid) {
            return known;
        }
        let lane = topic.name.as_lane();
        let lane = lane.and_then(|(group, lane)| Some((self.group(&group.to_string())?, lane)));
        let is_deleted = self.is_being_deleted(topic.name.base());
        self.topics.push(KnownTopic { topic: topic.clone(), lane, is_deleted });
        self.topics.len() - 1
    }

    /// Returns the numbers of the messages of a shard in the range `(after, upto]`.
    pub(super) fn between(
        &self,
        topic: usize,
        shard: u16,
        after: u64,
        upto: u64,
    ) -> impl Iterator<Item = u64> + '_ {
        let bounds =
            (Bound::Excluded((topic, shard, after)), Bound::Included((topic, shard, upto.max(after))));
        let there = self.places.range(bounds).map(|(place, _)| *place);
        there.filter(|place| !self.trimmed.contains(place)).map(|(_, _, number)| number)
    }

    /// Returns true if this topic has the same message in several places, because the engine could not detect
    /// the duplicate or had forgotten the message.
    pub(super) fn is_doubled(&self, topic: usize, id: MessageId) -> bool {
        self.by_id.get(&(topic, id)).is_some_and(|places| places.len() > 1)
    }

    /// Returns the record of a member.
    pub(super) fn member(&self, group: usize, worker: &str) -> Option<&MemberRecord> {
        self.members.get(&format!("members/{}/{worker}", self.rules.groups[group].name))
    }
}
