//! Runs whole histories: no invariant is violated, the same seed gives the same history, and every fault
//! takes effect.
#![allow(clippy::unwrap_used)]

use sawmill_sim::checker::Invariant;
use sawmill_sim::runner::{self, Batch, Summary};
use sawmill_sim::{FaultKind, Feature};

fn seeds(start: u64, seeds: u64, threads: usize) -> Summary {
    runner::run(Batch { start, seeds, threads, bug: None, wanted: None }, &|_| {})
}

fn fine(summary: &Summary) {
    if let Some(failure) = &summary.failure {
        panic!("seed {}: {}", failure.seed, failure.found);
    }
}

#[test]
fn fifty_seeds_find_nothing() {
    let summary = seeds(0, 50, 2);
    fine(&summary);
    assert_eq!(summary.seeds, 50);
    for invariant in Invariant::ALL {
        assert!(summary.checks.of(*invariant) > 0, "{invariant} was never checked");
    }
}

#[test]
fn the_same_seeds_give_the_same_hash_on_any_number_of_threads() {
    let (one, again, two) = (seeds(7, 12, 1), seeds(7, 12, 1), seeds(7, 12, 2));
    assert_eq!(one.hash, again.hash);
    assert_eq!(one.hash, two.hash);
    assert_eq!((one.starts, one.time, &one.tally), (two.starts, two.time, &two.tally));
    assert_ne!(one.hash, seeds(8, 12, 2).hash);
}

/// Features that need more than a hundred histories; the program checks them after a thousand.
const RARE: &[Feature] = &[
    Feature::Burial,
    Feature::Crowd,
    Feature::Recovery,
    Feature::Reopened,
    Feature::TickMissed,
    Feature::TickSkipped,
    Feature::TrimPassed,
    Feature::UniqueFor,
];

#[test]
fn every_kind_of_fault_and_nearly_every_feature_strikes_within_a_hundred_seeds() {
    let summary = seeds(100, 100, 2);
    fine(&summary);
    for kind in FaultKind::ALL {
        assert!(summary.tally.count(*kind) > 0, "{} never struck", kind.name());
    }
    assert!(summary.formats_raised > 0, "no store got a new format");
    for feature in Feature::ALL.iter().filter(|feature| !RARE.contains(feature)) {
        assert!(summary.features.of(*feature) > 0, "{} was never used", feature.name());
    }
}

#[test]
fn a_bug_of_an_engine_is_found() {
    use sawmill_sim::EngineBug;
    for (bug, invariant) in
        [(EngineBug::CursorById, Invariant::Cursor), (EngineBug::PromoteEarly, Invariant::DueTime)]
    {
        let summary =
            runner::run(Batch { start: 0, seeds: 100, threads: 2, bug: Some(bug), wanted: None }, &|_| {});
        let failure = summary.failure.unwrap();
        let runner::Found::Violation(violation) = &failure.found else { panic!("{}", failure.found) };
        assert_eq!(violation.invariant, invariant);
        let lines = runner::lines_that_matter(&failure, Some(bug), None, 40);
        assert!(lines.last().unwrap().text.contains("invariant"), "{:?}", lines.last());
    }
}
