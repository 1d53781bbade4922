//! Programs of two versions in one history: old ones, which understand the newest format, and new ones, which understand the
//! next. At some time new workers take the place of all old ones; now and then somebody starts an old one even after that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::Format;

use super::director::Director;
use super::hands::Hand;
use super::people::World;
use super::plan::WorkerPlan;
use crate::control::NodeId;
use crate::dice::Seeded;
use crate::tasks::lock;

/// The stream of the seed that says which versions there are.
const STREAM: u32 = 30;

/// Which versions the programs of a history have.
pub(super) struct Versions {
    dice: Seeded,
    /// There are new programs at all.
    are_mixed: bool,
    /// People use an old program until the end.
    people_are_old: bool,
    /// When new workers take the place of the old ones, in percent of the time of trouble.
    replaced_from: u32,
    stage: Stage,
    /// The nodes of old programs, in a history that has new ones.
    old: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Mostly old workers join.
    Before,
    /// Mostly new workers join.
    After,
    /// Only new ones do: the faults are over.
    Quiet,
}

impl Versions {
    /// Those of a seed.
    pub(super) fn of(seed: u64) -> Arc<Mutex<Self>> {
        let mut dice = Seeded::new(seed, 1 + u64::from(STREAM));
        let (are_mixed, people_are_old) = (dice.below(4) == 0, dice.below(2) == 0);
        let replaced_from = dice.below(50) as u32;
        let (stage, old) = (Stage::Before, BTreeSet::new());
        Arc::new(Mutex::new(Self { dice, are_mixed, people_are_old, replaced_from, stage, old }))
    }

    /// What the program of this node understands.
    fn format(&self, node: NodeId) -> Format {
        let is_new = self.are_mixed && !self.old.contains(&node);
        if is_new { Format::NEXT } else { Format::NEWEST }
    }
}

impl World {
    /// What the program of this node understands.
    pub(super) fn format(&self, node: NodeId) -> Format {
        lock(&self.versions).format(node)
    }

    /// Chooses the version of a worker that is about to join from this node.
    pub(super) fn choose_version(&self, node: NodeId) {
        let mut versions = lock(&self.versions);
        let old_in_hundred = match versions.stage {
            Stage::Before => 70,
            Stage::After => 30,
            Stage::Quiet => 0,
        };
        let is_old = versions.dice.below(100) < old_in_hundred;
        self.has_version(&mut versions, node, is_old);
    }

    /// Chooses the version of the program that people use.
    pub(super) fn choose_version_of_people(&self, node: NodeId) {
        let mut versions = lock(&self.versions);
        let is_old = versions.people_are_old;
        self.has_version(&mut versions, node, is_old);
    }

    fn has_version(&self, versions: &mut Versions, node: NodeId, is_old: bool) {
        if versions.are_mixed && is_old {
            versions.old.insert(node);
        }
        self.checker.book().understands(node, versions.format(node).number());
    }
}

impl Director {
    /// When it is time, new workers join, and the old ones leave in order, each at its own time. `passed` is how much of the time
    /// of trouble is over.
    pub(super) fn upgrade(&mut self, passed: Duration) {
        let world = self.world.clone();
        let percent = passed.as_millis() * 100 / world.plan.trouble.time.as_millis().max(1);
        let is_quiet = percent >= 100;
        let old = {
            let mut versions = lock(&world.versions);
            let is_due = match versions.stage {
                Stage::Before => percent >= u128::from(versions.replaced_from),
                Stage::After => is_quiet,
                Stage::Quiet => false,
            };
            if !versions.are_mixed || !is_due {
                return;
            }
            versions.stage = if is_quiet { Stage::Quiet } else { Stage::After };
            versions.old.clone()
        };
        let at_work = |hand: &&Hand| old.contains(&hand.node) && hand.works(&world.control);
        for hand in self.hands.iter().filter(at_work).cloned().collect::<Vec<_>>() {
            self.join(WorkerPlan { group: hand.group, slots: 2 });
            let ttl = world.plan.ttl.as_millis() as u64;
            let wait = Duration::from_millis(lock(&world.versions).dice.below(ttl));
            self.later(wait, move |world| {
                if hand.works(&world.control) {
                    hand.leave(&world.control, false);
                }
            });
        }
    }
}
