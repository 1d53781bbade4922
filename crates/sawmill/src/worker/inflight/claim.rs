//! A claim in hand: the stage of each of its messages, and their fates.

use std::collections::BTreeMap;
use std::sync::Arc;

use sawmill_engine::model::{Claim, Fate, Message, Progress, Report, Token};
use tokio_util::sync::CancellationToken;

use super::message::Stage;
use crate::store::cancel::CancelledMessages;

/// A claim that is to be taken in hand.
pub(crate) struct IncomingClaim {
    pub(crate) source: usize,
    /// The index of the topic; lanes count as the topic that they belong to.
    pub(crate) topic: usize,
    pub(crate) claim: Claim,
    pub(crate) messages: Vec<Message>,
    /// Messages that a person has cancelled.
    pub(crate) cancelled_messages: Arc<CancelledMessages>,
    /// Shared, because cloning a token takes a lock.
    pub(crate) cancelled: Arc<CancellationToken>,
}

/// A claim in hand.
pub(super) struct HeldClaim {
    pub(super) source: usize,
    pub(super) topic: usize,
    pub(super) token: Token,
    /// No more of its messages are started: it will be given back.
    pub(super) closing: bool,
    pub(super) cancelled: Arc<CancellationToken>,
    /// By the index of the message.
    stages: Vec<Stage>,
    /// How many messages are not settled.
    open: usize,
    running: usize,
    /// How many messages were open in the ledger when the claim was taken in hand.
    count: usize,
    /// How many are open in the ledger by the last report.
    claimed: usize,
    fates: BTreeMap<Fate, Progress>,
    failures: BTreeMap<u32, u32>,
    /// There is something to report.
    dirty: bool,
}

impl HeldClaim {
    pub(super) fn new(
        source: usize,
        topic: usize,
        claim: Claim,
        loaded: usize,
        cancelled: Arc<CancellationToken>,
    ) -> Self {
        // Counted as the ledger does: a message that is settled here stays open there until it is reported.
        let count = usize::try_from(claim.open()).unwrap_or(usize::MAX);
        let stage = |index| if claim.done.contains(index) { Stage::Settled } else { Stage::Ready };
        // No more than were read: an entry may say any number.
        let stages: Vec<Stage> = (0..claim.count).take(loaded).map(stage).collect();
        Self {
            source,
            topic,
            token: claim.token,
            closing: false,
            cancelled,
            open: stages.iter().filter(|stage| **stage != Stage::Settled).count(),
            stages,
            running: 0,
            count,
            claimed: count,
            fates: BTreeMap::new(),
            failures: claim.failures,
            dirty: false,
        }
    }

    // ── stages ──

    /// Sets the stage in which a message begins, when its claim is taken in hand.
    pub(super) fn begin(&mut self, index: u32, stage: Stage) {
        if let Some(current) = self.stages.get_mut(index as usize) {
            *current = stage;
        }
    }

    /// Moves a message on to another stage.
    pub(super) fn advance(&mut self, index: u32, to: Stage) {
        let Some(stage) = self.stages.get_mut(index as usize) else { return };
        let from = std::mem::replace(stage, to);
        debug_assert!(from.may_become(to), "message {index} of claim {}: {from:?} → {to:?}", self.token);
        self.running -= usize::from(from == Stage::Running);
        self.running += usize::from(to == Stage::Running);
        self.open -= usize::from(to == Stage::Settled && from != Stage::Settled);
    }

    /// Notes the fate of a message.
    pub(super) fn note(&mut self, index: u32, fate: Fate) {
        self.fates.entry(fate).or_default().insert(index);
        self.dirty = true;
    }

    /// True if the fate of this message is noted.
    pub(super) fn is_noted(&self, index: u32) -> bool {
        self.fates.values().any(|settled| settled.contains(index))
    }

    /// Notes that an attempt of a message has failed and the message stays in hand.
    pub(super) fn note_failure(&mut self, index: u32) {
        *self.failures.entry(index).or_default() += 1;
        self.dirty = true;
    }

    /// Returns how many attempts of a message have failed while it stayed in a claim.
    pub(super) fn failures_of(&self, index: u32) -> u32 {
        self.failures.get(&index).copied().unwrap_or(0)
    }

    /// Returns how many messages are not settled.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Returns how many messages are open in the ledger by the last report.
    pub(super) fn claimed(&self) -> usize {
        self.claimed
    }

    // ── reports ──

    /// True if there is something to report, or if nothing is open and the claim must be closed.
    pub(super) fn is_dirty(&self) -> bool {
        self.dirty
    }

    pub(super) fn mark_dirty(&mut self) {
        self.dirty = true;
    }

    pub(super) fn report(&self) -> Report {
        Report { token: self.token, fates: self.fates.clone(), failures: self.failures.clone() }
    }

    /// Notes that the report is in the ledger. True if the claim is closed there.
    pub(super) fn reported(&mut self, report: &Report) -> bool {
        self.dirty = self.fates != report.fates || self.failures != report.failures;
        let settled: u64 = report.fates.values().map(Progress::len).sum();
        self.claimed = self.count.saturating_sub(settled as usize);
        self.open == 0 && !self.dirty
    }
}
