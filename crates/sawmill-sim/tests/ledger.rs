//! Tests the simulated ledger: each fault takes effect as described.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{World, in_world, key, write};
use sawmill::ErrorKind;
use sawmill::engine::storage::{Commit, Ledger, Version, Write};
use sawmill_sim::{Chance, Delay, Event, FaultKind, Faults, NodeId, Observer, Seam, Settings, Tally};

const CALM: Faults = Faults::calm();

fn run<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    faults: Faults,
    test: impl FnOnce(World) -> F,
) -> (T, Tally) {
    in_world(1, Settings::default(), faults, test)
}

async fn value(world: &World) -> Option<String> {
    let entry = world.ledger.get(&key()).await.unwrap();
    entry.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap())
}

#[test]
fn a_calm_ledger_compares_and_sets() {
    let (_, tally) = run(CALM, |world| async move {
        let ledger = &world.ledger;
        assert_eq!(ledger.commit(write(None, "a")).await.unwrap(), Commit::Done(Version(1)));
        assert_eq!(ledger.commit(write(None, "b")).await.unwrap(), Commit::Conflict);
        assert_eq!(ledger.commit(write(Some(1), "c")).await.unwrap(), Commit::Done(Version(2)));
        assert_eq!(ledger.list(&key()).await.unwrap().len(), 1);
        assert_eq!(value(&world).await.as_deref(), Some("c"));
    });
    assert_eq!(tally.count(FaultKind::Conflict), 1);
}

#[test]
fn unknown_may_mean_applied() {
    let (_, tally) = run(Faults { unknown_applied: Chance::ALWAYS, ..CALM }, |world| async move {
        assert_eq!(world.ledger.commit(write(None, "a")).await.unwrap(), Commit::Unknown);
        assert_eq!(value(&world).await.as_deref(), Some("a"), "reads are not of unknown outcome");
        // A write that would have been refused was not applied.
        assert_eq!(world.ledger.commit(write(None, "b")).await.unwrap(), Commit::Unknown);
    });
    assert_eq!((tally.count(FaultKind::UnknownApplied), tally.count(FaultKind::Conflict)), (1, 1));
}

#[test]
fn unknown_may_mean_lost() {
    let (_, tally) = run(Faults { unknown_lost: Chance::ALWAYS, ..CALM }, |world| async move {
        assert_eq!(world.ledger.commit(write(None, "a")).await.unwrap(), Commit::Unknown);
        world.sleep(60_000).await;
        assert_eq!(value(&world).await, None);
    });
    assert_eq!(tally.count(FaultKind::UnknownLost), 1);
}

#[test]
fn unknown_may_mean_later() {
    let late = Faults { unknown_late: Chance::ALWAYS, late_by: Delay::millis(500, 5000), ..CALM };
    let (_, tally) = run(late, |world| async move {
        assert_eq!(world.ledger.commit(write(None, "a")).await.unwrap(), Commit::Unknown);
        assert_eq!(value(&world).await, None);
        world.sleep(6000).await;
        assert_eq!(value(&world).await.as_deref(), Some("a"));
    });
    assert_eq!(tally.count(FaultKind::UnknownLate), 1);
}

#[test]
fn a_late_write_lands_only_if_the_version_still_matches() {
    let late = Faults { unknown_late: Chance::ALWAYS, late_by: Delay::millis(500, 5000), ..CALM };
    let (_, tally) = run(CALM, |world| async move {
        world.ledger.commit(write(None, "a")).await.unwrap();
        world.store.set_faults(late);
        assert_eq!(world.ledger.commit(write(Some(1), "stale")).await.unwrap(), Commit::Unknown);
        world.store.set_faults(CALM);
        assert_eq!(world.ledger.commit(write(Some(1), "b")).await.unwrap(), Commit::Done(Version(2)));
        world.sleep(6000).await;
        assert_eq!(value(&world).await.as_deref(), Some("b"));
    });
    assert_eq!((tally.count(FaultKind::UnknownLate), tally.count(FaultKind::UnknownLateRefused)), (0, 1));
}

#[test]
fn unavailable_means_that_nothing_was_written() {
    let (_, tally) = run(Faults { unavailable: Chance::ALWAYS, ..CALM }, |world| async move {
        let error = world.ledger.commit(write(None, "a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert_eq!(world.ledger.get(&key()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        world.store.set_faults(CALM);
        assert_eq!(value(&world).await, None);
    });
    assert_eq!(tally.count(FaultKind::Unavailable), 2);
}

#[test]
fn what_a_node_sent_before_it_crashed_takes_effect() {
    let slow = Faults { latency: Delay::millis(10, 10), ..CALM };
    run(slow, |world| async move {
        let ledger = world.ledger.clone();
        world.control.spawn(world.node, async move {
            let _ = ledger.commit(write(None, "a")).await;
            panic!("the answer must not reach a crashed node");
        });
        world.sleep(5).await;
        world.control.crash(world.node);
        world.sleep(100).await;
        assert_eq!(world.store.entries(&key()).len(), 1);
    });
}

#[test]
fn a_frozen_node_gets_its_answer_when_it_thaws() {
    let answered = Arc::new(Mutex::new(None));
    let noted = answered.clone();
    run(CALM, |world| async move {
        let (ledger, control, note) = (world.ledger.clone(), world.control.clone(), noted.clone());
        world.control.spawn(world.node, async move {
            let commit = ledger.commit(write(None, "a")).await.unwrap();
            *note.lock().unwrap() = Some((commit, control.now()));
        });
        // Long enough to be sent, too short to be answered.
        world.env.sleep(Duration::from_micros(100)).await;
        world.control.freeze(world.node);
        world.sleep(1000).await;
        assert_eq!(world.store.entries(&key()).len(), 1, "it took effect meanwhile");
        assert_eq!(*noted.lock().unwrap(), None);
        world.control.thaw(world.node);
        world.sleep(1).await;
    });
    let (commit, at) = answered.lock().unwrap().unwrap();
    assert_eq!(commit, Commit::Done(Version(1)));
    assert_eq!(at.as_millis(), 1000);
}

#[test]
fn ways_may_be_slow() {
    let slow = Faults { slow: Chance::ALWAYS, slow_by: Delay::millis(700, 900), ..CALM };
    let (_, tally) = run(slow, |world| async move {
        assert_eq!(value(&world).await, None);
        assert!((1400..1900).contains(&world.control.now().as_millis()));
    });
    assert_eq!(tally.count(FaultKind::Delay), 2);
}

#[test]
fn an_outage_strikes_one_half_of_the_store_and_a_partition_one_node() {
    let (_, tally) = run(CALM, |world| async move {
        world.store.set_out(Seam::Log, true);
        assert_eq!(value(&world).await, None, "the ledger is there");
        world.store.set_out(Seam::Ledger, true);
        assert_eq!(world.ledger.get(&key()).await.unwrap_err().kind(), ErrorKind::Unavailable);
        world.store.set_out(Seam::Ledger, false);
        world.store.set_cut_off(world.node, true);
        for _ in 0..10 {
            match world.ledger.commit(write(None, "a")).await {
                Ok(commit) => assert_eq!(commit, Commit::Unknown),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable),
            }
        }
        let other = world.store.ledger(NodeId::WORLD);
        assert_eq!(other.get(&key()).await.unwrap(), None, "others get through, and nothing was written");
        world.store.set_cut_off(world.node, false);
        assert_eq!(value(&world).await, None);
    });
    assert_eq!((tally.count(FaultKind::StoreOutage), tally.count(FaultKind::Partition)), (1, 10));
}

#[test]
fn an_answer_that_meets_a_partition_is_unknown() {
    let slow = Faults { latency: Delay::millis(10, 10), ..CALM };
    run(slow, |world| async move {
        let (store, control, env) = (world.store.clone(), world.control.clone(), world.env.clone());
        let node = world.node;
        control.spawn(NodeId::WORLD, async move {
            env.sleep(Duration::from_millis(15)).await;
            store.set_cut_off(node, true);
        });
        assert_eq!(world.ledger.commit(write(None, "a")).await.unwrap(), Commit::Unknown);
        assert_eq!(world.store.entries(&key()).len(), 1);
    });
}

#[test]
fn hints_come_unless_they_are_lost() {
    let (_, tally) = run(CALM, |world| async move {
        let mut notifications = world.ledger.entry_notifications();
        world.ledger.commit(write(None, "a")).await.unwrap();
        world.env.within(Duration::from_millis(10), notifications.next()).await.expect("a hint");
        world.store.set_faults(Faults { lost_notification: Chance::ALWAYS, ..CALM });
        world.ledger.commit(write(Some(1), "b")).await.unwrap();
        assert!(world.env.within(Duration::from_secs(10), notifications.next()).await.is_none());
    });
    assert_eq!(tally.count(FaultKind::LostNotification), 1);
}

/// Records every change of the ledger.
#[derive(Default)]
struct Changes(Mutex<Vec<String>>);

impl Observer for Changes {
    fn saw(&self, _at: Duration, event: &Event<'_>) {
        let text = match event {
            Event::Committed { node, old, version, value, late, .. } => {
                let old = old.map_or(0, |entry| entry.version.0);
                let deleted = if value.is_none() { " deleted" } else { "" };
                format!("{node} v{old}-v{}{deleted}{}", version.0, if *late { " late" } else { "" })
            }
            Event::Refused { expected, found, .. } => format!("refused {expected:?} {found:?}"),
            _ => return,
        };
        self.0.lock().unwrap().push(text);
    }
}

#[test]
fn an_observer_sees_what_happens_whether_or_not_the_caller_is_told() {
    let changes = Arc::new(Changes::default());
    let observer = changes.clone();
    run(CALM, |world| async move {
        world.store.observe(observer);
        world.ledger.commit(write(None, "a")).await.unwrap();
        world.store.set_faults(Faults { unknown_applied: Chance::ALWAYS, ..CALM });
        world.ledger.commit(write(Some(1), "b")).await.unwrap();
        world.store.set_faults(Faults { unknown_late: Chance::ALWAYS, ..CALM });
        world.ledger.commit(write(Some(2), "c")).await.unwrap();
        world.sleep(6000).await;
        world.store.set_faults(CALM);
        world.ledger.commit(write(Some(2), "d")).await.unwrap();
        let delete = Write { key: key(), expect: Some(Version(3)), value: None };
        world.ledger.commit(delete).await.unwrap();
    });
    let refused = "refused Some(Version(2)) Some(Version(3))";
    let expected = ["n1 v0-v1", "n1 v1-v2", "n1 v2-v3 late", refused, "n1 v3-v3 deleted"];
    assert_eq!(*changes.0.lock().unwrap(), expected);
}
