//! Messages in flight: what a worker has in hand, and which message runs next.
//!
//! [`InFlight`] holds the worker's claims and the [stage](message::Stage) of each of their messages: one
//! queue for each topic in the order of their priority, and one for each key, so that messages of a key never
//! run at the same time. It is plain state: no clock, no store, no task. The worker's tasks share it behind a
//! lock that is held only for a moment.

mod capacity;
mod claim;
pub(crate) mod gate;
mod key_queue;
pub(crate) mod message;
mod pace;
mod rate_bucket;
mod report;
mod settle;
mod share;
mod topic_queue;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sawmill_engine::fault;
use sawmill_engine::model::{Fate, InUse, WorkerId};
use sawmill_engine::runtime::Moment;

use claim::HeldClaim;
pub(crate) use claim::IncomingClaim;
use gate::{Gate, TopicView};
use key_queue::{KeyQueues, QueueKey, extract};
use message::{Disposition, HeldMessage, LaneCopy, Settling, Stage, Start, Ticket};
use topic_queue::TopicQueue;

/// How much a worker may have in hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InFlightLimits {
    /// How many messages run at once.
    pub(crate) slots: usize,
    /// How many of them one task runs.
    pub(crate) batch: usize,
    /// The most messages to have in hand at once.
    pub(crate) most: usize,
    /// The most to have in hand because handlers are quick.
    pub(crate) ahead: usize,
    /// The most messages to start, ever.
    pub(crate) starts: u64,
    /// Messages that are done but not reported count as in hand too, because a crash would not know of them.
    pub(crate) strict: bool,
    /// The group is ordered: no other worker could run messages that wait behind others of their key.
    pub(crate) ordered: bool,
}

/// The claims and messages that a worker has in hand.
pub(crate) struct InFlight {
    limits: InFlightLimits,
    /// The id under which this worker is a member. Nothing starts while it is not one.
    me: Option<WorkerId>,
    /// Nothing starts from this moment on, unless the lease is renewed.
    lease_until: Moment,
    /// Nothing starts from this moment on, unless this worker refreshes: the group may be paused.
    refreshed_until: Moment,
    /// A refresh may grant a larger share of a limit.
    wants_refresh: bool,
    stopped: bool,
    tickets: Ticket,
    claims: BTreeMap<Ticket, HeldClaim>,
    /// One for each topic, in the order of priority.
    topics: Vec<TopicQueue>,
    /// Messages that wait in place, by the moment when they become ready and the order in which they came.
    waiting: BTreeMap<(Moment, u64), HeldMessage>,
    waits: u64,
    key_queues: KeyQueues,
    settling: BTreeMap<(Ticket, u32), Settling>,
    /// The topic of the handler that ended last.
    ended: usize,
    started: u64,
    done: u64,
    /// Tasks that take messages from here.
    pub(super) tasks: usize,
    /// The tasks among them that wait for more messages to be ready.
    pub(super) lingering: usize,
    /// How many callers wait to pull a message, if messages are pulled.
    pub(super) pulls: Option<usize>,
}

impl InFlight {
    pub(crate) fn new(limits: InFlightLimits, gates: impl IntoIterator<Item = Gate>) -> Self {
        Self {
            limits,
            me: None,
            lease_until: Moment::default(),
            refreshed_until: Moment::default(),
            wants_refresh: false,
            stopped: false,
            tickets: 0,
            claims: BTreeMap::new(),
            topics: gates.into_iter().map(|gate| TopicQueue::new(gate, limits.ahead)).collect(),
            waiting: BTreeMap::new(),
            waits: 0,
            key_queues: KeyQueues::default(),
            settling: BTreeMap::new(),
            ended: 0,
            started: 0,
            done: 0,
            tasks: 0,
            lingering: 0,
            pulls: None,
        }
    }

    // ── membership ──

    pub(crate) fn me(&self) -> Option<&WorkerId> {
        self.me.as_ref()
    }

    pub(crate) fn join(&mut self, me: WorkerId, lease_until: Moment) {
        (self.me, self.lease_until) = (Some(me), lease_until);
        // A refresh under an older id does not count.
        self.refreshed_until = Moment::default();
    }

    pub(crate) fn renew(&mut self, lease_until: Moment) {
        self.lease_until = lease_until;
    }

    pub(crate) fn is_leased(&self, now: Moment) -> bool {
        self.me.is_some() && (now < self.lease_until || fault!(NoLeaseCheck))
    }

    pub(crate) fn may_start(&self, now: Moment) -> bool {
        self.is_leased(now) && now < self.refreshed_until && !self.stopped && !self.is_spent()
    }

    /// True if this worker has started as many messages as it ever may.
    pub(crate) fn is_spent(&self) -> bool {
        self.started >= self.limits.starts
    }

    /// Notes that this worker has refreshed. Until this moment it may start messages as these views allow.
    pub(crate) fn record_refresh(&mut self, until: Moment, views: &[TopicView], now: Moment) {
        self.refreshed_until = until;
        for (queue, view) in self.topics.iter_mut().zip(views) {
            queue.gate.see(view, now);
        }
    }

    // ── shares of limits ──

    /// Returns what the next heartbeat must say of each topic's limit. From now on this may be in the ledger.
    pub(crate) fn saying(&mut self) -> Vec<InUse> {
        let say = |queue: &mut TopicQueue| {
            let holds = queue.gate.holds(queue.running);
            queue.gate.saying(holds);
            holds
        };
        self.topics.iter_mut().map(say).collect()
    }

    /// Notes that the heartbeat that said so is in the ledger.
    pub(crate) fn said(&mut self, holds: &[InUse]) {
        for (queue, holds) in self.topics.iter_mut().zip(holds) {
            self.wants_refresh |= queue.gate.acknowledged(*holds);
        }
    }

    /// Returns what the member entry is known to say.
    pub(crate) fn says(&self) -> Vec<InUse> {
        self.topics.iter().map(|queue| queue.gate.said()).collect()
    }

    /// True if the member entry is out of date.
    pub(crate) fn wants_heartbeat(&self) -> bool {
        self.topics.iter().any(|queue| queue.gate.said() != queue.gate.holds(queue.running))
    }

    /// True once after the member entry has been acknowledged to say more than before.
    pub(crate) fn take_wants_refresh(&mut self) -> bool {
        std::mem::take(&mut self.wants_refresh)
    }

    /// True if this worker waits for others: to resume the group, or to leave it a share of a limit.
    pub(crate) fn is_held_up(&self) -> bool {
        self.topics.iter().any(|queue| queue.gate.is_held_up())
    }

    /// Notes that this worker was declared dead: all its claims are lost.
    pub(crate) fn evict(&mut self) {
        self.me = None;
        self.topics.iter_mut().for_each(|queue| queue.gate.forget());
        if fault!(RemovedGoesOn) {
            return;
        }
        for ticket in self.claims.keys().copied().collect::<Vec<_>>() {
            self.lose(ticket);
        }
    }

    // ── claims ──

    /// Takes a claim in hand, without its messages that are done. If there are no messages at all, they are
    /// gone from the log.
    pub(crate) fn take(
        &mut self,
        incoming: IncomingClaim,
        wait: impl Fn(u32) -> Option<Duration>,
        now: Moment,
    ) -> Ticket {
        let IncomingClaim { source, topic, claim, messages, cancelled_messages, cancelled } = incoming;
        let bytes = messages.iter().map(|message| message.payload.len()).sum();
        self.topics[topic].pace.weigh(messages.len(), bytes);
        self.tickets += 1;
        let ticket = self.tickets;
        let (count, pass, deaths, done) = (claim.count, claim.pass, claim.deaths, claim.done.clone());
        let mut held_claim = HeldClaim::new(source, topic, claim, messages.len(), cancelled);
        if messages.is_empty() {
            for index in (0..count).filter(|index| !done.contains(*index)) {
                held_claim.note(index, Fate::Dropped);
            }
        }
        for (index, message) in (0..count).zip(messages) {
            if done.contains(index) {
                continue;
            }
            if fault!(SkipsOneMore) && index > 0 && done.contains(index - 1) {
                held_claim.advance(index, Stage::Settled);
                continue;
            }
            let is_cancelled = cancelled_messages.contains(&message);
            if is_cancelled && message.unique_name().is_none() {
                held_claim.note(index, Fate::Cancelled);
                held_claim.advance(index, Stage::Settled);
                continue;
            }
            let failed_here = held_claim.failures_of(index);
            let key = message.key.clone().filter(|_| !is_cancelled && !fault!(NoKeyQueue));
            let held = HeldMessage {
                ticket,
                index,
                topic,
                failed: message.failed_attempts().saturating_add(failed_here),
                pass,
                deaths,
                message: Arc::new(message),
                failures: Vec::new(),
                queue_key: key.map(|key| (topic, key)),
            };
            if is_cancelled {
                held_claim.begin(index, Stage::Settling);
                self.give_name_back(held, source);
                continue;
            }
            let Some(held) = self.key_queues.join(held) else {
                held_claim.begin(index, Stage::Queued);
                continue;
            };
            match (failed_here > 0).then(|| wait(held.failed)).flatten() {
                Some(after) => {
                    held_claim.begin(index, Stage::Waiting);
                    self.wait_until(held, now + after);
                }
                None => self.topics[topic].ready.push_back(held),
            }
        }
        if held_claim.open() == 0 {
            held_claim.mark_dirty();
        }
        self.topics[topic].in_hand += held_claim.open();
        self.claims.insert(ticket, held_claim);
        ticket
    }

    /// Drops a claim that is another worker's now, and cancels its running handlers.
    pub(crate) fn lose(&mut self, ticket: Ticket) {
        if let Some(claim) = self.claims.remove(&ticket) {
            claim.cancelled.cancel();
            if !claim.closing {
                self.topics[claim.topic].in_hand -= claim.open();
            }
            self.release(|held| held.ticket == ticket);
        }
    }

    /// Starts nothing more of the claims of this source.
    pub(crate) fn close(&mut self, source: usize) {
        let mut closed = BTreeSet::new();
        for (ticket, claim) in
            self.claims.iter_mut().filter(|(_, claim)| claim.source == source && !claim.closing)
        {
            claim.closing = true;
            closed.insert(*ticket);
            self.topics[claim.topic].in_hand -= claim.open();
        }
        if !closed.is_empty() {
            self.release(|held| closed.contains(&held.ticket));
        }
    }

    /// Starts nothing more at all.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    /// Releases messages that have not started, and lets the next in their queues come forward.
    fn release(&mut self, wanted: impl Fn(&HeldMessage) -> bool) {
        for held in self.key_queues.extract(&wanted) {
            self.advance(&held, Stage::Released);
        }
        for held in self.extract_startable(&wanted) {
            self.advance(&held, Stage::Released);
            self.leave_queue(held.queue_key);
        }
    }

    /// Takes out messages that are ready, or wait in place.
    fn extract_startable(&mut self, wanted: impl Fn(&HeldMessage) -> bool) -> Vec<HeldMessage> {
        let mut taken: Vec<HeldMessage> =
            self.topics.iter_mut().flat_map(|queue| extract(&mut queue.ready, &wanted)).collect();
        taken.extend(self.waiting.extract_if(.., |_, held| wanted(held)).map(|(_, held)| held));
        taken
    }

    /// Moves a message on to another stage. If its claim was lost, there is nothing to move.
    fn advance(&mut self, held: &HeldMessage, to: Stage) {
        if let Some(claim) = self.claims.get_mut(&held.ticket) {
            claim.advance(held.index, to);
            if to == Stage::Settled && !claim.closing {
                self.topics[claim.topic].in_hand -= 1;
            }
        }
    }

    /// Takes a message out of the way of its key.
    fn leave_queue(&mut self, key: Option<QueueKey>) {
        if let Some(next) = key.and_then(|key| self.key_queues.advance(&key)) {
            self.advance(&next, Stage::Ready);
            self.topics[next.topic].ready.push_back(next);
        }
    }

    fn wait_until(&mut self, held: HeldMessage, until: Moment) {
        self.waits += 1;
        self.waiting.insert((until, self.waits), held);
    }

    // ── running messages ──

    /// Takes the next message that may start now, of the first topic that has one. The caller must start its
    /// handler at once.
    pub(crate) fn next(&mut self, now: Moment) -> Option<Start> {
        if !self.may_start(now) {
            return None;
        }
        self.wake_due(now);
        let held = self.pick(now)?;
        let claim = self.claims.get(&held.ticket)?;
        let (source, token, cancelled) = (claim.source, claim.token, claim.cancelled.clone());
        self.advance(&held, Stage::Running);
        self.topics[held.topic].running += 1;
        self.started += 1;
        let start = Start { held, source, token, cancelled };
        if fault!(AckBeforeEffect)
            && let Some(claim) = self.claims.get_mut(&start.held.ticket)
        {
            claim.note(start.held.index, Fate::Done);
        }
        Some(start)
    }

    fn pick(&mut self, now: Moment) -> Option<HeldMessage> {
        for topic in 0..self.topics.len() {
            while self.topics[topic].startable(now) > 0 {
                let queue = &mut self.topics[topic];
                let held = queue.ready.pop_front()?;
                // The messages behind this one wait too.
                match queue.gate.key_waits(held.message.key.as_ref(), now) {
                    Some(until) => {
                        self.advance(&held, Stage::Waiting);
                        self.wait_until(held, until);
                    }
                    None => {
                        queue.gate.started(now);
                        return Some(held);
                    }
                }
            }
        }
        None
    }

    /// True if a message of this claim that was [next](InFlight::next) a moment ago may still start.
    pub(crate) fn may_go_on(&self, ticket: Ticket, now: Moment) -> bool {
        self.is_leased(now) && self.claims.contains_key(&ticket)
    }

    /// Puts back a message that was taken as next but not started.
    pub(crate) fn put_back(&mut self, held: HeldMessage) {
        self.started -= 1;
        self.topics[held.topic].running -= 1;
        match self.claims.get(&held.ticket).map(|claim| claim.closing) {
            Some(false) => {
                self.advance(&held, Stage::Ready);
                self.topics[held.topic].ready.push_front(held);
            }
            _ => {
                self.advance(&held, Stage::Released);
                self.leave_queue(held.queue_key);
            }
        }
    }

    /// Makes messages ready that have waited long enough.
    pub(super) fn wake_due(&mut self, now: Moment) {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            let held = first.remove();
            self.advance(&held, Stage::Ready);
            self.topics[held.topic].ready.push_back(held);
        }
    }

    /// Notes that a handler has ended, and what follows.
    pub(crate) fn finish(
        &mut self,
        mut held: HeldMessage,
        disposition: Disposition,
        took: Duration,
        now: Moment,
    ) {
        self.ended = held.topic;
        let queue = &mut self.topics[held.topic];
        queue.running -= 1;
        queue.pace.record(took);
        let Some(claim) = self.claims.get_mut(&held.ticket) else {
            // The claim was lost: another worker settles the message.
            return self.leave_queue(held.queue_key);
        };
        let (source, closing) = (claim.source, claim.closing);
        match disposition {
            Disposition::Settled(fate) if held.message.unique_name().is_some() => {
                self.begin_settling(held, source, LaneCopy::None { fate });
            }
            Disposition::Settled(fate) => self.settle(held, fate),
            Disposition::Again { after, failure } => {
                if let Some(failure) = failure {
                    claim.note_failure(held.index);
                    held.failed = held.failed.saturating_add(1);
                    held.failures.push(failure);
                }
                if closing {
                    self.advance(&held, Stage::Released);
                    self.leave_queue(held.queue_key);
                } else if after.is_zero() {
                    self.advance(&held, Stage::Ready);
                    self.topics[held.topic].ready.push_front(held);
                } else {
                    self.advance(&held, Stage::Waiting);
                    self.wait_until(held, now + after);
                }
            }
            Disposition::OnLane(copy, failure) => {
                held.failures.extend(failure);
                if fault!(RetryAfterMark) {
                    claim.note(held.index, Fate::Retried);
                }
                self.begin_settling(held, source, copy);
            }
            // The worker is stopping and gives the claim back: the queue of its key no longer matters.
            Disposition::Untouched => self.advance(&held, Stage::Released),
        }
    }
}
