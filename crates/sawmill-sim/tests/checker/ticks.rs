//! Missed ticks: those that the policy demands are pushed, and no others.

use std::time::Duration;

use sawmill::engine::model::Headers;
use sawmill::engine::storage::EntryKey;
use sawmill::{Message, MessageId, Missed, Timestamp};
use sawmill_sim::checker::{Intent, Invariant};

use crate::world::{World, message};

/// Creates a world with a schedule that ticks every two seconds.
fn world_with_a_schedule(missed: Missed) -> World {
    let mut world = World::new(false, false);
    let intent = Intent { topic: "t".into(), key: Some("k".into()), headers: Headers::default(), due: None };
    let number = world.book.intended(intent);
    world.book.ticks(number, "often", Duration::from_secs(2), missed);
    is_at(&mut world, 0);
    world
}

/// Pushes the tick of this second at this millisecond.
fn tick(world: &mut World, second: u64, pushed_at: u64) {
    let headers = [("sawmill-tick", (second * 1000).to_string())].into_iter().collect();
    let id = MessageId::from_u128(u128::from(second));
    let created = Timestamp::from_millis(pushed_at);
    let message = Message { id, headers, created, ..message(0, None) };
    world.book.readable(&world.topic.clone(), 0, second, &message);
}

/// Counts all ticks up to this second as pushed.
fn is_at(world: &mut World, second: u64) {
    let value = format!(r#"{{"last":{}}}"#, second * 1000);
    world.write(0, EntryKey::schedule(&world.topic, "often"), Some(value.into()));
}

#[test]
fn i2_the_latest_of_missed_ticks_is_pushed() {
    for (pushed, found) in [(6, None), (4, Some(Invariant::NothingInvented))] {
        let mut world = world_with_a_schedule(Missed::Once);
        tick(&mut world, 2, 2_010);
        is_at(&mut world, 2);
        tick(&mut world, pushed, 6_500);
        is_at(&mut world, pushed);
        assert_eq!(world.found(), found, "{pushed}");
    }
}

#[test]
fn i1_the_latest_of_missed_ticks_is_not_left_out() {
    let mut world = world_with_a_schedule(Missed::Once);
    tick(&mut world, 2, 2_010);
    is_at(&mut world, 6);
    assert_eq!(world.found(), Some(Invariant::NothingLost));
}

#[test]
fn i1_no_missed_tick_is_left_out_where_all_are_to_be_pushed() {
    let mut world = world_with_a_schedule(Missed::All);
    tick(&mut world, 2, 6_500);
    tick(&mut world, 6, 6_500);
    is_at(&mut world, 6);
    assert_eq!(world.found(), Some(Invariant::NothingLost));
}

#[test]
fn i2_ticks_that_are_older_than_a_minute_are_skipped() {
    let mut world = world_with_a_schedule(Missed::Skip);
    world.now = Duration::from_millis(64_500);
    (6..=64).step_by(2).for_each(|second| tick(&mut world, second, 64_500));
    is_at(&mut world, 64);
    assert_eq!(world.found(), None, "those of the seconds 2 and 4 are too old");
    tick(&mut world, 4, 64_500);
    assert_eq!(world.found(), Some(Invariant::NothingInvented));
}

#[test]
fn i1_ticks_that_are_younger_than_a_minute_are_not_skipped() {
    let mut world = world_with_a_schedule(Missed::Skip);
    world.now = Duration::from_millis(64_500);
    (8..=64).step_by(2).for_each(|second| tick(&mut world, second, 64_500));
    is_at(&mut world, 64);
    assert_eq!(world.found(), Some(Invariant::NothingLost), "the one of second 6 counts");
}

#[test]
fn i1_at_the_end_no_tick_is_missing() {
    let mut world = world_with_a_schedule(Missed::All);
    for second in [2, 4, 8] {
        tick(&mut world, second, second * 1000);
    }
    world.book.no_tick_is_missing();
    assert_eq!(world.found(), Some(Invariant::NothingLost), "that of second 6");
}

#[test]
fn i1_a_schedule_does_not_stop() {
    for (now, found) in [(10, None), (12, Some(Invariant::NothingLost))] {
        let mut world = world_with_a_schedule(Missed::Once);
        tick(&mut world, 4, 4_000);
        world.now = Duration::from_secs(now);
        world.book.set_time(world.now, world.wall());
        world.book.check_still_ticking();
        assert_eq!(world.found(), found, "at second {now}");
    }
}
