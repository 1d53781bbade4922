//! Programs of two versions in one history: old ones understand the newest format, new ones the next. At some
//! time new workers replace all old ones. Now and then an old one is started even after that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::engine::model::Format;

use super::driver::Driver;
use super::plan::WorkerPlan;
use super::workers::WorkerProcess;
use super::world::World;
use crate::control::NodeId;
use crate::rng::Seeded;
use crate::tasks::lock;

/// The random stream of versions.
const STREAM: u32 = 30;

/// The versions of the programs in a history.
pub(super) struct Versions {
    rng: Seeded,
    /// There are new programs at all.
    are_mixed: bool,
    /// Users keep an old program until the end.
    people_are_old: bool,
    /// When new workers replace the old ones, in percent of the time of incidents.
    replaced_from: u32,
    stage: Stage,
    /// The nodes of old programs, in a history with new ones.
    old: BTreeSet<NodeId>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Mostly old workers join.
    Before,
    /// Mostly new workers join.
    After,
    /// The faults are over: only new workers join.
    Quiet,
}

impl Versions {
    /// Draws the versions of a seed.
    pub(super) fn of(seed: u64) -> Arc<Mutex<Self>> {
        let mut rng = Seeded::new(seed, 1 + u64::from(STREAM));
        let (are_mixed, people_are_old) = (rng.below(4) == 0, rng.below(2) == 0);
        let replaced_from = rng.below(50) as u32;
        let (stage, old) = (Stage::Before, BTreeSet::new());
        Arc::new(Mutex::new(Self { rng, are_mixed, people_are_old, replaced_from, stage, old }))
    }

    /// Returns the format that the program of this node understands.
    fn format(&self, node: NodeId) -> Format {
        let is_new = self.are_mixed && !self.old.contains(&node);
        if is_new { Format::NEXT } else { Format::NEWEST }
    }
}

impl World {
    /// Returns the format that the program of this node understands.
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
        let is_old = versions.rng.below(100) < old_in_hundred;
        self.set_version(&mut versions, node, is_old);
    }

    /// Chooses the version of the program that users have.
    pub(super) fn choose_version_of_people(&self, node: NodeId) {
        let mut versions = lock(&self.versions);
        let is_old = versions.people_are_old;
        self.set_version(&mut versions, node, is_old);
    }

    fn set_version(&self, versions: &mut Versions, node: NodeId, is_old: bool) {
        if versions.are_mixed && is_old {
            versions.old.insert(node);
        }
        self.checker.book().understands(node, versions.format(node).number());
    }
}

impl Driver {
    /// Replaces old workers when it is time: new ones join, and the old ones leave gracefully, each at its
    /// own time. `passed` is the elapsed part of the time of incidents.
    pub(super) fn upgrade(&mut self, passed: Duration) {
        let world = self.world.clone();
        let percent = passed.as_millis() * 100 / world.plan.incidents.time.as_millis().max(1);
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
        let is_active =
            |process: &&WorkerProcess| old.contains(&process.node) && process.works(&world.control);
        for process in self.processes.iter().filter(is_active).cloned().collect::<Vec<_>>() {
            self.join(WorkerPlan { group: process.group, slots: 2 });
            let ttl = world.plan.ttl.as_millis() as u64;
            let wait = Duration::from_millis(lock(&world.versions).rng.below(ttl));
            self.later(wait, move |world| {
                if process.works(&world.control) {
                    process.leave(&world.control, false);
                }
            });
        }
    }
}
