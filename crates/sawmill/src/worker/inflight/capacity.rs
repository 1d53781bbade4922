//! Capacity: how many more messages to claim, by slots, pace, limits and messages in hand.
//!
//! Topics with priority come first. Nothing is claimed of a paused topic, and of a limited one no more than
//! may start soon.

use sawmill_engine::fault;
use sawmill_engine::runtime::Moment;

use super::InFlight;
use super::claim::HeldClaim;
use super::topic_queue::TopicQueue;

/// With this many messages in hand, more are adopted only later, or by other workers.
const MAX_ADOPTED_IN_HAND: usize = 4000;

impl InFlight {
    /// Returns how many more messages of a topic to claim: as many as the slots can finish soon, less the
    /// messages in hand that would run first.
    pub(crate) fn capacity(&self, topic: usize, now: Moment) -> usize {
        let queue = &self.topics[topic];
        let slots = queue.gate.slots(self.open_slots());
        if !self.may_start(now) || queue.gate.is_paused() || slots == 0 {
            return 0;
        }
        let before = self.in_hand_before(topic);
        // A slot that a later topic has taken counts as taken, unless more of a later topic is ready:
        // messages of this topic must come before those, and must not be kept out.
        let later = &self.topics[topic + 1..];
        let running: usize = match later.iter().all(|queue| queue.ready.is_empty()) {
            true => later.iter().map(|queue| queue.running).sum(),
            false => 0,
        };
        // If slots are idle although enough is in hand, messages wait in key queues. Then more is claimed
        // each time, so that a long key queue does not lead to as many claims as it has messages.
        let unused = slots.saturating_sub(queue.running + queue.startable(now));
        let idle = match self.idle_slots(topic, now).min(unused) {
            0 => 0,
            idle if self.limits.ordered => idle.max(before / 4),
            idle => idle,
        };
        let wanted = queue.pace.target(slots).saturating_sub(before + running).max(idle);
        let strict = self.limits.strict && !fault!(ClaimsTooMany);
        let claimed = if strict { self.claimed() } else { before };
        wanted.min(self.limits.most.saturating_sub(claimed)).min(queue.gate.capacity(queue.ready.len()))
    }

    /// Counts the messages in hand of this topic and those that have priority over it.
    fn in_hand_before(&self, topic: usize) -> usize {
        self.topics[..=topic].iter().map(|queue| queue.in_hand).sum()
    }

    /// Counts the messages that count against a strict limit.
    fn claimed(&self) -> usize {
        self.claims.values().map(HeldClaim::claimed).sum()
    }

    /// True if so much is in hand that nothing more should be adopted. This only protects memory: claims of
    /// dead workers should not wait because this worker is busy.
    pub(crate) fn is_crowded(&self) -> bool {
        self.in_hand() >= self.limits.most.max(MAX_ADOPTED_IN_HAND)
    }

    /// Returns how many more messages this worker may ever start, beside those in hand. Adopting more would
    /// keep them from other workers.
    pub(crate) fn starts_left(&self) -> u64 {
        self.limits
            .starts
            .saturating_sub(self.started)
            .saturating_sub(self.in_hand().saturating_sub(self.running()) as u64)
    }

    /// True if nothing can be claimed before something is reported.
    pub(crate) fn is_full(&self) -> bool {
        self.limits.strict && self.claimed() >= self.limits.most
    }

    /// Counts the slots for which no message in hand could start, of this topic or one that has priority over
    /// it.
    pub(crate) fn idle_slots(&self, topic: usize, now: Moment) -> usize {
        let startable: usize = self.topics[..=topic].iter().map(|queue| queue.startable(now)).sum();
        self.open_slots().saturating_sub(self.running() + startable)
    }

    /// Counts the usable slots: if messages are pulled, only as many as callers wait for.
    fn open_slots(&self) -> usize {
        self.pulls.map_or(self.limits.slots, |pulls| self.limits.slots.min(self.running() + pulls))
    }

    /// True if nothing of this topic may be taken in hand: it is paused, or other workers have all of its
    /// limit.
    pub(crate) fn is_blocked(&self, topic: usize) -> bool {
        self.topics[topic].gate.is_paused() || self.is_taken_by_others(topic)
    }

    /// True if other workers have all of this topic's limit.
    pub(crate) fn is_taken_by_others(&self, topic: usize) -> bool {
        self.topics[topic].gate.is_taken_by_others()
    }

    /// True if the coordinator should be woken: to claim more, to settle messages, or to leave.
    pub(crate) fn wants_coordinator(&self) -> bool {
        let target = self.topics[self.ended].target(self.limits.slots);
        2 * self.in_hand_before(self.ended) <= target || !self.settling.is_empty() || self.stopped
    }

    /// Returns how many more tasks should run messages.
    pub(crate) fn tasks_wanted(&mut self, now: Moment) -> usize {
        self.wake_due(now);
        if !self.may_start(now) {
            return 0;
        }
        let startable: usize = self.topics.iter().map(|queue| queue.startable(now)).sum();
        let slots = self.limits.slots / self.limits.batch;
        let wanted = startable.div_ceil(self.limits.batch).saturating_sub(self.lingering);
        wanted.min(slots.saturating_sub(self.tasks))
    }

    /// Counts the slots that are busy.
    pub(crate) fn busy(&self) -> usize {
        let running = self.running();
        running.div_ceil(self.limits.batch).max(running.min(self.tasks))
    }

    /// Counts the messages that could start now.
    pub(crate) fn ready(&self, now: Moment) -> usize {
        self.topics.iter().map(|queue| queue.startable(now)).sum()
    }

    /// True if another message may run beside the running ones.
    pub(crate) fn has_free_slot(&self) -> bool {
        self.running() < self.limits.slots
    }

    /// Counts the running handlers, including those of lost claims.
    pub(crate) fn running(&self) -> usize {
        self.topics.iter().map(|queue| queue.running).sum()
    }

    /// Counts the messages in hand that are not settled, without those of claims that are being closed.
    pub(crate) fn in_hand(&self) -> usize {
        self.topics.iter().map(|queue| queue.in_hand).sum()
    }

    /// Returns how many handlers were started, and how many messages are done.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.started, self.done)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.claims.is_empty() && self.settling.is_empty() && self.running() == 0
    }

    /// True if nothing in hand needs work: all claims are of blocked topics, and nothing runs, settles or is
    /// to be reported.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = |claim: &HeldClaim| self.is_blocked(claim.topic) && !claim.is_dirty() && !claim.closing;
        self.claims.values().all(idle) && self.settling.is_empty() && self.running() == 0
    }

    /// True if handlers are so quick that progress need not be reported at once.
    pub(crate) fn is_quick(&self) -> bool {
        let slots = self.limits.slots;
        let quick = |queue: &TopicQueue| queue.target(slots) > slots.saturating_mul(4);
        self.topics.iter().filter(|queue| queue.in_hand > 0).all(quick)
    }

    /// Returns when the first waiting message may start: one that waits for its next attempt, or because of a
    /// rate.
    pub(crate) fn next_wait(&self, now: Moment) -> Option<Moment> {
        let waiting = self.waiting.keys().next().map(|(until, _)| *until);
        self.topics.iter().filter_map(|queue| queue.next_start(now)).chain(waiting).min()
    }
}
