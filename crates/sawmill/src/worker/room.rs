//! How much to take in hand, by what is there: topics that have priority first, paused ones not at all, limited ones no
//! more than they may start soon.

use super::{Bench, Held};
use crate::clock::Moment;
use crate::planted::{self, Bug};
use crate::worker::tray::Tray;

/// With so many messages in hand, adopting more is left to others, or to later.
const CROWDED: usize = 4000;

impl Bench {
    /// How many more messages of a topic to grab: what the slots can finish soon, less what is in hand and would not have to
    /// wait for it.
    pub(crate) fn room(&self, topic: usize, now: Moment) -> usize {
        let tray = &self.trays[topic];
        let slots = tray.gate.slots(self.open_slots());
        if !self.may_start(now) || tray.gate.is_paused() || slots == 0 {
            return 0;
        }
        let before = self.in_hand_before(topic);
        // A slot that a later topic has taken counts as taken, unless more of that topic waits in hand: then this one is
        // to come before it, and must not be kept out.
        let later = &self.trays[topic + 1..];
        let running: usize = match later.iter().all(|tray| tray.ready.is_empty()) {
            true => later.iter().map(|tray| tray.running).sum(),
            false => 0,
        };
        // Slots that are idle although there is enough in hand wait behind lines: more is grabbed each time, so that a long
        // line does not make as many claims as it has messages.
        let unused = slots.saturating_sub(tray.running + tray.startable(now));
        let idle = match self.idle_slots(topic, now).min(unused) {
            0 => 0,
            idle if self.limits.hoards => idle.max(before / 4),
            idle => idle,
        };
        let wanted = tray.pace.target(slots).saturating_sub(before + running).max(idle);
        let strict = self.limits.strict && !planted::is(Bug::ClaimsTooMany);
        let claimed = if strict { self.claimed() } else { before };
        wanted.min(self.limits.most.saturating_sub(claimed)).min(tray.gate.room(tray.ready.len()))
    }

    /// How many messages are in hand of this topic and those that have priority over it.
    fn in_hand_before(&self, topic: usize) -> usize {
        self.trays[..=topic].iter().map(|tray| tray.in_hand).sum()
    }

    /// How many messages count against a strict limit.
    fn claimed(&self) -> usize {
        self.held.values().map(|held| held.claimed).sum()
    }

    /// True if so much is in hand that nothing more should be adopted. What the dead left is not to wait for a worker that
    /// is merely busy, so this is about memory alone.
    pub(crate) fn is_crowded(&self) -> bool {
        self.in_hand >= self.limits.most.max(CROWDED)
    }

    /// How many more messages this worker may ever start, beside those in hand: adopting more would keep them from others.
    pub(crate) fn starts_left(&self) -> u64 {
        self.limits
            .starts
            .saturating_sub(self.started)
            .saturating_sub(self.in_hand.saturating_sub(self.running) as u64)
    }

    /// True if nothing can be grabbed before something is reported.
    pub(crate) fn is_full(&self) -> bool {
        self.limits.strict && self.claimed() >= self.limits.most
    }

    /// Slots for which there is no message in hand that could start, of this topic or one that has priority over it.
    pub(crate) fn idle_slots(&self, topic: usize, now: Moment) -> usize {
        let startable: usize = self.trays[..=topic].iter().map(|tray| tray.startable(now)).sum();
        self.open_slots().saturating_sub(self.running + startable)
    }

    /// The slots that there is a use for: where messages are pulled, only as many as somebody asks for.
    fn open_slots(&self) -> usize {
        self.pulls.map_or(self.limits.slots, |pulls| self.limits.slots.min(self.running + pulls))
    }

    /// True if nothing of this topic is to be taken in hand: it is paused, or its limit is others'.
    pub(crate) fn is_shut(&self, topic: usize) -> bool {
        self.trays[topic].gate.is_paused() || self.is_others(topic)
    }

    /// True if other workers have all of this topic's limit.
    pub(crate) fn is_others(&self, topic: usize) -> bool {
        self.trays[topic].gate.is_others()
    }

    /// True if the foreman has something to do: to grab, to settle, to report a claim that is finished.
    pub(crate) fn wants_foreman(&self) -> bool {
        let target = self.trays[self.ended].target(self.limits.slots);
        2 * self.in_hand_before(self.ended) <= target || !self.failed.is_empty() || self.stopped
    }

    /// How many more slots there is work for.
    pub(crate) fn runners_wanted(&mut self, now: Moment) -> usize {
        self.ripen(now);
        if !self.may_start(now) {
            return 0;
        }
        let startable: usize = self.trays.iter().map(|tray| tray.startable(now)).sum();
        let slots = self.limits.slots / self.limits.batch;
        let wanted = startable.div_ceil(self.limits.batch).saturating_sub(self.lingering);
        wanted.min(slots.saturating_sub(self.runners))
    }

    /// How many tasks run messages now.
    pub(crate) fn busy(&self) -> usize {
        self.running.div_ceil(self.limits.batch).max(self.running.min(self.runners))
    }

    /// How many messages could start now.
    pub(crate) fn ready(&self, now: Moment) -> usize {
        self.trays.iter().map(|tray| tray.startable(now)).sum()
    }

    /// True if another message may run beside those that do.
    pub(crate) fn has_free_slot(&self) -> bool {
        self.running < self.limits.slots
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand
    }

    /// How many handlers were started, and how many messages are done.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.started, self.done)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty() && self.failed.is_empty() && self.running == 0
    }

    /// True if there is nothing to do about what is in hand, now that some topics are shut.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = |held: &Held| self.is_shut(held.topic) && !held.dirty && !held.closing;
        self.held.values().all(idle) && self.failed.is_empty() && self.running == 0
    }

    /// True if handlers are so quick that progress need not be reported at once.
    pub(crate) fn is_quick(&self) -> bool {
        let slots = self.limits.slots;
        let quick = |tray: &Tray| tray.target(slots) > slots.saturating_mul(4);
        self.trays.iter().filter(|tray| tray.in_hand > 0).all(quick)
    }

    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// When the first message may start that has to wait: for its next attempt, or because of a rate.
    pub(crate) fn next_wait(&self, now: Moment) -> Option<Moment> {
        let waiting = self.waiting.keys().next().map(|(until, _)| *until);
        self.trays.iter().filter_map(|tray| tray.next_start(now)).chain(waiting).min()
    }
}
