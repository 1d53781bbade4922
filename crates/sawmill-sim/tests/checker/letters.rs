//! Dead letters: a decision takes effect for the chosen letters and for no others.

use sawmill::Message;
use sawmill::engine::model::{Fate, Lane, NewClaim, Report, Rules, ShardState, Token, WorkerId};
use sawmill::engine::storage::{EntryKey, Position, Span};
use sawmill_sim::checker::{Decision, How, Invariant};

use crate::world::World;

/// A world with two dead letters that a user has claimed.
struct LetterWorld {
    world: World,
    letters: Vec<Message>,
    state: ShardState,
    token: Token,
}

impl LetterWorld {
    fn new() -> Self {
        let mut world = World::new(false, false);
        let messages = [world.push(None), world.push(None)];
        let token = world.claim_block(0, 0, 2);
        let letters = messages.iter().map(|message| {
            let run = world.start(0, message, token);
            world.end(run, How::GaveUp);
            world.copy(message, Lane::Dead, None)
        });
        let letters = letters.collect();
        let mut state = ShardState::default();
        let (span, end) = (Span::from_range(0, 2, 2), Position::from_number(2));
        let token =
            state.claim_block(&people(), Rules::default(), &NewClaim { span, end, count: 2 }).unwrap();
        let mut letter_world = Self { world, letters, state, token };
        letter_world.commit();
        assert_eq!(letter_world.world.found(), None);
        letter_world
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

    /// Decides on the first letter or on all, with these events during the decision.
    fn decide(&mut self, all: bool, decision: Decision, what: impl Fn(&mut Self)) -> Option<Invariant> {
        let first = [self.letters[0].origin()];
        let chosen = (!all).then_some(&first[..]);
        let pending = self.world.book.decision_begins("t", "g", chosen, decision).unwrap();
        what(self);
        self.world.book.decided(&pending);
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
    let resent = LetterWorld::new().decide(false, Decision::Resent, |letter_world| letter_world.send_back(0));
    assert_eq!(resent, None);
    let dropped = LetterWorld::new().decide(true, Decision::Dropped, |letter_world| {
        letter_world.settle(0, Fate::Dropped);
        letter_world.settle(1, Fate::Dropped);
    });
    assert_eq!(dropped, None);
}

#[test]
fn i1_what_was_decided_is_not_forgotten() {
    let lost = Some(Invariant::NothingLost);
    assert_eq!(LetterWorld::new().decide(false, Decision::Resent, |_| {}), lost);
    let one_of_two = LetterWorld::new()
        .decide(true, Decision::Dropped, |letter_world| letter_world.settle(0, Fate::Dropped));
    assert_eq!(one_of_two, lost);
}

#[test]
fn i1_a_letter_that_was_to_be_sent_back_is_not_dropped() {
    let dropped = LetterWorld::new()
        .decide(false, Decision::Resent, |letter_world| letter_world.settle(0, Fate::Dropped));
    assert_eq!(dropped, Some(Invariant::NothingLost));
}

#[test]
fn i1_a_letter_that_was_not_meant_stays() {
    let both = LetterWorld::new().decide(false, Decision::Resent, |letter_world| {
        letter_world.send_back(0);
        letter_world.send_back(1);
    });
    assert_eq!(both, Some(Invariant::NothingLost));
}

#[test]
fn i1_a_letter_does_not_count_as_sent_back_without_a_copy() {
    let mut letter_world = LetterWorld::new();
    letter_world.settle(0, Fate::Retried);
    assert_eq!(letter_world.world.found(), Some(Invariant::NothingLost));
}

#[test]
fn i1_after_an_error_nobody_knows_what_became_of_a_letter() {
    let mut letter_world = LetterWorld::new();
    let chosen = [letter_world.letters[0].origin()];
    let pending = letter_world.world.book.decision_begins("t", "g", Some(&chosen), Decision::Resent).unwrap();
    letter_world.world.book.decision_failed(&pending);
    assert_eq!(letter_world.decide(false, Decision::Dropped, |letter_world| letter_world.send_back(0)), None);
}
