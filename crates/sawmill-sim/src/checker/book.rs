//! The checker's book: everything that was pushed, every place in the log, every claim and every run, as seen from outside.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

use bytes::Bytes;
use sawmill::clock::Timestamp;
use sawmill::shard::ShardState;
use sawmill::topic::{Lane, Topic};
use sawmill::{Message, MessageId, Token};

use super::formats::FormatHistory;
use super::invariant::{Checks, Invariant, Violation};
use super::messages::Pushed;
use super::relief::ClaimOfDeadWorker;
use super::seeks::Seek;
use crate::control::NodeId;
use crate::features::Feature;

/// The rules that a run is held to.
#[derive(Debug, Clone)]
pub struct Rulebook {
    /// How long a worker must be silent before it may be declared dead.
    pub ttl: Duration,
    /// How fast the fastest steady clock runs, in thousandths of the world's.
    pub fastest: u32,
    /// By how much wall clocks may be wrong.
    pub skew: Duration,
    /// For how long a handler snoozes.
    pub snooze: Duration,
    /// The groups.
    pub groups: Vec<GroupRules>,
}

/// The rules of one group.
#[derive(Debug, Clone)]
pub struct GroupRules {
    /// Its name.
    pub name: String,
    /// The topics it works, by name.
    pub topics: Vec<String>,
    /// Strict order per key.
    pub ordered: bool,
    /// At-most-once.
    pub once: bool,
    /// Messages that are out of attempts are only logged.
    pub logs_failures: bool,
    /// How many failures a message may have before it is given up.
    pub retries: u32,
    /// How many of its retries are made at once.
    pub immediate: u32,
    /// The wait before the first retry that is not made at once, doubled each time, and the longest.
    pub backoff: (Duration, Duration),
    /// How many messages a worker may have claimed.
    pub most_claimed: Option<usize>,
    /// How many messages of a topic may run at once.
    pub limit: Option<usize>,
    /// How many messages of a topic may start in a second.
    pub rate: Option<usize>,
    /// How many messages of a key may start in a second.
    pub per_key: Option<usize>,
}

/// A place in the log: topic, shard and number.
pub(super) type Place = (usize, u16, u64);

/// What lies in a place.
pub(super) struct Lying {
    pub(super) id: MessageId,
    pub(super) origin: MessageId,
    pub(super) key: Option<Bytes>,
    pub(super) created: Timestamp,
}

/// A topic or a lane.
pub(super) struct Known {
    pub(super) topic: Topic,
    /// Whose lane it is, and which.
    pub(super) lane: Option<(usize, Lane)>,
    /// It is deleted, or being deleted.
    pub(super) is_deleted: bool,
}

/// A group's entry of one shard, as the ledger has it.
#[derive(Clone)]
pub(super) struct Mirror {
    pub(super) group: usize,
    pub(super) topic: usize,
    pub(super) shard: u16,
    pub(super) state: ShardState,
    /// Numbers of messages that are settled.
    pub(super) settled: BTreeSet<u64>,
    /// Where the group was last sent: what lies after it counts as settled only by claims that were opened since.
    pub(super) sent_to: u64,
    /// What was settled when it was sent there, and when that was: a trim that was under way then may drop it still.
    pub(super) settled_before: BTreeSet<u64>,
    pub(super) sent_at: Duration,
    /// Numbers of messages of claims that were taken from an owner, and how often.
    pub(super) superseded: BTreeMap<u64, u32>,
    /// The same by the pass of the claim: how many workers died holding it.
    pub(super) deaths: BTreeMap<(u32, u64), u32>,
    /// The tokens of claims that were opened by a grab, and not adopted.
    pub(super) grabbed: BTreeSet<Token>,
}

/// A member of a group, as the ledger has it.
pub(super) struct Seen {
    pub(super) node: NodeId,
    pub(super) renewed: Duration,
    pub(super) there: bool,
}

/// The number of a run of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId(pub(super) usize);

/// A handler begins.
#[derive(Debug, Clone, Copy)]
pub struct Started<'a> {
    /// In which group.
    pub group: &'a str,
    /// Of which topic, by name.
    pub topic: &'a str,
    /// The message, or the copy of it that was on a lane.
    pub message: &'a Message,
    /// The id that the push returned.
    pub origin: MessageId,
    /// The fencing number that the handler was given.
    pub token: Token,
    /// On which node.
    pub node: NodeId,
    /// When.
    pub at: Duration,
    /// When, by the world's wall clock.
    pub wall: Timestamp,
}

/// How a handler ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It said done.
    Done,
    /// It failed, or panicked.
    Failed,
    /// It said that it can never succeed.
    GaveUp,
    /// It said not now.
    Snoozed,
    /// It made its worker stop.
    Stopped,
    /// It was dropped while it ran: its worker crashed or was aborted.
    Dropped,
}

/// One run of a handler.
pub(super) struct Run {
    pub(super) group: usize,
    pub(super) id: MessageId,
    pub(super) origin: MessageId,
    pub(super) place: Place,
    pub(super) token: Token,
    /// The worker that runs it, by its member entry.
    pub(super) worker: String,
    pub(super) node: NodeId,
    pub(super) at: Duration,
    pub(super) how: Option<How>,
    /// When it ended, by the world's wall clock.
    pub(super) ended: Option<Timestamp>,
    /// The store has undone what was noted of it, or the claim under which it was started.
    pub(super) undone: bool,
}

/// What a group has made of one message.
#[derive(Default)]
pub(super) struct Handling {
    pub(super) runs: Vec<RunId>,
    /// The copies on the group's retry lane in the order in which they came.
    pub(super) retries: Vec<MessageId>,
    /// The copies on its dead-letter lane.
    pub(super) dead: Vec<MessageId>,
    /// How often it counted as settled because there is a copy of it.
    pub(super) copied: usize,
    pub(super) done: u64,
    /// When it last counted as settled for good.
    pub(super) over: Option<Duration>,
    /// How many copies were on the retry lane and on the dead-letter lane when a dead letter came back, for each time.
    pub(super) lives: Vec<(usize, usize)>,
}

/// Everything that the checker knows.
pub struct Book {
    pub(super) rules: Rulebook,
    pub(super) pushed: Vec<Pushed>,
    /// The messages by the ids that the log has given them.
    pub(super) origins: BTreeMap<MessageId, usize>,
    pub(super) topics: Vec<Known>,
    pub(super) places: BTreeMap<Place, Lying>,
    pub(super) by_id: BTreeMap<(usize, MessageId), Vec<(u16, u64)>>,
    pub(super) mirrors: BTreeMap<String, Mirror>,
    pub(super) members: BTreeMap<String, Seen>,
    pub(super) versions: BTreeMap<String, u64>,
    pub(super) runs: Vec<Run>,
    pub(super) handled: BTreeMap<(usize, MessageId), Handling>,
    pub(super) orphans: Vec<(String, Token)>,
    /// Messages that the log has twice, or a copy of which it has twice.
    pub(super) doubled: BTreeSet<MessageId>,
    /// The groups and topics that are paused, and since when nothing may start any more.
    pub(super) paused: BTreeMap<(usize, String), Duration>,
    /// Those that were paused since faults ended, if only for a while.
    pub(super) held_up: BTreeSet<(usize, String)>,
    /// Messages that somebody wants to cancel.
    pub(super) to_cancel: BTreeSet<MessageId>,
    /// Messages that the ledger names as cancelled.
    pub(super) unwanted: BTreeSet<MessageId>,
    /// Those whose cancellation was acknowledged: when, and the last token of each shard at that moment.
    pub(super) cancelled: BTreeMap<MessageId, (Duration, BTreeMap<String, Token>)>,
    /// What became of dead letters, by the topics of their lanes.
    pub(super) letters: BTreeMap<usize, super::letters::Letters>,
    /// Dead letters on which a person may have decided.
    pub(super) unsure_letters: BTreeSet<Place>,
    /// Messages that the log must not have twice, by number, however often they are pushed.
    pub(super) once_in_the_log: BTreeSet<usize>,
    /// What is known of names that are taken for a time.
    pub(super) periods: super::periods::Periods,
    /// Messages that a schedule pushes, by number.
    pub(super) ticking: BTreeMap<usize, super::ticks::Ticking>,
    /// What the store cannot undo any more.
    pub(super) lasting: super::undone::Lasting,
    /// Which journal a node keeps. Of two nodes with one journal the later is the next life of the earlier.
    pub(super) journals: BTreeMap<NodeId, usize>,
    /// Topics that were deleted, by name, and when that was acknowledged.
    pub(super) deletions: BTreeMap<String, Option<Duration>>,
    /// Places whose message was trimmed.
    pub(super) trimmed: BTreeSet<Place>,
    /// The names of unique messages, by number.
    pub(super) names: BTreeMap<usize, String>,
    /// The shard in which the messages of a key lie, by topic.
    pub(super) key_shards: BTreeMap<(usize, Bytes), u16>,
    /// Where people sent groups.
    pub(super) seeks: Vec<Seek>,
    /// How often the cursor of a shard was moved by a person.
    pub(super) passes: BTreeMap<String, u32>,
    /// What the workers held that died in calm weather.
    pub(super) claims_of_dead: Vec<ClaimOfDeadWorker>,
    /// The time, simulated and by the world's wall clock.
    pub(super) now: Duration,
    pub(super) wall: Timestamp,
    /// The formats of the store, its entries and its members.
    pub(super) formats: FormatHistory,
    /// A trim that was under way when a person sent a group back has dropped messages that are to be read again. They were settled
    /// before, and their retention is over; how often they run now is not promised.
    pub(super) is_void: bool,
    /// Features whose use only the checker can tell.
    pub(super) used: Vec<Feature>,
    checks: Checks,
    violation: Option<Violation>,
    is_news: bool,
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
            lasting: Default::default(),
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
            is_news: false,
        }
    }

    /// True if what was found since does not count; see the field.
    pub fn is_void(&self) -> bool {
        self.is_void
    }

    /// Tells the time: what is noted from now on happens then.
    pub fn it_is(&mut self, now: Duration, wall: Timestamp) {
        (self.now, self.wall) = (now, wall);
    }

    /// The first thing that was wrong.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// The first thing that was wrong, once.
    pub(super) fn take_news(&mut self) -> Option<Violation> {
        if std::mem::take(&mut self.is_news) { self.violation.clone() } else { None }
    }

    /// The features that were used since this was last asked.
    pub(super) fn take_used(&mut self) -> Vec<Feature> {
        std::mem::take(&mut self.used)
    }

    /// How often each invariant was checked.
    pub fn checks(&self) -> &Checks {
        &self.checks
    }

    /// How many handlers were started.
    pub fn starts(&self) -> u64 {
        self.runs.len() as u64
    }

    /// How many pushed messages were acknowledged.
    pub fn acknowledged_count(&self) -> u64 {
        self.pushed.iter().filter(|pushed| pushed.acknowledged.is_some()).count() as u64
    }

    /// The messages whose push was acknowledged, with the topics they were pushed to.
    pub fn acknowledged_ids(&self) -> Vec<(String, MessageId)> {
        let told = |pushed: &Pushed| Some((pushed.intent.topic.clone(), pushed.acknowledged?));
        self.pushed.iter().filter(|pushed| !pushed.is_deleted).filter_map(told).collect()
    }

    /// Somebody is about to cancel a message.
    pub fn cancel_begins(&mut self, id: MessageId) {
        self.to_cancel.insert(id);
    }

    /// A cancellation was acknowledged: no claim that is opened or adopted from now on may start this message.
    pub fn cancelled(&mut self, id: MessageId) {
        let tokens = self.mirrors.iter().map(|(key, mirror)| (key.clone(), mirror.state.token)).collect();
        self.cancelled.entry(id).or_insert((self.now, tokens));
    }

    /// The worker on this node keeps the journal with this number.
    pub fn keeps_journal(&mut self, node: NodeId, journal: usize) {
        self.journals.insert(node, journal);
    }

    /// True if this node is the next life of an earlier one, by its journal.
    pub(super) fn is_next_life(&self, node: NodeId, earlier: NodeId) -> bool {
        node > earlier && self.journals.get(&node).is_some_and(|of| self.journals.get(&earlier) == Some(of))
    }

    /// Checks something: if it does not hold, that is a violation, unless there was one before.
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
            self.is_news = true;
        }
        holds
    }

    /// Notes that something is wrong.
    pub(super) fn wrong(&mut self, invariant: Invariant, what: String, about: Vec<String>) {
        self.check(invariant, false, |_| (what, about));
    }

    pub(super) fn group(&self, name: &str) -> Option<usize> {
        self.rules.groups.iter().position(|group| group.name == name)
    }

    /// The number of a topic or lane, new or known.
    pub(super) fn topic(&mut self, topic: &Topic) -> usize {
        if let Some(known) = self.topics.iter().position(|known| known.topic.uid == topic.uid) {
            return known;
        }
        let lane = topic.name.as_lane();
        let lane = lane.and_then(|(group, lane)| Some((self.group(&group.to_string())?, lane)));
        let is_deleted = self.is_being_deleted(topic.name.base());
        self.topics.push(Known { topic: topic.clone(), lane, is_deleted });
        self.topics.len() - 1
    }

    /// The numbers of the messages of a shard after one number and up to another.
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

    /// True if the same message lies in several places of this topic: the engine could not tell, or had forgotten it.
    pub(super) fn is_doubled(&self, topic: usize, id: MessageId) -> bool {
        self.by_id.get(&(topic, id)).is_some_and(|places| places.len() > 1)
    }

    /// Where a member's entry is, and whether it is there now.
    pub(super) fn member(&self, group: usize, worker: &str) -> Option<&Seen> {
        self.members.get(&format!("members/{}/{worker}", self.rules.groups[group].name))
    }
}
