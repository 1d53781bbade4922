//! Tests the checker with hand-made histories: a correct one, and one wrong in each way.
#![allow(clippy::unwrap_used)]

mod deleted;
mod drained;
mod formats;
mod letters;
mod periods;
mod promises;
mod ticks;
mod world;

use std::time::Duration;

use sawmill::MessageId;
use sawmill::admin::GroupStatus;
use sawmill::engine::model::{Fate, Headers, NewClaim, Rules};
use sawmill::engine::storage::{EntryKey, Position, Span};
use sawmill_sim::checker::{How, Intent, Invariant};
use world::{TTL, World, group_name, worker};

#[test]
fn a_right_history_is_right() {
    let mut world = World::new(true, true);
    let (first, second) = (world.push(None), world.push(Some(999)));
    let token = world.claim_block(0, 0, 2);
    let run = world.start(0, &first, token);
    world.end(run, How::Done);
    let run = world.start(0, &second, token);
    world.settle(0, token, 0, Fate::Done);
    world.end(run, How::Done);
    world.settle(0, token, 1, Fate::Done);
    assert_eq!(world.book.left_over(), None);
    world.book.check_nothing_missing();
    world.book.compare("t", "g", &GroupStatus { done: 2, ..GroupStatus::default() });
    assert_eq!(world.book.violation(), None);
}

#[test]
fn i1_settled_without_having_run_is_lost() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    world.start(0, &message, token);
    world.settle(0, token, 0, Fate::Done);
    assert_eq!(world.found(), Some(Invariant::NothingLost));
}

#[test]
fn i1_acknowledged_and_never_in_the_log_is_lost() {
    let mut world = World::new(false, false);
    let intent = Intent { topic: "t".into(), key: None, headers: Headers::default(), due: None };
    let number = world.book.intended(intent);
    world.book.acknowledged(&[number], &[MessageId::from_u128(5)]);
    world.book.check_nothing_missing();
    assert_eq!(world.found(), Some(Invariant::NothingLost));
}

#[test]
fn i1_dropped_from_the_log_while_somebody_needs_it_is_lost() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    world.claim_block(0, 0, 1);
    world.book.trimmed(&world.topic.clone(), 0, 1, &message);
    assert_eq!(world.found(), Some(Invariant::NothingLost));
}

#[test]
fn i2_what_nobody_pushed_is_noticed() {
    let mut world = World::new(false, false);
    let mut other = world.push(None);
    other.headers = [("h", "v")].into_iter().collect();
    world.book.readable(&world.topic.clone(), 0, 2, &other);
    assert_eq!(world.found(), Some(Invariant::NothingInvented));
}

#[test]
fn i2_another_payload_is_noticed_when_it_is_delivered() {
    let mut world = World::new(false, false);
    let mut message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    message.payload = "message 7".into();
    world.start(0, &message, token);
    assert_eq!(world.found(), Some(Invariant::NothingInvented));
}

#[test]
fn i3_a_second_start_under_at_most_once_is_noticed() {
    let mut world = World::new(false, true);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    let run = world.start(0, &message, token);
    world.end(run, How::Failed);
    world.start(0, &message, token);
    assert_eq!(world.found(), Some(Invariant::AtMostOnce));
}

#[test]
fn i4_a_second_start_needs_a_failure() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    let run = world.start(0, &message, token);
    world.end(run, How::Failed);
    let run = world.start(0, &message, token);
    assert_eq!(world.found(), None);
    world.end(run, How::Done);
    world.start(0, &message, token);
    assert_eq!(world.found(), Some(Invariant::AtLeastOnce));
}

#[test]
fn i4_a_start_under_anothers_claim_is_noticed() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    world.start(1, &message, token);
    assert_eq!(world.found(), Some(Invariant::AtLeastOnce));
}

#[test]
fn i4_what_still_runs_is_not_given_back() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    world.start(0, &message, token);
    world.state.give_back(&worker(0), token).unwrap();
    world.commit(0);
    assert_eq!(world.found(), Some(Invariant::AtLeastOnce));
}

#[test]
fn i6_the_next_of_a_key_waits() {
    let mut world = World::new(true, false);
    let (first, second) = (world.push(None), world.push(None));
    let token = world.claim_block(0, 0, 2);
    let run = world.start(0, &first, token);
    world.end(run, How::Failed);
    world.start(0, &second, token);
    assert_eq!(world.found(), Some(Invariant::Ordered));
}

#[test]
fn i6_a_shard_has_one_holder() {
    let mut world = World::new(true, false);
    world.push(None);
    world.push(None);
    world.claim_block(0, 0, 1);
    world.claim_block(1, 1, 2);
    assert_eq!(world.found(), Some(Invariant::Ordered));
}

#[test]
fn i7_a_living_workers_claim_is_not_taken() {
    let mut world = World::new(false, false);
    world.push(None);
    world.claim_block(0, 0, 1);
    world.state.adopt(&worker(1), Rules::default(), |_| true);
    world.commit(1);
    assert_eq!(world.found(), Some(Invariant::StaleWriter));
}

#[test]
fn i7_a_dead_workers_claim_may_be_taken_and_its_late_report_counts_nothing() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    let run = world.start(0, &message, token);
    world.now += TTL;
    world.write(1, EntryKey::member(&group_name(), "a"), None);
    let before = world.state.clone();
    world.state.adopt(&worker(1), Rules::default(), |owner| owner == &worker(0));
    world.commit(1);
    assert_eq!(world.found(), None);
    // The dead worker writes its report as if nothing had happened.
    world.state = before;
    world.end(run, How::Done);
    world.settle(0, token, 0, Fate::Done);
    assert_eq!(world.found(), Some(Invariant::StaleWriter));
}

#[test]
fn i7_a_deleted_entry_stays_deleted() {
    let mut world = World::new(false, false);
    world.write(0, EntryKey::member(&group_name(), "a"), None);
    world.write(0, EntryKey::member(&group_name(), "a"), Some("x".into()));
    assert_eq!(world.found(), Some(Invariant::StaleWriter));
}

#[test]
fn i8_a_cursor_passes_nothing_by() {
    let mut world = World::new(false, false);
    world.push(None);
    world.push(None);
    let new = NewClaim { span: Span::from_range(0, 2, 1), end: Position::from_number(2), count: 1 };
    world.state.claim_block(&worker(0), Rules::default(), &new).unwrap();
    world.commit(0);
    assert_eq!(world.found(), Some(Invariant::Cursor));
}

#[test]
fn i8_a_cursor_never_moves_back() {
    let mut world = World::new(false, false);
    world.push(None);
    world.claim_block(0, 0, 1);
    world.state.cursor = Position::default();
    world.commit(0);
    assert_eq!(world.found(), Some(Invariant::Cursor));
}

#[test]
fn i9_a_start_before_the_due_time_is_noticed() {
    let mut world = World::new(false, false);
    let message = world.push(Some(1_001));
    let token = world.claim_block(0, 0, 1);
    world.start(0, &message, token);
    assert_eq!(world.found(), Some(Invariant::DueTime));
}

#[test]
fn i10_counts_are_compared() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    let run = world.start(0, &message, token);
    world.end(run, How::Done);
    world.settle(0, token, 0, Fate::Done);
    world.book.compare("t", "g", &GroupStatus { done: 2, ..GroupStatus::default() });
    assert_eq!(world.found(), Some(Invariant::CountsConserve));
}

#[test]
fn i10_a_tally_counts_what_was_settled() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    let run = world.start(0, &message, token);
    world.end(run, How::Done);
    world.state.tally.done += 1;
    world.settle(0, token, 0, Fate::Done);
    assert_eq!(world.found(), Some(Invariant::CountsConserve));
}

#[test]
fn i11_only_the_silent_are_declared_dead() {
    let mut world = World::new(false, false);
    world.now += TTL - Duration::from_millis(1);
    world.write(1, EntryKey::member(&group_name(), "a"), None);
    assert_eq!(world.found(), Some(Invariant::Drains));
}

#[test]
fn i11_what_the_dead_held_is_taken_over() {
    let mut world = World::new(false, false);
    world.push(None);
    world.claim_block(0, 0, 1);
    let dead = world.nodes[0];
    world.book.quiet_begins(|node| node != dead);
    world.book.orphans_taken_over();
    assert_eq!(world.found(), Some(Invariant::Drains));
}

#[test]
fn i11_what_is_left_over_is_named() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    assert!(world.book.left_over().unwrap().0.contains(&message.id.to_string()));
    world.book.not_drained(0, TTL);
    assert_eq!(world.found(), Some(Invariant::Drains));
}
