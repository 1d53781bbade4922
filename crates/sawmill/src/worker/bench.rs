//! The bench: what a worker has in hand, and which message runs next.
//!
//! It holds the messages of the worker's claims, one tray per topic in the order of their priority, one line per key so
//! that messages of a key never run at the same time, and what became of them. It is plain state: no clock, no store, no
//! task. Whoever changes it holds its lock for a moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::gate::{Gate, Sight};
use super::item::{Copy, Failed, Incoming, Item, Start, Ticket, Verdict};
use super::line::{LineKey, Lines};
use super::tray::Tray;
use crate::cancel::Unwanted;
use crate::claim::{Progress, Token, WorkerId};
use crate::clock::Moment;
use crate::member::InUse;
use crate::planted::{self, Bug};
use crate::shard::{Fate, Report};

/// How much a worker may have in hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
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
    /// What is done but not reported counts as in hand too, because a crash would not know of it.
    pub(crate) strict: bool,
    /// Nobody else could run what waits here in line: the group is ordered.
    pub(crate) hoards: bool,
}

/// What a worker has in hand.
pub(crate) struct Bench {
    limits: Limits,
    /// Under which id this worker is a member; nothing starts while it is none.
    me: Option<WorkerId>,
    /// Nothing starts from this moment on, unless the lease is renewed.
    lease_until: Moment,
    /// Nor from this moment on, unless this worker looks around again: the group may be paused.
    looked_until: Moment,
    /// A look may grant a larger share of a limit.
    wants_look: bool,
    stopped: bool,
    tickets: Ticket,
    held: BTreeMap<Ticket, Held>,
    /// One for each topic, the first having priority.
    trays: Vec<Tray>,
    /// Messages of ordered groups that wait in place for their next attempt.
    waiting: BTreeMap<(Moment, u64), Item>,
    waits: u64,
    lines: Lines,
    failed: Vec<Failed>,
    /// Unsettled messages of claims that are not being closed.
    in_hand: usize,
    running: usize,
    /// The topic of the handler that ended last.
    ended: usize,
    started: u64,
    done: u64,
    /// Tasks that take messages from here.
    pub(super) runners: usize,
    /// Those of them that wait for more messages to be ready.
    pub(super) lingering: usize,
    /// How many wait to pull a message, if messages are pulled.
    pub(super) pulls: Option<usize>,
}

/// A claim in hand.
struct Held {
    source: usize,
    topic: usize,
    token: Token,
    /// How many of its messages were open in the ledger when it came in hand.
    count: usize,
    fates: BTreeMap<Fate, Progress>,
    failures: BTreeMap<u32, u32>,
    open: usize,
    /// How many are open by what was last reported.
    claimed: usize,
    running: usize,
    /// There is something to report.
    dirty: bool,
    /// Nothing of it is started any more: it is to be given back.
    closing: bool,
    cancelled: Arc<CancellationToken>,
}

impl Bench {
    pub(crate) fn new(limits: Limits, gates: impl IntoIterator<Item = Gate>) -> Self {
        Self {
            limits,
            me: None,
            lease_until: Moment::default(),
            looked_until: Moment::default(),
            wants_look: false,
            stopped: false,
            tickets: 0,
            held: BTreeMap::new(),
            trays: gates.into_iter().map(|gate| Tray::new(gate, limits.ahead)).collect(),
            waiting: BTreeMap::new(),
            waits: 0,
            lines: Lines::default(),
            failed: Vec::new(),
            in_hand: 0,
            running: 0,
            ended: 0,
            started: 0,
            done: 0,
            runners: 0,
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
        // What an older self saw does not count.
        self.looked_until = Moment::default();
    }

    pub(crate) fn renew(&mut self, lease_until: Moment) {
        self.lease_until = lease_until;
    }

    pub(crate) fn is_leased(&self, now: Moment) -> bool {
        self.me.is_some() && (now < self.lease_until || planted::is(Bug::NoLeaseCheck))
    }

    pub(crate) fn may_start(&self, now: Moment) -> bool {
        self.is_leased(now) && now < self.looked_until && !self.stopped && !self.is_spent()
    }

    /// True if as many messages were started as ever may be.
    pub(crate) fn is_spent(&self) -> bool {
        self.started >= self.limits.starts
    }

    /// This worker has looked around, and may start what it saw that it may until this moment.
    pub(crate) fn looked(&mut self, until: Moment, sights: &[Sight], now: Moment) {
        self.looked_until = until;
        for (tray, sight) in self.trays.iter_mut().zip(sights) {
            tray.gate.see(sight, now);
        }
    }

    // ── shares of limits ──

    /// What the next beat has to say of each topic's limit; from now on that may be in the ledger.
    pub(crate) fn saying(&mut self) -> Vec<InUse> {
        let say = |tray: &mut Tray| {
            let holds = tray.gate.holds(tray.running);
            tray.gate.saying(holds);
            holds
        };
        self.trays.iter_mut().map(say).collect()
    }

    /// The beat that said so is in the ledger.
    pub(crate) fn said(&mut self, holds: &[InUse]) {
        for (tray, holds) in self.trays.iter_mut().zip(holds) {
            self.wants_look |= tray.gate.acknowledged(*holds);
        }
    }

    /// What the member entry says for certain.
    pub(crate) fn says(&self) -> Vec<InUse> {
        self.trays.iter().map(|tray| tray.gate.said()).collect()
    }

    /// True if the member entry should say something else than it does.
    pub(crate) fn wants_beat(&self) -> bool {
        self.trays.iter().any(|tray| tray.gate.said() != tray.gate.holds(tray.running))
    }

    /// True once after the member entry has come to say more.
    pub(crate) fn take_wants_look(&mut self) -> bool {
        std::mem::take(&mut self.wants_look)
    }

    /// True if this worker waits for others: for one who resumes a group, or who leaves it a share of a limit.
    pub(crate) fn is_held_up(&self) -> bool {
        self.trays.iter().any(|tray| tray.gate.is_held_up())
    }

    /// This worker was declared dead: all its claims are lost.
    pub(crate) fn evict(&mut self) {
        self.me = None;
        self.trays.iter_mut().for_each(|tray| tray.gate.forget());
        if planted::is(Bug::RemovedGoesOn) {
            return;
        }
        for ticket in self.held.keys().copied().collect::<Vec<_>>() {
            self.lose(ticket);
        }
    }

    // ── claims come and go ──

    /// Takes a claim in hand, without what is done already. No messages at all means that they are gone from the log.
    pub(crate) fn take(
        &mut self,
        incoming: Incoming,
        wait: impl Fn(u32) -> Option<Duration>,
        now: Moment,
    ) -> Ticket {
        let Incoming { source, topic, claim, messages, unwanted, cancelled } = incoming;
        let bytes = messages.iter().map(|message| message.payload.len()).sum();
        self.trays[topic].pace.weigh(messages.len(), bytes);
        self.tickets += 1;
        let ticket = self.tickets;
        // Counts as in the ledger: a message that is settled right here, below, stays open in the ledger until it is reported.
        let claimed = usize::try_from(claim.open()).unwrap_or(usize::MAX);
        let mut open = 0;
        let mut fates: BTreeMap<Fate, Progress> = BTreeMap::new();
        if messages.is_empty() {
            // They are gone from the log: there is nothing to be done about them.
            fates.insert(
                Fate::Dropped,
                (0..claim.count).filter(|index| !claim.done.contains(*index)).collect(),
            );
        }
        for (index, message) in (0..claim.count).zip(messages) {
            let skipped = planted::is(Bug::SkipsOneMore) && index > 0 && claim.done.contains(index - 1);
            if claim.done.contains(index) || skipped {
                continue;
            }
            let unwanted = unwanted.contains(&message);
            if unwanted && message.unique_name().is_none() {
                fates.entry(Fate::Cancelled).or_default().insert(index);
                continue;
            }
            open += 1;
            let failed_here = claim.failures.get(&index).copied().unwrap_or(0);
            let key = message.key.clone().filter(|_| !unwanted && !planted::is(Bug::NoKeyQueue));
            let line = key.map(|key| (topic, key));
            let item = Item {
                ticket,
                index,
                topic,
                failed: message.failed_attempts().saturating_add(failed_here),
                pass: claim.pass,
                deaths: claim.deaths,
                message: Arc::new(message),
                failures: Vec::new(),
                line,
            };
            if unwanted {
                self.give_name_back(item, source);
                continue;
            }
            let Some(item) = self.lines.join(item) else { continue };
            match (failed_here > 0).then(|| wait(item.failed)).flatten() {
                Some(after) => self.wait(item, now + after),
                None => self.trays[topic].ready.push_back(item),
            }
        }
        self.in_hand += open;
        self.trays[topic].in_hand += open;
        let held = Held {
            source,
            topic,
            token: claim.token,
            count: claimed,
            dirty: open == 0 || !fates.is_empty(),
            fates,
            failures: claim.failures,
            open,
            claimed,
            running: 0,
            closing: false,
            cancelled,
        };
        self.held.insert(ticket, held);
        ticket
    }

    /// The claim is another's now: drop it, and tell the handlers that still run.
    pub(crate) fn lose(&mut self, ticket: Ticket) {
        if let Some(held) = self.held.remove(&ticket) {
            held.cancelled.cancel();
            if !held.closing {
                self.in_hand -= held.open;
                self.trays[held.topic].in_hand -= held.open;
            }
            self.purge(|item| item.ticket == ticket);
        }
    }

    /// Starts nothing more of the claims of this source.
    pub(crate) fn close(&mut self, source: usize) {
        let mut closed = false;
        for held in self.held.values_mut().filter(|held| held.source == source && !held.closing) {
            held.closing = true;
            closed = true;
            self.in_hand -= held.open;
            self.trays[held.topic].in_hand -= held.open;
        }
        if closed {
            let tickets: Vec<Ticket> = self.tickets_of(source).collect();
            self.purge(|item| tickets.contains(&item.ticket));
        }
    }

    /// Starts nothing more at all.
    pub(crate) fn stop(&mut self) {
        self.stopped = true;
    }

    fn tickets_of(&self, source: usize) -> impl Iterator<Item = Ticket> + '_ {
        self.held.iter().filter(move |(_, held)| held.source == source).map(|(ticket, _)| *ticket)
    }

    /// Drops messages that are not running, and lets the next in their lines come forward.
    fn purge(&mut self, drop: impl Fn(&Item) -> bool) {
        self.lines.retain(|item| !drop(item));
        let mut freed = Vec::new();
        let mut keep = |item: &Item| {
            let dropped = drop(item);
            if dropped {
                freed.extend(item.line.clone());
            }
            !dropped
        };
        self.trays.iter_mut().for_each(|tray| tray.ready.retain(&mut keep));
        self.waiting.retain(|_, item| keep(item));
        for line in freed {
            self.advance(Some(line));
        }
    }

    /// A message is out of the way of its line.
    fn advance(&mut self, line: Option<LineKey>) {
        if let Some(next) = line.and_then(|line| self.lines.advance(&line)) {
            self.trays[next.topic].ready.push_back(next);
        }
    }

    fn wait(&mut self, item: Item, until: Moment) {
        self.waits += 1;
        self.waiting.insert((until, self.waits), item);
    }

    // ── messages run ──

    /// The next message that may start now, of the first topic that has one. Its handler must be called before anything else happens.
    pub(crate) fn next(&mut self, now: Moment) -> Option<Start> {
        if !self.may_start(now) {
            return None;
        }
        self.ripen(now);
        let item = self.pick(now)?;
        let held = self.held.get_mut(&item.ticket)?;
        held.running += 1;
        self.running += 1;
        self.trays[item.topic].running += 1;
        self.started += 1;
        let start = Start { source: held.source, token: held.token, cancelled: held.cancelled.clone(), item };
        if planted::is(Bug::AckBeforeEffect) {
            self.settle(start.item.ticket, start.item.index, Fate::Done);
        }
        Some(start)
    }

    fn pick(&mut self, now: Moment) -> Option<Item> {
        for topic in 0..self.trays.len() {
            while self.trays[topic].startable(now) > 0 {
                let tray = &mut self.trays[topic];
                let item = tray.ready.pop_front()?;
                // A key that has to wait keeps its line waiting too.
                match tray.gate.key_waits(item.message.key.as_ref(), now) {
                    Some(until) => self.wait(item, until),
                    None => {
                        tray.gate.started(now);
                        return Some(item);
                    }
                }
            }
        }
        None
    }

    /// True if a message of this claim that was [next](Bench::next) a moment ago may still start.
    pub(crate) fn may_go_on(&self, ticket: Ticket, now: Moment) -> bool {
        self.is_leased(now) && self.held.contains_key(&ticket)
    }

    /// A message that was next has not been started after all.
    pub(crate) fn put_back(&mut self, item: Item) {
        self.running -= 1;
        self.started -= 1;
        self.trays[item.topic].running -= 1;
        match self.held.get_mut(&item.ticket) {
            Some(held) => {
                held.running -= 1;
                if held.closing {
                    self.advance(item.line);
                } else {
                    self.trays[item.topic].ready.push_front(item);
                }
            }
            None => self.advance(item.line),
        }
    }

    /// Messages that have waited long enough are ready again.
    pub(super) fn ripen(&mut self, now: Moment) {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().0 <= now) {
            let item = first.remove();
            self.trays[item.topic].ready.push_back(item);
        }
    }

    /// A handler has ended.
    pub(crate) fn finish(&mut self, mut item: Item, verdict: Verdict, took: Duration, now: Moment) {
        self.running -= 1;
        self.ended = item.topic;
        let tray = &mut self.trays[item.topic];
        tray.running -= 1;
        tray.pace.record(took);
        let Some(held) = self.held.get_mut(&item.ticket) else {
            // Superseded: what came of it is not for this worker to say.
            return self.advance(item.line);
        };
        held.running -= 1;
        match verdict {
            Verdict::Settled(fate) if item.message.unique_name().is_some() => {
                let source = held.source;
                self.failed.push(Failed { item, source, copy: Copy::None { fate } });
            }
            Verdict::Settled(fate) => {
                self.done += u64::from(fate == Fate::Done);
                self.settle(item.ticket, item.index, fate);
                self.advance(item.line);
            }
            Verdict::Again { after, failure } => {
                if let Some(failure) = failure {
                    *held.failures.entry(item.index).or_default() += 1;
                    held.dirty = true;
                    item.failed = item.failed.saturating_add(1);
                    item.failures.push(failure);
                }
                if held.closing {
                    self.advance(item.line);
                } else if after.is_zero() {
                    self.trays[item.topic].ready.push_front(item);
                } else {
                    self.wait(item, now + after);
                }
            }
            Verdict::Copy(copy, failure) => {
                item.failures.extend(failure);
                let (source, ticket, index) = (held.source, item.ticket, item.index);
                self.failed.push(Failed { item, source, copy });
                if planted::is(Bug::RetryAfterMark) {
                    self.settle(ticket, index, Fate::Retried);
                }
            }
            // Nothing more starts on this bench, and the claim is given back: the line does not matter any more.
            Verdict::Untouched => {}
        }
    }

    fn settle(&mut self, ticket: Ticket, index: u32, fate: Fate) {
        let Some(held) = self.held.get_mut(&ticket) else { return };
        if held.fates.values().any(|settled| settled.contains(index)) {
            return;
        }
        held.fates.entry(fate).or_default().insert(index);
        held.open -= 1;
        held.dirty = true;
        if !held.closing {
            self.in_hand -= 1;
            self.trays[held.topic].in_hand -= 1;
        }
    }

    // ── failures leave for their lanes ──

    /// The messages whose copies are to be appended, or names given back. They stay here until [`failed_settled`](Bench::failed_settled)
    /// is told of each. Those of claims that were lost are dropped.
    pub(crate) fn failed(&mut self) -> Vec<Failed> {
        let lost: Vec<Failed> =
            self.failed.extract_if(.., |failed| !self.held.contains_key(&failed.item.ticket)).collect();
        for failed in lost {
            self.advance(failed.item.line);
        }
        self.failed.clone()
    }

    /// A failed message needs nothing more here: its copy is in the log, and its name is given back.
    pub(crate) fn failed_settled(&mut self, failed: &Failed, fate: Fate) {
        self.done += u64::from(fate == Fate::Done);
        let (ticket, index) = (failed.item.ticket, failed.item.index);
        self.failed.retain(|other| (other.item.ticket, other.item.index) != (ticket, index));
        self.settle(ticket, index, fate);
        self.advance(failed.item.line.clone());
    }

    /// Messages in hand that a person has cancelled are settled without being started. Those that run are told by others.
    pub(crate) fn cancel(&mut self, unwanted: &Unwanted) {
        let pick = |cancelled: &mut Vec<Item>, item: &Item| {
            let wanted = !unwanted.contains(&item.message);
            if !wanted {
                cancelled.push(item.clone());
            }
            wanted
        };
        let (mut behind, mut first) = (Vec::new(), Vec::new());
        self.lines.retain(|item| pick(&mut behind, item));
        for tray in &mut self.trays {
            tray.ready.retain(|item| pick(&mut first, item));
        }
        self.waiting.retain(|_, item| pick(&mut first, item));
        for item in behind {
            // It holds no line: those before it do.
            self.settle_cancelled(Item { line: None, ..item });
        }
        for item in first {
            self.settle_cancelled(item);
        }
    }

    fn settle_cancelled(&mut self, item: Item) {
        let source = self.held.get(&item.ticket).map(|held| held.source);
        match source.filter(|_| item.message.unique_name().is_some()) {
            Some(source) => self.give_name_back(item, source),
            None => {
                self.settle(item.ticket, item.index, Fate::Cancelled);
                self.advance(item.line);
            }
        }
    }

    /// A unique message that was cancelled counts as settled when its name is given back.
    fn give_name_back(&mut self, item: Item, source: usize) {
        self.failed.push(Failed { item, source, copy: Copy::None { fate: Fate::Cancelled } });
    }

    /// These open messages of a claim are to become dead letters without being started. Their lines wait for that.
    pub(crate) fn bury(&mut self, ticket: Ticket, unwanted: impl Fn(u32) -> bool, reason: &str) {
        let Some(source) = self.held.get(&ticket).map(|held| held.source) else { return };
        let mut buried: Vec<Item> = Vec::new();
        let mut pick = |item: &Item| {
            let keep = item.ticket != ticket || !unwanted(item.index);
            if !keep {
                buried.push(item.clone());
            }
            keep
        };
        self.trays.iter_mut().for_each(|tray| tray.ready.retain(&mut pick));
        self.waiting.retain(|_, item| pick(item));
        self.lines.retain_or_hold(&mut pick);
        buried.sort_by_key(|item| item.index);
        let copy = Copy::Dead { reason: reason.to_owned() };
        self.failed.extend(buried.into_iter().map(|item| Failed { item, source, copy: copy.clone() }));
    }

    // ── reports go to the ledger ──

    /// What there is to say about the claims of a source that hold something new.
    pub(crate) fn reports(&self, source: usize) -> Vec<(Ticket, Report)> {
        let wanted = |held: &Held| held.source == source && held.dirty;
        let report = |held: &Held| Report {
            token: held.token,
            fates: held.fates.clone(),
            failures: held.failures.clone(),
        };
        self.held
            .iter()
            .filter(|(_, held)| wanted(held))
            .map(|(ticket, held)| (*ticket, report(held)))
            .collect()
    }

    /// The report is in the ledger. A claim of which nothing is open is closed there, and leaves the bench.
    pub(crate) fn reported(&mut self, ticket: Ticket, report: &Report) {
        let Some(held) = self.held.get_mut(&ticket) else { return };
        held.dirty = held.fates != report.fates || held.failures != report.failures;
        let settled: u64 = report.fates.values().map(Progress::len).sum();
        held.claimed = held.count.saturating_sub(settled as usize);
        if held.open == 0 && !held.dirty {
            self.held.remove(&ticket);
        }
    }

    /// The sources with claims in hand that have something new to report.
    pub(crate) fn dirty(&self) -> Vec<usize> {
        let mut sources: Vec<usize> =
            self.held.values().filter(|held| held.dirty).map(|held| held.source).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// The claims in hand of a source, with their tokens.
    pub(crate) fn tokens(&self, source: usize) -> Vec<(Ticket, Token)> {
        self.held
            .iter()
            .filter(|(_, held)| held.source == source)
            .map(|(ticket, held)| (*ticket, held.token))
            .collect()
    }

    /// The oldest ticket in hand, and the last that was given.
    pub(crate) fn tickets(&self) -> (Option<Ticket>, Ticket) {
        (self.held.keys().next().copied(), self.tickets)
    }

    /// True if claims of this source are still to be given back.
    pub(crate) fn is_closing(&self, source: usize) -> bool {
        self.held.values().any(|held| held.source == source && held.closing)
    }

    /// True if the claims of this source are closed, nothing of them runs any more, and no failed message of theirs waits
    /// for its copy: they can be given back.
    pub(crate) fn is_closed(&self, source: usize) -> bool {
        let mut held = self.held.values().filter(|held| held.source == source).peekable();
        let failed = |failed: &Failed| failed.source == source && self.held.contains_key(&failed.item.ticket);
        let running = |held: &Held| held.running > 0 && !planted::is(Bug::HandoverWhileRunning);
        held.peek().is_some()
            && held.all(|held| held.closing && !running(held))
            && !self.failed.iter().any(failed)
    }

    /// The claims of this source were given back.
    pub(crate) fn gave_back(&mut self, source: usize) {
        self.held.retain(|_, held| held.source != source);
    }
}

#[path = "room.rs"]
mod room;

#[cfg(test)]
#[path = "bench_tests.rs"]
mod tests;
