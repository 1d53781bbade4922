//! Invariant 16: histories of programs of two versions, one correct and one wrong in each way.

use bytes::Bytes;
use sawmill::engine::model::Format;
use sawmill::engine::storage::EntryKey;
use sawmill_sim::checker::Invariant;

use crate::world::{World, group_name};

/// Creates a world whose workers are members that understand the next format.
fn new_world() -> World {
    let mut world = World::new(false, false);
    for (node, name) in ["a", "b"].into_iter().enumerate() {
        join(&mut world, node, name, r#"{"format":2}"#);
    }
    world
}

/// Writes a member entry: the member joins or renews.
fn join(world: &mut World, node: usize, name: &str, says: &str) {
    world.write(node, EntryKey::member(&group_name(), name), Some(Bytes::copy_from_slice(says.as_bytes())));
}

fn announce(world: &mut World) {
    world.write(0, EntryKey::format(), Some(r#"{"format":1,"next":2}"#.into()));
}

fn raise(world: &mut World) {
    world.write(0, EntryKey::format(), Some(r#"{"format":2}"#.into()));
}

/// Commits the state in the next format, as a new program does.
fn commit_newer(world: &mut World, node: usize) {
    world.state.format = Format::NEXT;
    world.state.writes += 1;
    for claim in &mut world.state.claims {
        claim.stamp.get_or_insert(claim.token);
    }
    world.commit(node);
}

/// Creates a world with an entry in the next format, and a claim in it.
fn world_with_a_newer_entry() -> World {
    let mut world = new_world();
    announce(&mut world);
    raise(&mut world);
    world.push(None);
    world.claim_block(0, 0, 1);
    commit_newer(&mut world, 0);
    world
}

#[test]
fn i16_a_right_history_of_two_versions_is_right() {
    let mut world = world_with_a_newer_entry();
    commit_newer(&mut world, 0);
    // A member that does not understand the new format joins after the announcement, and leaves.
    world.write(0, EntryKey::format(), Some(r#"{"format":2,"next":3}"#.into()));
    join(&mut world, 0, "c", r#"{"format":2}"#);
    for (node, name) in ["a", "b"].into_iter().enumerate() {
        join(&mut world, node, name, r#"{"format":3}"#);
    }
    world.write(1, EntryKey::format(), Some(r#"{"format":3}"#.into()));
    world.write(0, EntryKey::member(&group_name(), "c"), None);
    assert_eq!(world.book.violation(), None);
    assert_eq!(world.book.formats_raised(), 2);
}

#[test]
fn i16_an_older_program_that_rewrites_a_newer_entry_is_noticed() {
    let mut world = world_with_a_newer_entry();
    world.state.forget_formats();
    world.commit(0);
    assert_eq!(world.found(), Some(Invariant::Formats));
}

#[test]
fn i16_what_a_program_does_not_understand_it_must_not_even_copy() {
    let mut world = world_with_a_newer_entry();
    let old = world.nodes[0];
    world.book.understands(old, 1);
    commit_newer(&mut world, 0);
    assert_eq!(world.found(), Some(Invariant::Formats));
}

#[test]
fn i16_a_field_that_is_lost_is_noticed() {
    let mut world = world_with_a_newer_entry();
    world.state.writes = 0;
    world.commit(0);
    assert_eq!(world.found(), Some(Invariant::Formats));
}

#[test]
fn i16_a_field_of_a_claim_that_is_lost_is_noticed() {
    let mut world = world_with_a_newer_entry();
    world.state.writes += 1;
    world.state.claims[0].stamp = None;
    world.commit(0);
    assert_eq!(world.found(), Some(Invariant::Formats));
}

#[test]
fn i16_an_entry_is_not_written_in_a_format_that_the_store_does_not_have() {
    let mut world = new_world();
    announce(&mut world);
    commit_newer(&mut world, 0);
    assert_eq!(world.found(), Some(Invariant::Formats));
}

#[test]
fn i16_a_member_that_does_not_understand_the_new_format_is_not_left_behind() {
    let mut world = new_world();
    join(&mut world, 0, "c", "{}");
    announce(&mut world);
    assert_eq!(world.found(), None);
    raise(&mut world);
    assert_eq!(world.found(), Some(Invariant::Formats));
}

#[test]
fn i16_a_format_is_raised_only_after_it_was_announced() {
    let mut world = new_world();
    raise(&mut world);
    assert_eq!(world.found(), Some(Invariant::Formats));
}

#[test]
fn i16_a_worker_that_does_not_understand_the_stores_format_does_not_stay() {
    let mut world = new_world();
    announce(&mut world);
    raise(&mut world);
    join(&mut world, 0, "c", "{}");
    assert_eq!(world.found(), None, "it has not looked yet");
    join(&mut world, 0, "c", "{}");
    assert_eq!(world.found(), Some(Invariant::Formats));
}

#[test]
fn i16_a_member_does_not_say_that_it_understands_more_than_it_does() {
    let mut world = World::new(false, false);
    world.book.understands(world.nodes[0], 1);
    join(&mut world, 0, "c", r#"{"format":1}"#);
    assert_eq!(world.found(), None);
    join(&mut world, 0, "d", r#"{"format":2}"#);
    assert_eq!(world.found(), Some(Invariant::Formats));
}
