//! What others can watch of a running worker: its metrics, its spans and events. All names are in [`crate::observe`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tracing::field::Empty;

use super::item::{Copy, Failed, Start, Verdict};
use super::{Counts, Shared, SourceSpec};
use crate::claim::{Token, WorkerId};
use crate::clock::{Moment, Timestamp};
use crate::event::{Bell, Event};
use crate::ledger::EntryKey;
use crate::observe::{self, GroupMeters, TARGET, TopicMeters, event, outcome, span};
use crate::retry::Failure;
use crate::shard::{Fate, Tally};
use crate::topic::GroupName;
use crate::trace::HandleSpan;

/// What a worker needs to be watched.
pub(super) struct Witness {
    bell: Arc<Bell>,
    /// By the index of the topic.
    topics: Vec<TopicMeters>,
    group: GroupMeters,
    told: Mutex<Told>,
    /// What the report that is on its way says, by source.
    settling: Mutex<BTreeMap<usize, Tally>>,
    /// What the wall clock showed when the steady one began, so that a start needs no look at it.
    wall_offset_ms: AtomicU64,
}

/// What was told last.
struct Told {
    counts: Counts,
    slots: usize,
    busy: usize,
    me: WorkerId,
}

impl Witness {
    pub(super) fn new(bell: Arc<Bell>, group: &GroupName, sources: &[SourceSpec]) -> Self {
        observe::describe();
        let topic = |spec: &SourceSpec| (spec.topic_index, spec.origin.topic.clone());
        let topics: BTreeMap<_, _> = sources.iter().map(topic).collect();
        let told = Told { counts: Counts::default(), slots: 0, busy: 0, me: WorkerId::new("") };
        Self {
            bell,
            topics: topics.values().map(|topic| TopicMeters::new(topic, group)).collect(),
            group: GroupMeters::new(group),
            told: Mutex::new(told),
            settling: Mutex::default(),
            wall_offset_ms: AtomicU64::new(0),
        }
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn settling(&self) -> MutexGuard<'_, BTreeMap<usize, Tally>> {
        self.settling.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// What the wall clock shows at this moment.
    fn wall(&self, now: Moment) -> Timestamp {
        Timestamp::from_millis(self.wall_offset_ms.load(Ordering::Relaxed)) + now.since(Moment::default())
    }
}

impl Shared {
    fn meters(&self, source: usize) -> &TopicMeters {
        &self.witness.topics[self.sources[source].topic_index]
    }

    fn me(&self) -> WorkerId {
        self.witness.told().me.clone()
    }

    // ── handlers ──

    /// A handler is about to be called. It is to run in the span.
    pub(super) fn saw_start(&self, start: &Start, now: Moment) -> HandleSpan {
        let meters = self.meters(start.source);
        let (item, origin) = (&start.item, &self.sources[start.source].origin);
        meters.started.increment(1);
        if item.failures.is_empty() {
            let could = item.message.due.map_or(item.message.created, |due| due.max(item.message.created));
            meters.wait_seconds.record(self.witness.wall(now).since(could).as_secs_f64());
        }
        self.witness.bell.ring(|| Event::Started {
            topic: origin.topic.clone(),
            group: origin.group.clone(),
            id: item.message.origin(),
            worker: self.me(),
            attempt: item.attempt(),
        });
        HandleSpan::new(&item.message, origin, item.attempt(), || {
            tracing::info_span!(
                target: TARGET,
                span::HANDLE,
                topic = %origin.topic,
                group = %origin.group,
                id = %item.message.origin(),
                attempt = item.attempt(),
                token = start.token.0,
                worker = %self.me(),
                outcome = Empty,
            )
        })
    }

    /// A handler has ended, and this follows.
    pub(super) fn saw_end(&self, start: &Start, verdict: &Verdict, span: &HandleSpan) {
        span.end(outcome_of(verdict), error_in(verdict));
        let next = next_in(verdict);
        if let Some((next, failure)) = next {
            let meters = self.meters(start.source);
            let origin = &self.sources[start.source].origin;
            let (topic, group, worker) = (&origin.topic, &origin.group, self.me());
            let (id, attempt) = (start.item.message.origin(), start.item.attempt());
            let next_ms = next.as_millis() as u64;
            if let Some(failure) = failure {
                meters.retried.increment(1);
                let error = failure.error.as_str();
                tracing::info!(name: event::RETRY, target: TARGET, %topic, %group, %id, %worker, attempt, next_ms, error, "failed; it will be tried again");
            } else {
                meters.snoozed.increment(1);
                tracing::debug!(name: event::SNOOZE, target: TARGET, %topic, %group, %id, %worker, attempt, next_ms, "put off; it will come again");
            }
        }
        self.witness.bell.ring(|| self.end_event(start, verdict));
    }

    /// So long did a handler run.
    pub(super) fn saw_took(&self, source: usize, took: Duration) {
        self.meters(source).handler_seconds.record(took.as_secs_f64());
    }

    fn end_event(&self, start: &Start, verdict: &Verdict) -> Option<Event> {
        let origin = &self.sources[start.source].origin;
        let (topic, group) = (origin.topic.clone(), origin.group.clone());
        let (id, attempt, worker) = (start.item.message.origin(), start.item.attempt(), self.me());
        let next = next_in(verdict).map(|(next, _)| next);
        Some(match (verdict, next) {
            (Verdict::Settled(Fate::Done), _) => Event::Done { topic, group, id, worker, attempt },
            (Verdict::Settled(Fate::Dropped), _) => Event::Dropped { topic, group, id, worker },
            (Verdict::Settled(Fate::Cancelled), _) => Event::Cancelled { topic, group, id, worker },
            (Verdict::Again { failure: Some(failure), .. } | Verdict::Copy(_, Some(failure)), next) => {
                let error = failure.error.clone();
                Event::Failed { topic, group, id, worker, attempt, error, next }
            }
            (_, Some(next)) => Event::Snoozed { topic, group, id, worker, next },
            // Nothing has become of it, or a dead letter is made of it, which is told when it is there.
            _ => return None,
        })
    }

    /// The copies of these messages are on their lanes.
    pub(super) fn saw_copies(&self, failed: &[Failed]) {
        for failed in failed {
            let Copy::Dead { reason } = &failed.copy else { continue };
            let (id, origin) = (failed.item.message.origin(), &self.sources[failed.source].origin);
            let (topic, group, worker) = (&origin.topic, &origin.group, self.me());
            tracing::warn!(name: event::DEAD, target: TARGET, %topic, %group, %id, %worker, reason, "dead letter");
            let (topic, group, reason) = (topic.clone(), group.clone(), reason.clone());
            self.witness.bell.ring(|| Event::Dead { topic, group, id, worker, reason });
        }
    }

    // ── claims ──

    /// A block was claimed.
    pub(super) fn saw_grab(&self, source: usize, worker: &WorkerId, token: Token, count: usize) {
        let spec = &self.sources[source];
        tracing::debug!(
            name: event::GRAB,
            target: TARGET,
            topic = %spec.topic.name,
            group = %self.group,
            %worker,
            shard = spec.shard,
            token = token.0,
            count,
            "grabbed"
        );
    }

    /// Claims that nobody worked are this worker's.
    pub(super) fn saw_adoption(&self, source: usize, worker: &WorkerId, claims: usize) {
        let (spec, group) = (&self.sources[source], &self.group);
        let (topic, shard) = (&spec.topic.name, spec.shard);
        tracing::info!(name: event::ADOPT, target: TARGET, %topic, %group, %worker, shard, claims, "took over claims that nobody worked");
        self.witness.bell.ring(|| Event::Adopted {
            topic: spec.origin.topic.clone(),
            group: group.clone(),
            worker: worker.clone(),
            claims,
        });
    }

    /// The claims of a shard are free for others.
    pub(super) fn saw_give_back(&self, source: usize) {
        let (spec, worker) = (&self.sources[source], self.me());
        let (topic, group, shard) = (&spec.topic.name, &self.group, spec.shard);
        tracing::debug!(name: event::GIVE_BACK, target: TARGET, %topic, %group, %worker, shard, "given back");
    }

    /// Messages come in hand: from now on the wall clock is taken to go like the steady one.
    pub(super) fn saw_time(&self) {
        let since_beginning = self.env().now().since(Moment::default());
        let offset = self.env().wall() - since_beginning;
        self.witness.wall_offset_ms.store(offset.as_millis(), Ordering::Relaxed);
    }

    /// A report is on its way that takes the shard's tally from one to the other.
    pub(super) fn saw_settling(&self, source: usize, before: Tally, after: Tally) {
        let more = Tally {
            done: after.done.saturating_sub(before.done),
            retried: after.retried.saturating_sub(before.retried),
            dead: after.dead.saturating_sub(before.dead),
            dropped: after.dropped.saturating_sub(before.dropped),
            cancelled: after.cancelled.saturating_sub(before.cancelled),
        };
        self.witness.settling().insert(source, more);
    }

    /// The report is in the ledger. Only now do its messages count: nobody else counts them too.
    pub(super) fn saw_settled(&self, source: usize) {
        let Some(more) = self.witness.settling().remove(&source) else { return };
        let meters = self.meters(source);
        for (counter, count) in [
            (&meters.done, more.done),
            (&meters.dead, more.dead),
            (&meters.dropped, more.dropped),
            (&meters.cancelled, more.cancelled),
        ] {
            if count > 0 {
                counter.increment(count);
            }
        }
    }

    // ── members ──

    /// This worker has joined its group under a new id.
    pub(super) fn saw_join(&self, worker: &WorkerId) {
        self.witness.told().me = worker.clone();
        tracing::info!(name: event::JOIN, target: TARGET, group = %self.group, %worker, "joined the group");
        self.witness.bell.ring(|| Event::Joined { group: self.group.clone(), worker: worker.clone() });
    }

    /// This worker has left its group.
    pub(super) fn saw_leave(&self) {
        let (group, worker) = (&self.group, self.me());
        tracing::info!(name: event::LEAVE, target: TARGET, %group, %worker, "left the group");
        self.witness.bell.ring(|| Event::Left { group: group.clone(), worker });
    }

    /// This worker was declared dead by others.
    pub(super) fn saw_eviction(&self) {
        let (group, worker) = (&self.group, self.me());
        tracing::warn!(name: event::EVICTED, target: TARGET, %group, %worker, "others have declared this worker dead and run what it held; it joins anew");
        self.witness.bell.ring(|| Event::Evicted { group: group.clone(), worker });
    }

    /// This worker has declared another one dead.
    pub(super) fn saw_death(&self, member: &EntryKey) {
        observe::declared_dead(member);
        let worker = || WorkerId::new(member.last());
        self.witness.bell.ring(|| Event::DeclaredDead { group: self.group.clone(), worker: worker() });
    }

    /// The set of workers has changed.
    pub(super) fn saw_rebalance(&self, worker: &WorkerId, members: usize) {
        let group = &self.group;
        tracing::info!(name: event::REBALANCE, target: TARGET, %group, %worker, members, "the set of workers has changed");
        self.witness.bell.ring(|| Event::Rebalanced {
            group: group.clone(),
            worker: worker.clone(),
            members,
        });
    }

    // ── the worker as a whole ──

    /// Brings the metrics of the worker as a whole up to date.
    pub(super) fn saw_round(&self) {
        self.tell(self.builder.slots, self.bench().running());
    }

    /// The worker has nothing more to say.
    pub(super) fn saw_last_round(&self) {
        self.tell(0, 0);
    }

    fn tell(&self, slots: usize, busy: usize) {
        let now = self.counts().clone();
        let meters = &self.witness.group;
        let mut told = self.witness.told();
        for (counter, now, then) in [
            (&meters.adopted, now.adopted, told.counts.adopted),
            (&meters.conflicts, now.conflicts, told.counts.conflicts),
            (&meters.rebalances, now.rebalances, told.counts.rebalances),
            (&meters.commits, now.commits, told.counts.commits),
            (&meters.reads, now.reads, told.counts.reads),
        ] {
            if now > then {
                counter.increment(now - then);
            }
        }
        // Several workers of a group may share a gauge: each adds what has changed.
        for (gauge, now, then) in [(&meters.slots, slots, told.slots), (&meters.busy, busy, told.busy)] {
            if now != then {
                gauge.increment(now as f64 - then as f64);
            }
        }
        (told.counts, told.slots, told.busy) = (now, slots, busy);
    }
}

fn outcome_of(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Settled(Fate::Done) => outcome::DONE,
        Verdict::Settled(Fate::Dropped) => outcome::DROPPED,
        Verdict::Settled(Fate::Cancelled) => outcome::CANCELLED,
        // A message without a copy is settled by its verdict; this is how its name is given back.
        Verdict::Copy(Copy::None { .. }, _) => outcome::DONE,
        Verdict::Settled(Fate::Dead) | Verdict::Copy(Copy::Dead { .. }, _) => outcome::DEAD,
        Verdict::Settled(Fate::Retried) | Verdict::Again { failure: Some(_), .. } => outcome::RETRIED,
        Verdict::Copy(Copy::Retry { counted: true, .. }, _) => outcome::RETRIED,
        Verdict::Copy(Copy::Retry { .. }, _) | Verdict::Again { failure: None, .. } => outcome::SNOOZED,
        Verdict::Untouched => outcome::UNTOUCHED,
    }
}

/// What was wrong, if the attempt failed.
fn error_in(verdict: &Verdict) -> Option<&str> {
    match verdict {
        Verdict::Again { failure: Some(failure), .. } | Verdict::Copy(_, Some(failure)) => {
            Some(&failure.error)
        }
        Verdict::Copy(Copy::Dead { reason }, None) => Some(reason),
        Verdict::Settled(Fate::Dropped) => Some("given up"),
        _ => None,
    }
}

/// How long the message waits for its next attempt, if there is one, and why; without a reason it was snoozed.
fn next_in(verdict: &Verdict) -> Option<(Duration, Option<&Failure>)> {
    match verdict {
        Verdict::Again { after, failure } => Some((*after, failure.as_ref())),
        Verdict::Copy(Copy::Retry { after, .. }, failure) => Some((*after, failure.as_ref())),
        _ => None,
    }
}
