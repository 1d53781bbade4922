//! A topic queue: the messages of one topic, its retry lane included, that could start.

use std::collections::VecDeque;

use sawmill_engine::runtime::Moment;

use super::gate::Gate;
use super::message::HeldMessage;
use super::pace::Pace;

/// The messages of one topic that are in hand.
pub(super) struct TopicQueue {
    /// Messages that could start if the gate allows it.
    pub(super) ready: VecDeque<HeldMessage>,
    /// Unsettled messages of claims that are not being closed.
    pub(super) in_hand: usize,
    /// Running handlers, including those of lost claims.
    pub(super) running: usize,
    pub(super) pace: Pace,
    pub(super) gate: Gate,
}

impl TopicQueue {
    pub(super) fn new(gate: Gate, ahead: usize) -> Self {
        Self { ready: VecDeque::new(), in_hand: 0, running: 0, pace: Pace::new(ahead), gate }
    }

    /// Returns how many messages could start now.
    pub(super) fn startable(&self, now: Moment) -> usize {
        self.ready.len().min(self.gate.permits(self.running, now))
    }

    /// Returns how many messages to have in hand with this many slots.
    pub(super) fn target(&self, slots: usize) -> usize {
        self.pace.target(self.gate.slots(slots))
    }

    /// Returns when a ready message may start that the rate does not allow to start now.
    pub(super) fn next_start(&self, now: Moment) -> Option<Moment> {
        let blocked = self.gate.is_paused() || self.gate.slots(usize::MAX) <= self.running;
        if blocked || self.ready.is_empty() || self.startable(now) > 0 {
            return None;
        }
        self.gate.next_start(now)
    }
}
