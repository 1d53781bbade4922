//! Dead letters: what a person has decided holds for those that were meant, and for no others.

use sawmill::Message;
use sawmill::ledger::EntryKey;
use sawmill::log::{Position, Span};
use sawmill::shard::{Fate, Grab, Report, Rules, ShardState};
use sawmill::topic::Lane;
use sawmill::{Token, WorkerId};
use sawmill_sim::checker::{Decision, How, Invariant};

use crate::world::World;

/// A world with two dead letters, which a person has claimed.
struct Office {
    world: World,
    letters: Vec<Message>,
    state: ShardState,
    token: Token,
}

impl Office {
    fn new() -> Self {
        let mut world = World::new(false, false);
        let messages = [world.push(None), world.push(None)];
        let token = world.grab(0, 0, 2);
        let letters = messages.iter().map(|message| {
            let run = world.start(0, message, token);
            world.end(run, How::GaveUp);
            world.copy(message, Lane::Dead, None)
        });
        let letters = letters.collect();
        let mut state = ShardState::default();
        let (span, end) = (Span::from_range(0, 2, 2), Position::from_number(2));
        let token = state.grab(&people(), Rules::default(), &Grab { span, end, count: 2 }).unwrap();
        let mut office = Self { world, letters, state, token };
        office.commit();
        assert_eq!(office.world.found(), None);
        office
    }

    fn commit(&mut self) {
        let key = EntryKey::shard(&self.world.lane(Lane::Dead), &"people".parse().unwrap(), 0);
        self.world.write(0, key, Some(self.state.encode()));
    }

    fn settle(&mut self, index: u32, fate: Fate) {
        let token = self.token;
        let report =
            Report { token, fates: [(fate, [index].into_iter().collect())].into(), ..Report::default() };
        self.state.settle(&people(), &report).unwrap();
        self.commit();
    }

    /// A person decides on the first letter, or on all, and this is what happens meanwhile.
    fn decide(&mut self, all: bool, decision: Decision, what: impl Fn(&mut Self)) -> Option<Invariant> {
        let first = [self.letters[0].origin()];
        let chosen = (!all).then_some(&first[..]);
        let wish = self.world.book.decision_begins("t", "g", chosen, decision).unwrap();
        what(self);
        self.world.book.decided(&wish);
        self.world.found()
    }

    fn send_back(&mut self, index: usize) {
        let letter = self.letters[index].clone();
        self.world.send_back(&letter);
        self.settle(index as u32, Fate::Retried);
    }
}

fn people() -> WorkerId {
    WorkerId::new("people")
}

#[test]
fn i1_what_was_decided_is_so() {
    let resent = Office::new().decide(false, Decision::Resent, |office| office.send_back(0));
    assert_eq!(resent, None);
    let dropped = Office::new().decide(true, Decision::Dropped, |office| {
        office.settle(0, Fate::Dropped);
        office.settle(1, Fate::Dropped);
    });
    assert_eq!(dropped, None);
}

#[test]
fn i1_what_was_decided_is_not_forgotten() {
    let lost = Some(Invariant::NothingLost);
    assert_eq!(Office::new().decide(false, Decision::Resent, |_| {}), lost);
    let one_of_two = Office::new().decide(true, Decision::Dropped, |office| office.settle(0, Fate::Dropped));
    assert_eq!(one_of_two, lost);
}

#[test]
fn i1_a_letter_that_was_to_be_sent_back_is_not_dropped() {
    let dropped = Office::new().decide(false, Decision::Resent, |office| office.settle(0, Fate::Dropped));
    assert_eq!(dropped, Some(Invariant::NothingLost));
}

#[test]
fn i1_a_letter_that_was_not_meant_stays() {
    let both = Office::new().decide(false, Decision::Resent, |office| {
        office.send_back(0);
        office.send_back(1);
    });
    assert_eq!(both, Some(Invariant::NothingLost));
}

#[test]
fn i1_a_letter_does_not_count_as_sent_back_without_a_copy() {
    let mut office = Office::new();
    office.settle(0, Fate::Retried);
    assert_eq!(office.world.found(), Some(Invariant::NothingLost));
}

#[test]
fn i1_after_an_error_nobody_knows_what_became_of_a_letter() {
    let mut office = Office::new();
    let chosen = [office.letters[0].origin()];
    let wish = office.world.book.decision_begins("t", "g", Some(&chosen), Decision::Resent).unwrap();
    office.world.book.decision_failed(&wish);
    assert_eq!(office.decide(false, Decision::Dropped, |office| office.send_back(0)), None);
}
