//! Workers that report that they are drained hold nothing.

use sawmill::engine::model::Fate;
use sawmill_sim::checker::{GroupRules, How, Invariant};

use crate::world::World;

#[test]
fn i11_a_drained_worker_has_nothing_left() {
    let mut world = World::new(false, false);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    let run = world.start(0, &message, token);
    world.end(run, How::Done);
    world.settle(0, token, 0, Fate::Done);
    world.book.says_drained(world.nodes[0], true);
    assert_eq!(world.book.violation(), None);
}

#[test]
fn i11_a_drained_worker_has_no_open_claim() {
    let mut world = World::new(false, false);
    world.push(None);
    world.claim_block(0, 0, 1);
    world.book.says_drained(world.nodes[1], true);
    assert_eq!(world.found(), None, "what another has claimed is not its concern");
    world.book.says_drained(world.nodes[0], true);
    assert_eq!(world.found(), Some(Invariant::Drains));
}

#[test]
fn i11_a_drained_worker_runs_nothing() {
    let limited = GroupRules { limit: Some(1), ..World::rules(false, false) };
    let mut world = World::with(limited);
    let message = world.push(None);
    let token = world.claim_block(0, 0, 1);
    world.book.says_drained(world.nodes[0], true);
    assert_eq!(world.found(), None, "another may have all of the limit");
    world.start(0, &message, token);
    world.book.says_drained(world.nodes[0], true);
    assert_eq!(world.found(), Some(Invariant::Drains));
}
