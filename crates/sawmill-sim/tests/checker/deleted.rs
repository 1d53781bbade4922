//! Deleted topics: their messages need not be accounted for, and must not come back.

use std::time::Duration;

use sawmill::Message;
use sawmill::engine::model::{Lane, Topic};
use sawmill_sim::checker::{How, Invariant};

use crate::world::{TTL, World, group_name};

/// Creates a world whose topic was deleted while worker `a` held a message and another waited.
fn world_without_its_topic() -> (World, Message, sawmill::engine::model::Token) {
    let mut world = World::new(false, false);
    let message = world.push(None);
    world.push(None);
    let token = world.claim_block(0, 0, 1);
    world.book.set_time(world.now, world.wall());
    world.book.deletion_begins(&world.topic.clone());
    (world, message, token)
}

/// Returns a new topic of the same name.
fn again(world: &World) -> Topic {
    Topic { uid: "t2".into(), ..world.topic.clone() }
}

#[test]
fn i2_nobody_accounts_for_a_deleted_topic() {
    let (mut world, message, token) = world_without_its_topic();
    world.book.deletion_acknowledged("t", &[]);
    // Its worker has not noticed yet.
    world.now += TTL;
    let run = world.start(0, &message, token);
    world.end(run, How::Done);
    assert_eq!(world.book.left_over(), None);
    world.book.check_nothing_missing();
    world.topic = again(&world);
    world.push_to(0, 1, None);
    assert_eq!(world.book.violation(), None);
    assert!(world.book.left_over().is_some(), "the topic that is there now has to be worked");
}

#[test]
fn i2_a_deleted_topic_leaves_no_lane_with_messages() {
    let (mut world, ..) = world_without_its_topic();
    world.book.deletion_acknowledged("t", &[("t@g.dead".into(), 0), ("t@g.retry".into(), 1)]);
    assert_eq!(world.found(), Some(Invariant::NothingInvented));
}

#[test]
fn i2_what_was_in_a_deleted_topic_is_not_started_much_later() {
    let (mut world, message, token) = world_without_its_topic();
    world.book.deletion_acknowledged("t", &[]);
    world.now += TTL + Duration::from_millis(5_001);
    world.start(0, &message, token);
    assert_eq!(world.found(), Some(Invariant::NothingInvented));
}

#[test]
fn i2_what_was_in_a_deleted_topic_does_not_come_back() {
    for lane in [None, Some(Lane::Retry), Some(Lane::Dead)] {
        let (mut world, message, _) = world_without_its_topic();
        world.book.deletion_acknowledged("t", &[]);
        let mut topic = again(&world);
        if let Some(lane) = lane {
            topic = Topic { name: topic.name.lane(&group_name(), lane), ..topic };
        }
        world.book.readable(&topic, 0, 1, &message);
        assert_eq!(world.found(), Some(Invariant::NothingInvented), "{lane:?}");
    }
}
