//! What holds for a time: names that are taken for a period, and limits of keys.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use sawmill::clock::Timestamp;
use sawmill::topic::Topic;
use sawmill::{Message, MessageId};

use super::book::{Book, Run, Started};
use super::invariant::Invariant;
use crate::features::Feature;

/// What is known of names.
#[derive(Default)]
pub(super) struct Periods {
    /// For how long a message takes its name, by number.
    names: BTreeMap<usize, Duration>,
    /// When such a message came into the log, and when it was made.
    landed: BTreeMap<usize, (Timestamp, Timestamp)>,
    /// When such a message was last the answer to a push that was right.
    used: BTreeMap<MessageId, Timestamp>,
    /// Names of which a push failed: nobody knows for how long they are taken.
    unsure: BTreeSet<String>,
}

impl Book {
    /// The message with this number takes its name for this time.
    pub fn named_for(&mut self, number: usize, name: &str, period: Duration) {
        self.named(number, name);
        self.periods.names.insert(number, period);
    }

    /// True if this message takes its name for a time, whether it is live or not.
    pub(super) fn is_named_for_a_time(&self, number: usize) -> bool {
        self.periods.names.contains_key(&number)
    }

    /// Invariant 12: of messages that take a name for a time the second comes when that time is over.
    pub fn names_last(&mut self, topic: &Topic, message: &Message, now: Timestamp) {
        let number = self.origins.get(&message.id).copied().filter(|_| topic.name.as_lane().is_none());
        let Some((number, period)) = number.and_then(|of| Some((of, *self.periods.names.get(&of)?))) else {
            return;
        };
        if self.periods.landed.contains_key(&number) {
            return;
        }
        // A push that finds its name reserved by an earlier push of unknown outcome appends under that push's id.
        let (landed, made) = (now, message.created.min(message.id.created()));
        // Nobody can tell when a name was reserved: after its message was made, and before it came into the log.
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

    /// A push of this message failed, and may have reserved its name.
    pub fn push_failed(&mut self, number: usize) {
        if let Some(name) = self.names.get(&number).filter(|_| self.is_named_for_a_time(number)) {
            self.periods.unsure.insert(name.clone());
        }
    }

    /// Invariant 12: a push that began at this time was answered with the id of another message, which must still have the
    /// name then.
    pub fn is_taken(&mut self, number: usize, id: MessageId, began: Timestamp, now: Timestamp) {
        let Some(period) = self.periods.names.get(&number).copied() else { return };
        let other = self.origins.get(&id).copied().filter(|other| *other != number);
        let Some((landed, _)) = other.and_then(|other| self.periods.landed.get(&other).copied()) else {
            return;
        };
        let skew = self.rules.skew * 2;
        // A push that takes long reserves its name anew, and may find that its id is in the log already.
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

    /// Invariant 15, for each key: a worker starts no more of it in a second than the limit allows, and what was saved up.
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
        // It was there when the one before it of its key was started, and could have started when that had ended.
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
