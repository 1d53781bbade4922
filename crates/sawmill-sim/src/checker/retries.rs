//! Checks retries: a failed message is retried as often as its group allows, and not before its backoff is
//! over.
//!
//! The attempt counts and due times that the core writes into copies are what is checked here, so they are
//! not trusted. The checker knows the copies in order of arrival, and how each run ended.

use std::collections::BTreeMap;
use std::time::Duration;

use sawmill::engine::model::Token;
use sawmill::{Message, MessageId, Timestamp};

use super::book::{Book, How, Place, Run, Started};
use super::invariant::Invariant;

/// Backoffs vary randomly by a quarter.
const MIN_JITTER: (u32, u32) = (3, 4);
const MAX_JITTER: (u32, u32) = (5, 4);
/// Wall clocks have a resolution of a millisecond.
const ROUNDING: Duration = Duration::from_millis(2);

impl Book {
    /// Invariant 18, when a message starts: no more attempts than allowed, and not before a wait in place is
    /// over.
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
        // The worker waits by its own clock, which may be fast.
        let wait = self.least_wait(group, how, known) * 1000 / self.rules.fastest;
        let waited = started.wall.since(ended);
        self.check(Invariant::Retried, waited + ROUNDING >= wait, |_| {
            let what =
                format!("{} started {waited:?} after it ended as {how:?}; minimum: {wait:?}", started.origin);
            (what, vec![started.origin.to_string(), started.message.id.to_string()])
        });
    }

    /// Invariant 18, when a copy arrives on the retry lane: its due time is the end of the run that made it
    /// plus the backoff.
    pub(super) fn due_as_planned(&mut self, group: usize, copy: &Message) {
        let origin = copy.origin();
        let Some(depth) = self.depth(group, origin, copy.id).filter(|depth| *depth > 0) else { return };
        // A copy without a due time may run at once.
        let due = copy.due.unwrap_or(copy.created);
        let parent = self.at_depth(group, origin, depth - 1);
        let before = self.failures_before(group, origin, depth - 1);
        // Several workers may have made the copy, so the earliest possible time counts.
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
        let longest = self.backoff(group, failures, MAX_JITTER).max(snooze);
        let (latest, skew) = (self.wall + longest, 2 * self.rules.skew + ROUNDING);
        self.check(Invariant::Retried, due + skew >= earliest && due <= latest + skew, |_| {
            let what = format!("the retry of {origin} is due at {due}; expected from {earliest} to {latest}");
            (what, vec![origin.to_string(), copy.id.to_string()])
        });
    }

    /// Returns the number of copies between the pushed message and this one. Returns `None` where that is
    /// unknown: duplicates in the log, a seek, or attempts that the store may have undone.
    fn depth(&self, group: usize, origin: MessageId, id: MessageId) -> Option<usize> {
        let topic = &self.pushed[*self.origins.get(&origin)?].intent.topic;
        if self.doubled.contains(&origin) || self.was_sent_elsewhere(topic, group) || self.undoable.is_needed
        {
            return None;
        }
        // A resent letter starts its attempts anew.
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

    /// Returns the minimum number of failures that the worker knew of when it made the copy at this depth.
    fn failures_before(&self, group: usize, origin: MessageId, depth: usize) -> usize {
        let at = |depth: usize| {
            let attempts = self.attempts_at(group, origin, self.at_depth(group, origin, depth));
            let failures =
                attempts.values().map(|runs| runs.iter().filter(|run| run.how == Some(How::Failed)).count());
            failures.min().unwrap_or(0)
        };
        (0..depth).map(at).sum()
    }

    /// Returns the runs of one copy that may have made the next, by their claims.
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

    /// Returns the runs in one place under one claim.
    fn under(&self, group: usize, place: Place, token: Token) -> impl Iterator<Item = &Run> {
        self.runs_at(group, place).filter(move |run| run.token == token)
    }

    /// Returns the minimum wait after a run that ended like this, with this many failures.
    fn least_wait(&self, group: usize, how: Option<How>, failures: usize) -> Duration {
        match how {
            Some(How::Failed) => self.backoff(group, failures, MIN_JITTER),
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
