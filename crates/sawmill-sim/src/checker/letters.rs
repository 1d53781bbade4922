//! Dead letters and the people who decide on them: a letter that is sent back begins a new life, and one that is dropped ends.

use std::collections::{BTreeMap, BTreeSet};

use sawmill::MessageId;
use sawmill::shard::ShardState;
use sawmill::topic::Lane;

use super::book::{Book, Place};
use super::invariant::Invariant;
use super::settled::Hidden;
use super::shards::Written;

/// The people's entry of one dead-letter lane, and what they decided.
#[derive(Default)]
pub(super) struct Letters {
    state: ShardState,
    decided: BTreeMap<u64, Decision>,
}

/// What became of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// It was sent back to its group.
    Resent,
    /// It was dropped.
    Dropped,
}

/// A person's wish, and the letters as they were when the decision began.
#[derive(Debug, Clone)]
pub struct Wish {
    decision: Decision,
    /// The letters that are meant.
    meant: Vec<Place>,
    /// Those that must stay as they are; none if all letters are meant.
    others: Vec<Place>,
}

impl Book {
    /// The people who look after a dead-letter lane have written to their entry.
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

    /// A person is about to decide on the letters of these messages, or on all that there are.
    pub fn decision_begins(
        &self,
        topic: &str,
        group: &str,
        chosen: Option<&[MessageId]>,
        decision: Decision,
    ) -> Option<Wish> {
        let group = self.group(group)?;
        let is_open = |place: &Place| {
            self.is_on(topic, group, Lane::Dead, place.0)
                && !self.topics[place.0].is_deleted
                && self.decision(*place).is_none()
                && !self.unsure_letters.contains(place)
        };
        let open = self.places.iter().filter(|(place, _)| is_open(place));
        let is_meant = |origin: &MessageId| chosen.is_none_or(|chosen| chosen.contains(origin));
        let (meant, others): (Vec<_>, Vec<_>) = open.partition(|(_, lying)| is_meant(&lying.origin));
        let places = |letters: Vec<(&Place, _)>| letters.into_iter().map(|(place, _)| *place).collect();
        Some(Wish { decision, meant: places(meant), others: places(others) })
    }

    /// Invariant 1: what a person has decided holds for the letters that were meant, and for no others.
    pub fn decided(&mut self, wish: &Wish) {
        let missed = wish.meant.iter().find(|place| self.decision(**place) != Some(wish.decision));
        let more = wish.others.iter().find(|place| self.decision(**place).is_some());
        for (place, what) in [(missed, "is not"), (more, "was not meant to be")] {
            let place = place.copied();
            self.check(Invariant::NothingLost, place.is_none(), |book| {
                let origin =
                    place.and_then(|place| book.places.get(&place)).map(|lying| lying.origin.to_string());
                let origin = origin.unwrap_or_default();
                let became = place.and_then(|place| book.decision(place));
                let asked = wish.decision;
                (format!("the dead letter of {origin} {what} {asked:?}, and became {became:?}"), vec![origin])
            });
        }
    }

    /// A person was told of an error: nobody knows what became of these letters, now or later.
    pub fn decision_failed(&mut self, wish: &Wish) {
        let lanes: BTreeSet<usize> = wish.meant.iter().map(|place| place.0).collect();
        let those = self.places.keys().filter(|place| match wish.others.is_empty() {
            // All letters were meant, also those that came since.
            true => lanes.contains(&place.0),
            false => wish.meant.contains(place),
        });
        self.unsure_letters.extend(those.copied().collect::<Vec<_>>());
    }

    /// Invariant 1: a letter that counts as sent back is on the retry lane, each one as a copy of its own.
    fn is_sent_back(&mut self, place: Place, hidden: Hidden<'_>) {
        let (Some(lying), Some((group, Lane::Dead))) = (self.places.get(&place), self.topics[place.0].lane)
        else {
            return;
        };
        let origin = lying.origin;
        // A copy may be acknowledged before it can be read.
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

    /// How many different dead letters of a message count as sent back.
    fn letters_sent_back(&self, group: usize, origin: MessageId) -> usize {
        let of_it = |place: &Place, id: MessageId| {
            self.topics[place.0].lane == Some((group, Lane::Dead))
                && self.decision(*place) == Some(Decision::Resent)
                && id != origin
        };
        let letters =
            self.places.iter().filter(|(place, lying)| lying.origin == origin && of_it(place, lying.id));
        letters.map(|(_, lying)| lying.id).collect::<BTreeSet<_>>().len()
    }

    /// How many copies of a message came to the retry lane because its dead letter was sent back.
    pub(super) fn resent_copies(&self, group: usize, origin: MessageId) -> usize {
        self.handled.get(&(group, origin)).map_or(0, |handling| handling.lives.len())
    }

    /// In how many places of the retry lane the copies are that came because a dead letter was sent back.
    pub(super) fn resent_places(&self, group: usize, origin: MessageId) -> usize {
        let Some(handling) = self.handled.get(&(group, origin)) else { return 0 };
        let copies = handling.lives.iter().filter_map(|(nth, _)| handling.retries.get(nth - 1));
        copies.map(|copy| self.places_of(group, *copy).len()).sum()
    }

    /// True if a letter was sent back and does not count as that: somebody was told of an error, or was interrupted.
    pub(super) fn is_half_sent_back(&self, group: usize, origin: MessageId) -> bool {
        let copies = self.resent_copies(group, origin);
        copies > 0 && copies > self.letters_sent_back(group, origin)
    }

    /// What became of the dead letter in this place.
    pub(super) fn decision(&self, (topic, _, number): Place) -> Option<Decision> {
        self.letters.get(&topic)?.decided.get(&number).copied()
    }

    /// At the end: the letters that are listed are those that nobody has decided on.
    pub fn letters_are(&mut self, topic: &str, group: &str, listed: &BTreeSet<MessageId>) {
        let Some(group) = self.group(group) else { return };
        let mut open = BTreeSet::new();
        for (place, lying) in &self.places {
            if self.is_on(topic, group, Lane::Dead, place.0) && self.decision(*place).is_none() {
                open.insert(lying.origin);
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
