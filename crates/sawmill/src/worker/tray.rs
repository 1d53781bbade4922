//! A tray: what a worker has in hand of one topic, its retry lane included.

use std::collections::VecDeque;

use super::gate::Gate;
use super::item::Item;
use super::pace::Pace;
use crate::clock::Moment;

/// What is in hand of one topic.
pub(super) struct Tray {
    /// What could start, but for the gate.
    pub(super) ready: VecDeque<Item>,
    /// Unsettled messages of claims that are not being closed.
    pub(super) in_hand: usize,
    /// Handlers that run, also those of claims that were lost.
    pub(super) running: usize,
    pub(super) pace: Pace,
    pub(super) gate: Gate,
}

impl Tray {
    pub(super) fn new(gate: Gate, ahead: usize) -> Self {
        Self { ready: VecDeque::new(), in_hand: 0, running: 0, pace: Pace::new(ahead), gate }
    }

    /// How many messages could start now.
    pub(super) fn startable(&self, now: Moment) -> usize {
        self.ready.len().min(self.gate.permits(self.running, now))
    }

    /// How many messages to have in hand, with so many slots.
    pub(super) fn target(&self, slots: usize) -> usize {
        self.pace.target(self.gate.slots(slots))
    }

    /// When something that is ready may start that may not now, because of the rate.
    pub(super) fn next_start(&self, now: Moment) -> Option<Moment> {
        let shut = self.gate.is_paused() || self.gate.slots(usize::MAX) <= self.running;
        if shut || self.ready.is_empty() || self.startable(now) > 0 {
            return None;
        }
        self.gate.next_start(now)
    }
}
