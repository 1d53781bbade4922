//! Retries: a failed message is tried again as often as its group's plan says, and not before its wait is over.
//!
//! What the core writes into copies (how many attempts failed, when the next is due) is what is to be checked, so nothing of it is
//! believed. The checker knows the copies in the order in which they came, and how each run ended.

use std::collections::BTreeMap;
use std::time::Duration;

use sawmill::clock::Timestamp;
use sawmill::{Message, MessageId, Token};

use super::book::{Book, How, Place, Run, Started};
use super::invariant::Invariant;

/// Waits are jittered by a quarter.
const LEAST: (u32, u32) = (3, 4);
const MOST: (u32, u32) = (5, 4);
/// Wall clocks count milliseconds.
const ROUNDING: Duration = Duration::from_millis(2);

impl Book {
    /// Invariant 18, when a message starts: no more attempts than the plan has, and not before the wait in place is over.
    pub(super) fn as_planned(&mut self, group: usize, started: &Started<'_>, place: Place) {
        let Some(depth) = self.depth(group, started.origin, started.message.id) else { return };
        let known = self.failures_before(group, started.origin, depth)
            + self.under(group, place, started.token).filter(|run| run.how == Some(How::Failed)).count();
        let retries = self.rules.groups[group].retries as usize;
        self.check(Invariant::Retried, known <= retries, |_| {
            let what =
                format!("{} is started after {known} failures, with {retries} retries", started.origin);
            (what, vec![started.origin.to_string(), started.message.id.to_string()])
        });
        let last = self.under(group, place, started.token).last();
        let Some((how, Some(ended))) = last.map(|run| (run.how, run.ended)) else { return };
        // It is waited by the worker's own clock, which may be fast.
        let wait = self.least_wait(group, how, known) * 1000 / self.rules.fastest;
        let waited = started.wall.since(ended);
        self.check(Invariant::Retried, waited + ROUNDING >= wait, |_| {
            let what =
                format!("{} started {waited:?} after it ended as {how:?}; minimum: {wait:?}", started.origin);
            (what, vec![started.origin.to_string(), started.message.id.to_string()])
        });
    }

    /// Invariant 18, when a copy comes to the retry lane: its due time is the end of the run that made it and the wait of the plan.
    pub(super) fn due_as_planned(&mut self, group: usize, copy: &Message) {
        let origin = copy.origin();
        let Some(depth) = self.depth(group, origin, copy.id).filter(|depth| *depth > 0) else { return };
        // Without a due time it may run at once.
        let due = copy.due.unwrap_or(copy.created);
        let parent = self.at_depth(group, origin, depth - 1);
        let before = self.failures_before(group, origin, depth - 1);
        // Which of several workers made the copy cannot be told: it may be the one that would have made it earliest.
        let earliest = self.attempts_at(group, origin, parent).into_values().filter_map(|runs| {
            let last = runs.last()?;
            let failures = before + runs.iter().filter(|run| run.how == Some(How::Failed)).count();
            Some(last.ended? + self.least_wait(group, last.how, failures))
        });
        let earliest = earliest.min().unwrap_or(Timestamp::from_millis(0));
        let all = self.handled.get(&(group, origin)).map_or(&[][..], |handling| &handling.runs);
        let failures = all.iter().filter(|run| self.runs[run.0].how == Some(How::Failed)).count();
        let snoozed = all.iter().any(|run| self.runs[run.0].how == Some(How::Snoozed));
        let snooze = if snoozed { self.rules.snooze } else { Duration::ZERO };
        let longest = self.backoff(group, failures, MOST).max(snooze);
        let (latest, skew) = (self.wall + longest, 2 * self.rules.skew + ROUNDING);
        self.check(Invariant::Retried, due + skew >= earliest && due <= latest + skew, |_| {
            let what = format!("the retry of {origin} is due at {due}; expected from {earliest} to {latest}");
            (what, vec![origin.to_string(), copy.id.to_string()])
        });
    }

    /// How many copies lie between the message that was pushed and this one; `None` where that cannot be told, because the log has
    /// some of them twice, because a person had the group read them again, or because the store may have undone some attempts.
    fn depth(&self, group: usize, origin: MessageId, id: MessageId) -> Option<usize> {
        let topic = &self.pushed[*self.origins.get(&origin)?].intent.topic;
        if self.doubled.contains(&origin) || self.was_sent_elsewhere(topic, group) || self.lasting.is_needed {
            return None;
        }
        // What was sent back by a person begins a new life.
        let handling = self.handled.get(&(group, origin));
        if handling.is_some_and(|handling| !handling.lives.is_empty()) {
            return None;
        }
        if id == origin {
            return Some(0);
        }
        let copies = &self.handled.get(&(group, origin))?.retries;
        copies.iter().position(|copy| *copy == id).map(|at| at + 1)
    }

    fn at_depth(&self, group: usize, origin: MessageId, depth: usize) -> MessageId {
        let copies = self.handled.get(&(group, origin)).map_or(&[][..], |handling| &handling.retries);
        depth.checked_sub(1).and_then(|at| copies.get(at)).copied().unwrap_or(origin)
    }

    /// How many failures the worker knew of, at least, that made the copy at this depth.
    fn failures_before(&self, group: usize, origin: MessageId, depth: usize) -> usize {
        let at = |depth: usize| {
            let attempts = self.attempts_at(group, origin, self.at_depth(group, origin, depth));
            let failures =
                attempts.values().map(|runs| runs.iter().filter(|run| run.how == Some(How::Failed)).count());
            failures.min().unwrap_or(0)
        };
        (0..depth).map(at).sum()
    }

    /// The runs of one copy that may have made the next, by the claims under which they were made.
    fn attempts_at(&self, group: usize, origin: MessageId, id: MessageId) -> BTreeMap<Token, Vec<&Run>> {
        let mut attempts: BTreeMap<Token, Vec<&Run>> = BTreeMap::new();
        let runs = self.handled.get(&(group, origin)).map_or(&[][..], |handling| &handling.runs);
        for run in runs.iter().map(|run| &self.runs[run.0]).filter(|run| run.id == id) {
            attempts.entry(run.token).or_default().push(run);
        }
        attempts.retain(|_, runs| {
            runs.last().is_some_and(|run| matches!(run.how, Some(How::Failed | How::Snoozed)))
        });
        attempts
    }

    /// The runs in one place under one claim.
    fn under(&self, group: usize, place: Place, token: Token) -> impl Iterator<Item = &Run> {
        self.runs_at(group, place).filter(move |run| run.token == token)
    }

    /// How long to wait, at least, after a run that ended so and with so many failures.
    fn least_wait(&self, group: usize, how: Option<How>, failures: usize) -> Duration {
        match how {
            Some(How::Failed) => self.backoff(group, failures, LEAST),
            Some(How::Snoozed) => self.rules.snooze,
            _ => Duration::ZERO,
        }
    }

    fn backoff(&self, group: usize, failures: usize, (parts, of): (u32, u32)) -> Duration {
        let rules = &self.rules.groups[group];
        let Some(doublings) = (failures as u32).checked_sub(rules.immediate + 1) else {
            return Duration::ZERO;
        };
        let (first, most) = rules.backoff;
        first.saturating_mul(1 << doublings.min(20)).min(most) * parts / of
    }
}
