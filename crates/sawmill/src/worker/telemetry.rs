//! Telemetry of a running worker: its metrics, spans and events. All names are in [`crate::telemetry`].

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use sawmill_engine::model::{Failure, Fate, GroupName, Tally, Token, WorkerId};
use sawmill_engine::runtime::{Moment, Timestamp};
use tracing::field::Empty;

use crate::telemetry::{
    self, Event, EventBus, GroupMeters, HandleSpan, TARGET, TopicMeters, event, outcome, span,
};
use crate::worker::inflight::message::{Disposition, LaneCopy, Settling, Start};
use crate::worker::{Counts, ShardSource, Shared};

/// The meters and the event bus of a worker, and the values that were recorded last.
pub(super) struct WorkerTelemetry {
    events: Arc<EventBus>,
    /// By the index of the topic.
    topics: Vec<TopicMeters>,
    group: GroupMeters,
    last_recorded: Mutex<LastRecorded>,
    /// The changes of each shard's tally in reports that are being written, by source.
    settling: Mutex<BTreeMap<usize, Tally>>,
    /// The wall time at the steady clock's zero, so that a start need not read the wall clock.
    wall_offset_ms: AtomicU64,
}

/// The values that were recorded last.
struct LastRecorded {
    counts: Counts,
    slots: usize,
    busy: usize,
    me: WorkerId,
}

impl WorkerTelemetry {
    pub(super) fn new(events: Arc<EventBus>, group: &GroupName, sources: &[ShardSource]) -> Self {
        telemetry::describe();
        let topic = |source: &ShardSource| (source.topic_index, source.origin.topic.clone());
        let topics: BTreeMap<_, _> = sources.iter().map(topic).collect();
        let last_recorded =
            LastRecorded { counts: Counts::default(), slots: 0, busy: 0, me: WorkerId::new("") };
        Self {
            events,
            topics: topics.values().map(|topic| TopicMeters::new(topic, group)).collect(),
            group: GroupMeters::new(group),
            last_recorded: Mutex::new(last_recorded),
            settling: Mutex::default(),
            wall_offset_ms: AtomicU64::new(0),
        }
    }

    fn last_recorded(&self) -> MutexGuard<'_, LastRecorded> {
        self.last_recorded.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn settling(&self) -> MutexGuard<'_, BTreeMap<usize, Tally>> {
        self.settling.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Converts a moment to wall time.
    fn wall(&self, now: Moment) -> Timestamp {
        Timestamp::from_millis(self.wall_offset_ms.load(Ordering::Relaxed)) + now.since(Moment::default())
    }
}

impl Shared {
    fn meters(&self, source: usize) -> &TopicMeters {
        &self.telemetry.topics[self.sources[source].topic_index]
    }

    fn me(&self) -> WorkerId {
        self.telemetry.last_recorded().me.clone()
    }

    // ── handlers ──

    /// Records that a handler is about to be called. It must run in the returned span.
    pub(super) fn record_start(&self, start: &Start, now: Moment) -> HandleSpan {
        let meters = self.meters(start.source);
        let (held, origin) = (&start.held, &self.sources[start.source].origin);
        meters.started.increment(1);
        if held.failures.is_empty() {
            let ready_at = held.message.due.map_or(held.message.created, |due| due.max(held.message.created));
            meters.wait_seconds.record(self.telemetry.wall(now).since(ready_at).as_secs_f64());
        }
        self.telemetry.events.publish(|| Event::Started {
            topic: origin.topic.clone(),
            group: origin.group.clone(),
            id: held.message.origin(),
            worker: self.me(),
            attempt: held.attempt(),
        });
        HandleSpan::new(&held.message, (&origin.topic, &origin.group), held.attempt(), || {
            tracing::info_span!(
                target: TARGET,
                span::HANDLE,
                topic = %origin.topic,
                group = %origin.group,
                id = %held.message.origin(),
                attempt = held.attempt(),
                token = start.token.0,
                worker = %self.me(),
                outcome = Empty,
            )
        })
    }

    /// Records that a handler has ended, and the disposition of its message.
    pub(super) fn record_end(&self, start: &Start, disposition: &Disposition, span: &HandleSpan) {
        span.end(outcome_of(disposition), error_in(disposition));
        let next = next_in(disposition);
        if let Some((next, failure)) = next {
            let meters = self.meters(start.source);
            let origin = &self.sources[start.source].origin;
            let (topic, group, worker) = (&origin.topic, &origin.group, self.me());
            let (id, attempt) = (start.held.message.origin(), start.held.attempt());
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
        self.telemetry.events.publish(|| self.end_event(start, disposition));
    }

    /// Records how long a handler ran.
    pub(super) fn record_took(&self, source: usize, took: Duration) {
        self.meters(source).handler_seconds.record(took.as_secs_f64());
    }

    fn end_event(&self, start: &Start, disposition: &Disposition) -> Option<Event> {
        let origin = &self.sources[start.source].origin;
        let (topic, group) = (origin.topic.clone(), origin.group.clone());
        let (id, attempt, worker) = (start.held.message.origin(), start.held.attempt(), self.me());
        let next = next_in(disposition).map(|(next, _)| next);
        Some(match (disposition, next) {
            (Disposition::Settled(Fate::Done), _) => Event::Done { topic, group, id, worker, attempt },
            (Disposition::Settled(Fate::Dropped), _) => Event::Dropped { topic, group, id, worker },
            (Disposition::Settled(Fate::Cancelled), _) => Event::Cancelled { topic, group, id, worker },
            (
                Disposition::Again { failure: Some(failure), .. } | Disposition::OnLane(_, Some(failure)),
                next,
            ) => {
                let error = failure.error.clone();
                Event::Failed { topic, group, id, worker, attempt, error, next }
            }
            (_, Some(next)) => Event::Snoozed { topic, group, id, worker, next },
            // The message is untouched, or it becomes a dead letter, which is recorded once its copy is
            // appended.
            _ => return None,
        })
    }

    /// Records that the copies of these messages are on their lanes.
    pub(super) fn record_copies(&self, settling: &[Settling]) {
        for settling in settling {
            let LaneCopy::Dead { reason } = &settling.copy else { continue };
            let (id, origin) = (settling.held.message.origin(), &self.sources[settling.source].origin);
            let (topic, group, worker) = (&origin.topic, &origin.group, self.me());
            tracing::warn!(name: event::DEAD, target: TARGET, %topic, %group, %id, %worker, reason, "dead letter");
            let (topic, group, reason) = (topic.clone(), group.clone(), reason.clone());
            self.telemetry.events.publish(|| Event::Dead { topic, group, id, worker, reason });
        }
    }

    // ── claims ──

    /// Records that a block was claimed.
    pub(super) fn record_claim(&self, source: usize, worker: &WorkerId, token: Token, count: usize) {
        let source = &self.sources[source];
        tracing::debug!(
            name: event::CLAIM,
            target: TARGET,
            topic = %source.topic.name,
            group = %self.group,
            %worker,
            shard = source.shard,
            token = token.0,
            count,
            "claimed"
        );
    }

    /// Records that this worker took over claims without a living owner.
    pub(super) fn record_adoption(&self, source: usize, worker: &WorkerId, claims: usize) {
        let (source, group) = (&self.sources[source], &self.group);
        let (topic, shard) = (&source.topic.name, source.shard);
        tracing::info!(name: event::ADOPT, target: TARGET, %topic, %group, %worker, shard, claims, "took over claims that nobody worked");
        self.telemetry.events.publish(|| Event::Adopted {
            topic: source.origin.topic.clone(),
            group: group.clone(),
            worker: worker.clone(),
            claims,
        });
    }

    /// Records that the claims of a shard were given back.
    pub(super) fn record_give_back(&self, source: usize) {
        let (source, worker) = (&self.sources[source], self.me());
        let (topic, group, shard) = (&source.topic.name, &self.group, source.shard);
        tracing::debug!(name: event::GIVE_BACK, target: TARGET, %topic, %group, %worker, shard, "given back");
    }

    /// Reads the wall clock when messages come in hand. Until the next time it is assumed to run like the
    /// steady clock.
    pub(super) fn record_time(&self) {
        let since_beginning = self.env().now().since(Moment::default());
        let offset = self.env().wall() - since_beginning;
        self.telemetry.wall_offset_ms.store(offset.as_millis(), Ordering::Relaxed);
    }

    /// Notes that a report which changes the shard's tally is being written.
    pub(super) fn record_settling(&self, source: usize, before: Tally, after: Tally) {
        let more = Tally {
            done: after.done.saturating_sub(before.done),
            retried: after.retried.saturating_sub(before.retried),
            dead: after.dead.saturating_sub(before.dead),
            dropped: after.dropped.saturating_sub(before.dropped),
            cancelled: after.cancelled.saturating_sub(before.cancelled),
        };
        self.telemetry.settling().insert(source, more);
    }

    /// Records that the report is in the ledger. Only now are its messages counted, so that no other worker
    /// counts them too.
    pub(super) fn record_settled(&self, source: usize) {
        let Some(more) = self.telemetry.settling().remove(&source) else { return };
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

    /// Records that this worker has joined its group under a new id.
    pub(super) fn record_join(&self, worker: &WorkerId) {
        self.telemetry.last_recorded().me = worker.clone();
        tracing::info!(name: event::JOIN, target: TARGET, group = %self.group, %worker, "joined the group");
        self.telemetry.events.publish(|| Event::Joined { group: self.group.clone(), worker: worker.clone() });
    }

    /// Records that this worker has left its group.
    pub(super) fn record_leave(&self) {
        let (group, worker) = (&self.group, self.me());
        tracing::info!(name: event::LEAVE, target: TARGET, %group, %worker, "left the group");
        self.telemetry.events.publish(|| Event::Left { group: group.clone(), worker });
    }

    /// Records that others declared this worker dead.
    pub(super) fn record_eviction(&self) {
        let (group, worker) = (&self.group, self.me());
        tracing::warn!(name: event::EVICTED, target: TARGET, %group, %worker, "others have declared this worker dead and run what it held; it joins anew");
        self.telemetry.events.publish(|| Event::Evicted { group: group.clone(), worker });
    }

    /// Records that the set of workers has changed.
    pub(super) fn record_rebalance(&self, worker: &WorkerId, workers: usize) {
        let group = &self.group;
        tracing::info!(name: event::REBALANCE, target: TARGET, %group, %worker, workers, "the set of workers has changed");
        self.telemetry.events.publish(|| Event::Rebalanced {
            group: group.clone(),
            worker: worker.clone(),
            workers,
        });
    }

    // ── the worker as a whole ──

    /// Updates the metrics of the worker as a whole.
    pub(super) fn record_round(&self) {
        self.record_totals(self.builder.slots, self.inflight().running());
    }

    /// Updates these metrics for the last time: the worker has no slots any more.
    pub(super) fn record_last_round(&self) {
        self.record_totals(0, 0);
    }

    fn record_totals(&self, slots: usize, busy: usize) {
        let now = self.counts().clone();
        let meters = &self.telemetry.group;
        let mut last = self.telemetry.last_recorded();
        for (counter, now, then) in [
            (&meters.adopted, now.adopted, last.counts.adopted),
            (&meters.conflicts, now.conflicts, last.counts.conflicts),
            (&meters.rebalances, now.rebalances, last.counts.rebalances),
            (&meters.commits, now.commits, last.counts.commits),
            (&meters.reads, now.reads, last.counts.reads),
        ] {
            if now > then {
                counter.increment(now - then);
            }
        }
        // Several workers of a group may share a gauge, so each adds its own change.
        for (gauge, now, then) in [(&meters.slots, slots, last.slots), (&meters.busy, busy, last.busy)] {
            if now != then {
                gauge.increment(now as f64 - then as f64);
            }
        }
        (last.counts, last.slots, last.busy) = (now, slots, busy);
    }
}

fn outcome_of(disposition: &Disposition) -> &'static str {
    match disposition {
        Disposition::Settled(Fate::Done) => outcome::DONE,
        Disposition::Settled(Fate::Dropped) => outcome::DROPPED,
        Disposition::Settled(Fate::Cancelled) => outcome::CANCELLED,
        // Never a disposition: a message without a copy only waits for its name to be given back.
        Disposition::OnLane(LaneCopy::None { .. }, _) => outcome::DONE,
        Disposition::Settled(Fate::Dead) | Disposition::OnLane(LaneCopy::Dead { .. }, _) => outcome::DEAD,
        Disposition::Settled(Fate::Retried) | Disposition::Again { failure: Some(_), .. } => outcome::RETRIED,
        Disposition::OnLane(LaneCopy::Retry { counted: true, .. }, _) => outcome::RETRIED,
        Disposition::OnLane(LaneCopy::Retry { .. }, _) | Disposition::Again { failure: None, .. } => {
            outcome::SNOOZED
        }
        Disposition::Untouched => outcome::UNTOUCHED,
    }
}

/// Returns the error of a failed attempt.
fn error_in(disposition: &Disposition) -> Option<&str> {
    match disposition {
        Disposition::Again { failure: Some(failure), .. } | Disposition::OnLane(_, Some(failure)) => {
            Some(&failure.error)
        }
        Disposition::OnLane(LaneCopy::Dead { reason }, None) => Some(reason),
        Disposition::Settled(Fate::Dropped) => Some("given up"),
        _ => None,
    }
}

/// Returns how long the message waits for its next attempt, if there is one, and the failure that caused it;
/// a snoozed message has none.
fn next_in(disposition: &Disposition) -> Option<(Duration, Option<&Failure>)> {
    match disposition {
        Disposition::Again { after, failure } => Some((*after, failure.as_ref())),
        Disposition::OnLane(LaneCopy::Retry { after, .. }, failure) => Some((*after, failure.as_ref())),
        _ => None,
    }
}
