//! Checks what holds for a period: names that are taken for a time, and limits per key.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::Topic;
use sawmill::{Message, MessageId, Timestamp};

use super::book::{Book, Run, Started};
use super::invariant::Invariant;
use crate::features::Feature;

/// The known names that are taken for a period.
#[derive(Default)]
pub(super) struct Periods {
    /// How long each message takes its name, by number.
    names: BTreeMap<usize, Duration>,
    /// When each such message arrived in the log, and when it was created.
    landed: BTreeMap<usize, (Timestamp, Timestamp)>,
    /// When each such message was last correctly returned by a push.
    used: BTreeMap<MessageId, Timestamp>,
    /// Names with a failed push: how long they are taken is unknown.
    unsure: BTreeSet<String>,
}

impl Book {
    /// Records that the message with this number takes its name for this period.
    pub fn named_for(&mut self, number: usize, name: &str, period: Duration) {
        self.named(number, name);
        self.periods.names.insert(number, period);
    }

    /// Returns true if this message takes its name for a period, live or not.
    pub(super) fn is_named_for_a_time(&self, number: usize) -> bool {
        self.periods.names.contains_key(&number)
    }

    /// Invariant 12: of two messages that take the same name for a period, the second arrives after the
    /// period.
    pub fn check_name_period(&mut self, topic: &Topic, message: &Message, now: Timestamp) {
        let number = self.origins.get(&message.id).copied().filter(|_| topic.name.as_lane().is_none());
        let Some((number, period)) = number.and_then(|of| Some((of, *self.periods.names.get(&of)?))) else {
            return;
        };
        if self.periods.landed.contains_key(&number) {
            return;
        }
        // A push that finds its name reserved by an earlier push of unknown outcome appends under that push's
        // id.
        let (landed, made) = (now, message.created.min(message.id.created()));
        // The time of the reservation is unknown: after the message was created, and before it arrived in the
        // log.
        let too_soon = |other: &(Timestamp, Timestamp)| landed.max(other.0).since(made.min(other.1)) < period;
        let others = self.periods.landed.iter();
        let twin = others
            .filter(|(other, times)| self.share_a_name(number, **other) && too_soon(times))
            .map(|(other, _)| *other)
            .next();
        self.check(Invariant::Unique, twin.is_none(), |book| {
            let what =
                format!("{} was added within {period:?} after message {twin:?} of the same name", message.id);
            (format!("{what}: {:?}", book.names.get(&number)), vec![message.id.to_string()])
        });
        self.periods.landed.insert(number, (landed, made));
    }

    /// Records a failed push of this message, which may have reserved its name.
    pub fn push_failed(&mut self, number: usize) {
        if let Some(name) = self.names.get(&number).filter(|_| self.is_named_for_a_time(number)) {
            self.periods.unsure.insert(name.clone());
        }
    }

    /// Invariant 12: a push that began at this time returned the id of another message, which must have held
    /// the name at that time.
    pub fn check_answer_in_period(&mut self, number: usize, id: MessageId, began: Timestamp, now: Timestamp) {
        let Some(period) = self.periods.names.get(&number).copied() else { return };
        let other = self.origins.get(&id).copied().filter(|other| *other != number);
        let Some((landed, _)) = other.and_then(|other| self.periods.landed.get(&other).copied()) else {
            return;
        };
        let skew = self.rules.skew * 2;
        // A slow push reserves its name again, and may find that its id is already in the log.
        let used = self.periods.used.get(&id).copied().unwrap_or(landed).max(landed);
        if self.names.get(&number).is_some_and(|name| self.periods.unsure.contains(name)) {
            return;
        }
        let landed = used;
        self.periods.used.insert(id, now);
        self.check(Invariant::Unique, began <= landed + period + skew, |_| {
            let over = began.since(landed + period);
            let what =
                format!("a push was answered with {id}, {over:?} after the time for which that has its name");
            (what, vec![id.to_string()])
        });
    }

    /// Invariant 15, per key: a worker starts no more messages of a key in a second than the limit, plus what
    /// was saved up.
    pub(super) fn within_key_limit(&mut self, group: usize, started: &Started<'_>, worker: &str) {
        let (Some(rate), Some(key)) = (self.rules.groups[group].per_key, &started.message.key) else {
            return;
        };
        let since = started.at.saturating_sub(Duration::from_secs(1));
        let of_key = |run: &&Run| {
            run.worker == worker && self.key_of(run) == Some(key) && self.is_of(run, started.topic)
        };
        let of_key = || self.runs.iter().rev().take_while(|run| run.at > since).filter(of_key);
        let lately = of_key().count();
        // It existed when the previous message of its key was started, and could have started when that one
        // ended.
        let waited = of_key().nth(1).is_some_and(|last| {
            let pause = Duration::from_millis(500) / rate as u32;
            let was_there = started.wall.since(started.message.created) > started.at - last.at;
            was_there && last.ended.is_some_and(|ended| started.wall.since(ended) >= pause)
        });
        if waited && lately >= rate {
            self.used.push(Feature::KeyLimited);
        }
        let most = rate * self.rules.fastest as usize / 1000 + (rate / 10).max(1) + 1;
        self.check(Invariant::Limited, lately <= most, |_| {
            let what = format!("{lately} messages of key {key:?} started within a second, and {rate} may");
            (what, vec![started.origin.to_string()])
        });
    }

    fn key_of(&self, run: &Run) -> Option<&Bytes> {
        let number = self.origins.get(&run.origin)?;
        self.pushed[*number].intent.key.as_ref()
    }

    fn is_of(&self, run: &Run, topic: &str) -> bool {
        self.origins.get(&run.origin).is_some_and(|number| self.pushed[*number].intent.topic == topic)
    }
}
