//! Tests the executor: time, scheduling, and control of nodes.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill_sim::{Ended, FaultKind, Limits, NodeId, Sim};
use tokio::sync::watch;

const MS: Duration = Duration::from_millis(1);

/// Records events in order.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<u64>>>);

impl Notes {
    fn add(&self, note: u64) {
        self.0.lock().unwrap().push(note);
    }

    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Runs until this much simulated time has passed.
fn pass(sim: &Sim, time: Duration) {
    let env = sim.env(NodeId::WORLD);
    assert_eq!(sim.run(Limits::default(), async move { env.sleep(time).await }), Ended::Finished(()));
}

#[test]
fn timers_ring_in_order_and_time_stands_still_between() {
    let (sim, notes) = (Sim::new(1), Notes::default());
    for millis in [30, 10, 20, 10] {
        let (env, notes, control) = (sim.env(NodeId::WORLD), notes.clone(), sim.control());
        sim.spawn(NodeId::WORLD, async move {
            env.sleep(MS * millis).await;
            notes.add(control.now().as_millis() as u64);
        });
    }
    pass(&sim, MS * 100);
    assert_eq!(notes.take(), [10, 10, 20, 30]);
    assert_eq!(sim.now(), MS * 100);
}

#[test]
fn a_sleep_that_is_dropped_rings_nobody() {
    let sim = Sim::new(1);
    let env = sim.env(NodeId::WORLD);
    let ended = sim.run(Limits::default(), async move {
        let none = env.within(MS, std::future::pending::<()>()).await;
        let some = env.within(Duration::from_secs(1000), async { 7 }).await;
        (none, some)
    });
    assert_eq!(ended, Ended::Finished((None, Some(7))));
    assert_eq!(sim.now(), MS);
    let stuck = sim.run(Limits::default(), std::future::pending::<()>());
    assert_eq!(stuck, Ended::Stuck, "no timer is left");
}

/// Runs ten tasks that are ready at once. Returns the order in which they ran, and the hash.
fn order(seed: u64) -> (Vec<u64>, u64) {
    let (sim, notes) = (Sim::new(seed), Notes::default());
    let sender = Arc::new(watch::Sender::new(()));
    for number in 0..10 {
        let (notes, mut receiver) = (notes.clone(), sender.subscribe());
        let node = sim.add_node("node");
        sim.spawn(node, async move {
            // The channel wakes its waiters in an order of its own, which must have no effect.
            receiver.changed().await.unwrap();
            notes.add(number);
        });
    }
    let env = sim.env(NodeId::WORLD);
    sim.run(Limits::default(), async move {
        env.sleep(MS).await;
        sender.send_replace(());
        env.sleep(MS).await;
    });
    (notes.take(), sim.trace().hash())
}

#[test]
fn the_seed_decides_who_goes_first() {
    let runs: Vec<_> = (0..20).map(order).collect();
    for (seed, run) in runs.iter().enumerate() {
        assert_eq!(*run, order(seed as u64));
        let others = runs.iter().filter(|other| other.1 == run.1).count();
        assert_eq!(others, 1, "two seeds have one trace");
    }
    assert!(runs.iter().any(|(order, _)| order[0] > order[9]), "{runs:?}");
    assert!(runs.iter().any(|(order, _)| order[0] < order[9]), "{runs:?}");
}

/// Counts every ten milliseconds.
async fn tick(env: Env, ticks: Arc<AtomicU64>) {
    loop {
        env.sleep(MS * 10).await;
        ticks.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_frozen_node_stands_still_and_its_clock_goes_on() {
    let (sim, ticks) = (Sim::new(3), Arc::new(AtomicU64::new(0)));
    let node = sim.add_node("frozen");
    let env = sim.env(node);
    let began = env.now();
    sim.spawn(node, tick(env.clone(), ticks.clone()));
    pass(&sim, MS * 95);
    sim.freeze(node);
    let late = ticks.clone();
    sim.spawn(node, async move {
        late.fetch_add(1000, Ordering::Relaxed);
    });
    pass(&sim, MS * 1000);
    assert_eq!(ticks.load(Ordering::Relaxed), 9);
    sim.thaw(node);
    pass(&sim, MS);
    // The timer that fired meanwhile takes effect now, once, and so does the spawned task.
    assert_eq!(ticks.load(Ordering::Relaxed), 1010);
    assert_eq!(env.now().since(began), MS * 1096);
    pass(&sim, MS * 100);
    assert_eq!(ticks.load(Ordering::Relaxed), 1020);
    assert_eq!(sim.tally().count(FaultKind::Freeze), 1);
}

/// Spawns a task on its node when it is dropped, like tasks that clean up.
struct Dropped(Env, Arc<AtomicBool>, Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.1.store(true, Ordering::Relaxed);
        let ran = self.2.clone();
        self.0.spawn(async move { ran.store(true, Ordering::Relaxed) });
    }
}

#[test]
fn a_crash_drops_all_tasks_of_the_node_and_no_others() {
    let (sim, ticks, other) = (Sim::new(4), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (node, survivor) = (sim.add_node("crashes"), sim.add_node("lives"));
    let (dropped, ran) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let guard = Dropped(sim.env(node), dropped.clone(), ran.clone());
    sim.spawn(node, tick(sim.env(node), ticks.clone()));
    sim.spawn(survivor, tick(sim.env(survivor), other.clone()));
    sim.spawn(node, async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    pass(&sim, MS * 55);
    sim.crash(node);
    assert!(dropped.load(Ordering::Relaxed));
    sim.env(node).spawn(async { panic!("it is crashed") });
    pass(&sim, MS * 50);
    assert!(!ran.load(Ordering::Relaxed), "a crashed node spawns nothing");
    assert_eq!((ticks.load(Ordering::Relaxed), other.load(Ordering::Relaxed)), (5, 10));
    assert!(!sim.is_alive(node) && sim.is_alive(survivor));
    sim.crash(node);
    assert_eq!(sim.tally().count(FaultKind::Crash), 1);
}

#[test]
fn a_task_may_crash_its_own_node() {
    let (sim, notes) = (Sim::new(5), Notes::default());
    let node = sim.add_node("node");
    let (control, env, noted) = (sim.control(), sim.env(node), notes.clone());
    sim.spawn(node, async move {
        control.crash(node);
        noted.add(1);
        env.sleep(MS).await;
        noted.add(2);
    });
    pass(&sim, MS * 10);
    assert_eq!(notes.take(), [1], "it runs to its next wait, and no further");
}

#[test]
fn a_dropped_world_drops_its_tasks() {
    let dropped = Arc::new(AtomicBool::new(false));
    let sim = Sim::new(6);
    let guard = Dropped(sim.env(NodeId::WORLD), dropped.clone(), Arc::default());
    sim.spawn(NodeId::WORLD, async move {
        let _guard = guard;
        std::future::pending::<()>().await;
    });
    pass(&sim, MS);
    drop(sim);
    assert!(dropped.load(Ordering::Relaxed));
}

#[test]
fn limits_end_a_run() {
    let sim = Sim::new(7);
    let env = sim.env(NodeId::WORLD);
    sim.spawn(NodeId::WORLD, async move {
        loop {
            env.sleep(Duration::ZERO).await;
        }
    });
    let limits = Limits { time: MS * 3, ..Limits::default() };
    assert_eq!(sim.run(limits, std::future::pending::<()>()), Ended::OutOfTime);
    assert_eq!(sim.now(), MS * 3);
    let limits = Limits { steps: 1000, ..Limits::default() };
    assert_eq!(sim.run(limits, std::future::pending::<()>()), Ended::OutOfSteps);
}

#[test]
#[should_panic(expected = "some task loops without waiting")]
fn a_loop_without_waiting_is_found() {
    let sim = Sim::new(8);
    let limits = Limits { steps_at_once: 1000, ..Limits::default() };
    sim.run(limits, async {
        loop {
            let mut yielded = false;
            std::future::poll_fn(|context| {
                context.waker().wake_by_ref();
                if std::mem::replace(&mut yielded, true) {
                    std::task::Poll::Ready(())
                } else {
                    std::task::Poll::Pending
                }
            })
            .await;
        }
    });
}

#[test]
fn nodes_have_clocks_and_dice_of_their_own() {
    let sim = Sim::new(9);
    let (one, two) = (sim.add_node("one"), sim.add_node("two"));
    assert_eq!(sim.env(one).wall(), sim.env(two).wall());
    assert_ne!(sim.env(one).now(), sim.env(two).now(), "steady clocks of two nodes do not compare");
    assert_ne!(sim.env(one).rng().next_u64(), sim.env(two).rng().next_u64());
    sim.skew(one, -1500);
    assert_eq!(sim.env(two).wall().since(sim.env(one).wall()), MS * 1500);
}

#[test]
fn history_is_kept_only_when_asked_for_and_changes_nothing() {
    let run = |lines| {
        let sim = Sim::with_history(10, lines);
        let node = sim.add_node("node");
        sim.note(node, "hello", &[1], || "hello there".to_owned());
        sim.crash(node);
        sim.trace()
    };
    assert_eq!(run(0).hash(), run(10).hash());
    assert_eq!(run(0).lines().count(), 0);
    let lines: Vec<String> = run(10).lines().map(ToString::to_string).collect();
    assert!(lines[0].ends_with("node       hello there"), "{lines:?}");
    assert!(lines[1].contains("! crash"), "{lines:?}");
}
