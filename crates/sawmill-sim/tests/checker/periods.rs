//! Names that are taken for a period, limits per key, and messages that may be in the log only once.

use std::time::Duration;

use sawmill::{Message, MessageId, Timestamp};
use sawmill_sim::checker::{GroupRules, How, Invariant};

use crate::world::World;

const PERIOD: Duration = Duration::from_secs(10);

/// Creates a world with two messages that take one name for a period, created at these milliseconds. The
/// first is in the log.
fn world_with_names(made: [u64; 2]) -> (World, [Message; 2]) {
    let mut world = World::new(false, false);
    let messages = [0, 1].map(|number| {
        world.book.named_for(number, "name", PERIOD);
        let message = world.push(None);
        let created = Timestamp::from_millis(made[number]);
        Message { id: message.id, created, ..message }
    });
    let (topic, first) = (world.topic.clone(), &messages[0]);
    world.book.check_name_period(&topic, first, Timestamp::from_millis(made[0]));
    assert_eq!(world.found(), None);
    (world, messages)
}

#[test]
fn i12_a_name_is_not_given_again_before_its_time_is_over() {
    for (landed, found) in [(PERIOD, None), (PERIOD / 2, Some(Invariant::Unique))] {
        let (mut world, messages) = world_with_names([0, landed.as_millis() as u64]);
        let topic = world.topic.clone();
        let landed = Timestamp::from_millis(landed.as_millis() as u64);
        world.book.check_name_period(&topic, &messages[1], landed);
        assert_eq!(world.found(), found, "{landed}");
    }
}

#[test]
fn i12_a_push_is_not_answered_with_a_name_whose_time_is_over() {
    for (began, found) in [(PERIOD, None), (PERIOD + Duration::from_millis(1), Some(Invariant::Unique))] {
        let (mut world, messages) = world_with_names([0, 0]);
        let began = Timestamp::from_millis(began.as_millis() as u64);
        world.book.check_answer_in_period(1, messages[0].id, began, began);
        assert_eq!(world.found(), found, "{began}");
    }
}

#[test]
fn i15_no_more_of_a_key_starts_in_a_second_than_may() {
    for (pause, found) in
        [(Duration::from_millis(500), None), (Duration::from_millis(100), Some(Invariant::Limited))]
    {
        let mut world = World::with(GroupRules { per_key: Some(2), ..World::rules(true, false) });
        let messages: Vec<Message> = (0..8).map(|_| world.push(None)).collect();
        let token = world.claim_block(0, 0, 8);
        for message in &messages {
            world.now += pause;
            let run = world.start(0, message, token);
            world.end(run, How::Done);
        }
        assert_eq!(world.found(), found, "{pause:?}");
    }
}

#[test]
fn i2_what_follows_from_a_message_comes_once() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    world.book.comes_once(0);
    world.book.readable(&world.topic.clone(), 0, 2, &message);
    assert_eq!(world.found(), Some(Invariant::NothingInvented));
}

#[test]
fn i2_what_follows_from_a_message_has_one_id() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    world.book.comes_once(0);
    let again = Message { id: MessageId::from_u128(7), ..message };
    world.book.readable(&world.topic.clone(), 0, 2, &again);
    assert_eq!(world.found(), Some(Invariant::NothingInvented));
}
