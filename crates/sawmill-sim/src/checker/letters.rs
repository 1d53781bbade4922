//! Dead letters and decisions about them: a resent letter gets new attempts, and a dropped one ends.

use std::collections::{BTreeMap, BTreeSet};

use sawmill::MessageId;
use sawmill::engine::model::{Lane, ShardState};

use super::book::{Book, Place};
use super::invariant::Invariant;
use super::settled::Hidden;
use super::shards::Written;

/// The users' entry of one dead-letter lane, and their decisions.
#[derive(Default)]
pub(super) struct Letters {
    state: ShardState,
    decided: BTreeMap<u64, Decision>,
}

/// The decision about a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It was sent back to its group.
    Resent,
    /// It was dropped.
    Dropped,
}

/// A decision in progress, and the letters as they were when it began.
#[derive(Debug, Clone)]
pub struct PendingDecision {
    decision: Decision,
    /// The chosen letters.
    meant: Vec<Place>,
    /// The letters that must not change; none if all letters are chosen.
    others: Vec<Place>,
}

impl Book {
    /// Checks a write to the users' entry of a dead-letter lane.
    pub(super) fn letters_written(&mut self, written: &Written<'_>, topic: usize, hidden: Hidden<'_>) {
        let key = written.key.as_str().to_owned();
        let new = written.value.and_then(|value| ShardState::decode(written.key, value).ok());
        let Some(new) = new else { return };
        let mut letters = self.letters.remove(&topic).unwrap_or_default();
        let old = std::mem::replace(&mut letters.state, new);
        let new = &letters.state;
        let (from, to) = (old.cursor.number().unwrap_or(0), new.cursor.number().unwrap_or(0));
        let passed = self.between(topic, 0, from, to).count() as u64;
        let fresh = new.claims.iter().filter(|claim| claim.token > old.token);
        let claimed: u64 = fresh.map(|claim| u64::from(claim.count)).sum();
        self.check(Invariant::Cursor, to >= from && passed == claimed, |_| {
            let what = format!("{key}: the cursor moved from {from} to {to} past {passed} letters, and {claimed} were claimed");
            (what, vec![key.clone()])
        });
        let decision = match new.tally.dropped > old.tally.dropped {
            true => Decision::Dropped,
            false => Decision::Resent,
        };
        let mut fresh = Vec::new();
        for claim in &old.claims {
            let now = new.claims.iter().find(|now| now.token == claim.token);
            let (after, upto, _) = claim.span.range().unwrap_or_default();
            for (index, number) in (0..).zip(self.between(topic, 0, after, upto)) {
                if !claim.done.contains(index) && now.is_none_or(|now| now.done.contains(index)) {
                    fresh.push(number);
                }
            }
        }
        letters.decided.extend(fresh.iter().map(|number| (*number, decision)));
        self.letters.insert(topic, letters);
        if decision == Decision::Resent {
            fresh.into_iter().for_each(|number| self.is_sent_back((topic, 0, number), hidden));
        }
    }

    /// Records that a user is about to decide about the letters of these messages, or about all letters.
    pub fn decision_begins(
        &self,
        topic: &str,
        group: &str,
        chosen: Option<&[MessageId]>,
        decision: Decision,
    ) -> Option<PendingDecision> {
        let group = self.group(group)?;
        let is_open = |place: &Place| {
            self.is_on(topic, group, Lane::Dead, place.0)
                && !self.topics[place.0].is_deleted
                && self.decision(*place).is_none()
                && !self.unsure_letters.contains(place)
        };
        let open = self.places.iter().filter(|(place, _)| is_open(place));
        let is_meant = |origin: &MessageId| chosen.is_none_or(|chosen| chosen.contains(origin));
        let (meant, others): (Vec<_>, Vec<_>) = open.partition(|(_, logged)| is_meant(&logged.origin));
        let places = |letters: Vec<(&Place, _)>| letters.into_iter().map(|(place, _)| *place).collect();
        Some(PendingDecision { decision, meant: places(meant), others: places(others) })
    }

    /// Invariant 1: a decision takes effect for the chosen letters and for no others.
    pub fn decided(&mut self, pending: &PendingDecision) {
        let missed = pending.meant.iter().find(|place| self.decision(**place) != Some(pending.decision));
        let more = pending.others.iter().find(|place| self.decision(**place).is_some());
        for (place, what) in [(missed, "is not"), (more, "was not meant to be")] {
            let place = place.copied();
            self.check(Invariant::NothingLost, place.is_none(), |book| {
                let origin =
                    place.and_then(|place| book.places.get(&place)).map(|logged| logged.origin.to_string());
                let origin = origin.unwrap_or_default();
                let became = place.and_then(|place| book.decision(place));
                let asked = pending.decision;
                (format!("the dead letter of {origin} {what} {asked:?}, and became {became:?}"), vec![origin])
            });
        }
    }

    /// Records that a decision returned an error: the fate of these letters is unknown, now and later.
    pub fn decision_failed(&mut self, pending: &PendingDecision) {
        let lanes: BTreeSet<usize> = pending.meant.iter().map(|place| place.0).collect();
        let those = self.places.keys().filter(|place| match pending.others.is_empty() {
            // All letters were chosen, including those that arrived since.
            true => lanes.contains(&place.0),
            false => pending.meant.contains(place),
        });
        self.unsure_letters.extend(those.copied().collect::<Vec<_>>());
    }

    /// Invariant 1: each letter that counts as resent has its own copy on the retry lane.
    fn is_sent_back(&mut self, place: Place, hidden: Hidden<'_>) {
        let (Some(logged), Some((group, Lane::Dead))) = (self.places.get(&place), self.topics[place.0].lane)
        else {
            return;
        };
        let origin = logged.origin;
        // A copy may be acknowledged before it is readable.
        let known = self.handled.get(&(group, origin)).map_or(&[][..], |handling| &handling.retries);
        let underway = self.hidden_copies(group, origin, Lane::Retry, hidden);
        let underway = underway.iter().filter(|copy| !known.contains(copy)).count();
        let letters = self.letters_sent_back(group, origin);
        let copies = self.resent_copies(group, origin) + underway;
        self.check(Invariant::NothingLost, letters <= copies, |_| {
            let what = format!(
                "{letters} dead letters of {origin} count as sent back, and {copies} copies of them came"
            );
            (what, vec![origin.to_string()])
        });
    }

    /// Returns how many different dead letters of a message count as resent.
    fn letters_sent_back(&self, group: usize, origin: MessageId) -> usize {
        let of_it = |place: &Place, id: MessageId| {
            self.topics[place.0].lane == Some((group, Lane::Dead))
                && self.decision(*place) == Some(Decision::Resent)
                && id != origin
        };
        let letters =
            self.places.iter().filter(|(place, logged)| logged.origin == origin && of_it(place, logged.id));
        letters.map(|(_, logged)| logged.id).collect::<BTreeSet<_>>().len()
    }

    /// Returns how many copies arrived on the retry lane because a dead letter was resent.
    pub(super) fn resent_copies(&self, group: usize, origin: MessageId) -> usize {
        self.handled.get(&(group, origin)).map_or(0, |handling| handling.lives.len())
    }

    /// Returns the number of places in the retry lane that hold copies of resent letters.
    pub(super) fn resent_places(&self, group: usize, origin: MessageId) -> usize {
        let Some(handling) = self.handled.get(&(group, origin)) else { return 0 };
        let copies = handling.lives.iter().filter_map(|(nth, _)| handling.retries.get(nth - 1));
        copies.map(|copy| self.places_of(group, *copy).len()).sum()
    }

    /// Returns true if a letter has a resent copy but does not count as resent, because of an error or an
    /// interruption.
    pub(super) fn is_half_sent_back(&self, group: usize, origin: MessageId) -> bool {
        let copies = self.resent_copies(group, origin);
        copies > 0 && copies > self.letters_sent_back(group, origin)
    }

    /// Returns the decision about the dead letter in this place.
    pub(super) fn decision(&self, (topic, _, number): Place) -> Option<Decision> {
        self.letters.get(&topic)?.decided.get(&number).copied()
    }

    /// Checks at the end that the listed letters are those without a decision.
    pub fn check_listed_letters(&mut self, topic: &str, group: &str, listed: &BTreeSet<MessageId>) {
        let Some(group) = self.group(group) else { return };
        let mut open = BTreeSet::new();
        for (place, logged) in &self.places {
            if self.is_on(topic, group, Lane::Dead, place.0) && self.decision(*place).is_none() {
                open.insert(logged.origin);
            }
        }
        self.check(Invariant::NothingLost, *listed == open, |_| {
            let missing: Vec<String> = open.symmetric_difference(listed).map(ToString::to_string).collect();
            (
                format!(
                    "the dead letters of {topic} that are listed are not those that are there: {missing:?}"
                ),
                missing,
            )
        });
    }
}
