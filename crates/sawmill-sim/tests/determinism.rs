//! Determinism: with every fault enabled, the same seed gives the same trace.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{World, record, write};
use sawmill::engine::storage::{Commit, Ledger, Log, Position, ReadRequest};
use sawmill_sim::{Chance, Delay, Ended, FaultKind, Faults, Limits, NodeId, Seam, Settings, Sim, Tally};

fn rough() -> Faults {
    let some = Chance::percent(4);
    Faults {
        slow: some,
        unavailable: some,
        unknown_applied: some,
        unknown_lost: some,
        unknown_late: some,
        unknown_partial: some,
        late_visible: some,
        held_back: some,
        visible_by: Delay::millis(1, 500),
        lost_notification: some,
        doubled: some,
        doubled_unknown: some,
        ..Faults::calm()
    }
}

/// Runs five nodes that push, read and race for one entry, while single nodes are frozen, cut off or crashed.
fn history(seed: u64) -> (u64, u64, Tally) {
    let sim = Sim::new(seed);
    let settings = Settings { idempotent_append: false, ..Settings::default() };
    let world = World::new(&sim, settings, Faults::calm());
    let ended = sim.run(Limits::default(), async move {
        let topic = world.topic().await;
        world.store.set_faults(rough());
        let nodes: Vec<NodeId> =
            (0..5).map(|number| world.control.add_node(format!("node {number}"))).collect();
        for (number, node) in nodes.iter().enumerate() {
            let (log, ledger, env) =
                (world.store.log(*node), world.store.ledger(*node), world.control.env(*node));
            let topic = topic.clone();
            world.control.spawn(*node, async move {
                let (mut id, mut version, mut notifications) =
                    (1000 * number as u128, None, ledger.entry_notifications());
                loop {
                    id += 2;
                    let records = vec![record(0, id), record(0, id + 1)];
                    let _ = log.append(&topic, env.wall(), records).await;
                    let want = ReadRequest { shard: 0, after: Position::default(), limit: 10 };
                    let _ = log.read(&topic, &[want]).await;
                    version = match ledger.commit(write(version, "x")).await {
                        Ok(Commit::Done(version)) => Some(version.0),
                        _ => match ledger.get(&common::key()).await {
                            Ok(entry) => entry.map(|entry| entry.version.0),
                            Err(_) => version,
                        },
                    };
                    let pause = env.rng().jitter(Duration::from_millis(20));
                    let _ = env.within(pause, notifications.next()).await;
                }
            });
        }
        for _ in 0..3 {
            world.control.freeze(nodes[1]);
            world.store.set_cut_off(nodes[2], true);
            world.sleep(3000).await;
            world.control.thaw(nodes[1]);
            world.store.set_cut_off(nodes[2], false);
            world.store.set_out(Seam::Ledger, true);
            world.sleep(500).await;
            world.store.set_out(Seam::Ledger, false);
        }
        world.control.skew(nodes[4], 3000);
        world.control.crash(nodes[3]);
        world.sleep(3000).await;
    });
    assert_eq!(ended, Ended::Finished(()));
    let trace = sim.trace();
    (trace.hash(), trace.events(), sim.tally())
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let runs: Vec<_> = (0..8).map(history).collect();
    for (seed, run) in runs.iter().enumerate() {
        assert_eq!(*run, history(seed as u64), "seed {seed}");
        assert_eq!(runs.iter().filter(|other| other.0 == run.0).count(), 1, "seed {seed}");
    }
}

#[test]
fn every_kind_of_fault_strikes() {
    let mut sum = Tally::default();
    for seed in 0..8 {
        sum += &history(seed).2;
    }
    // This history neither promotes nor trims, and its reads are of one shard.
    let others =
        [FaultKind::StoreCrash, FaultKind::ShortRead, FaultKind::DoubledPromotion, FaultKind::LateTrim];
    for kind in FaultKind::ALL.iter().filter(|kind| !others.contains(kind)) {
        assert!(sum.count(*kind) > 0, "{} never struck:\n{sum}", kind.name());
    }
}
