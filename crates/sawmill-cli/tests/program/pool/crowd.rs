//! Two hundred orders and eight instances that are restarted again and again and killed at random moments.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use sawmill::engine::runtime::Env;

use super::claims::eager_broker;
use super::fixture::{Pool, TTL};
use crate::support::{comes, until};

const ORDERS: usize = 200;
const INSTANCES: usize = 8;
const KILLS: usize = 24;
/// The time limit, generous for slow machines.
const PATIENCE: Duration = Duration::from_secs(240);

/// Eight instances, each of which is restarted when it ends, as a supervisor does.
struct Supervisor<'a> {
    pool: &'a Pool,
    running: Vec<Child>,
    /// The process ids of the killed instances.
    killed: BTreeSet<u32>,
    /// The number of instances that failed by themselves.
    failed: usize,
}

impl<'a> Supervisor<'a> {
    fn new(pool: &'a Pool) -> Self {
        let running = (0..INSTANCES).map(|number| Self::start(pool, number)).collect();
        Self { pool, running, killed: BTreeSet::new(), failed: 0 }
    }

    fn start(pool: &Pool, number: usize) -> Child {
        let args = ["--ttl", TTL, "--backoff", "1s..1s", "--log-file", "log"];
        let mut command = pool.instance(number as u32, &args);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Restarts the instances that have ended.
    fn tend(&mut self) {
        for number in 0..self.running.len() {
            let Some(status) = self.running[number].try_wait().unwrap() else { continue };
            let pid = self.running[number].id();
            self.failed += usize::from(!status.success() && !self.killed.contains(&pid));
            self.running[number] = Self::start(self.pool, number);
        }
    }

    fn kill(&mut self, number: usize) {
        self.killed.insert(self.running[number].id());
        self.running[number].kill().unwrap();
    }
}

impl Drop for Supervisor<'_> {
    fn drop(&mut self) {
        for child in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends the orders, has the instances run them while some are killed, and checks the results.
fn all_is_completed(pool: &Pool, test: &str) {
    let orders: Vec<String> = (0..ORDERS).map(|order| format!("./job {order} 0.4")).collect();
    pool.send(&orders.iter().map(String::as_str).collect::<Vec<_>>());
    let env = Env::system();
    let began = Instant::now();
    let mut supervisor = Supervisor::new(pool);
    let mut next_kill = Duration::from_secs(3);
    loop {
        supervisor.tend();
        let done = ended(pool);
        if done.len() == ORDERS {
            break;
        }
        if began.elapsed() >= PATIENCE {
            panic!("{}\n{}", timeout_message(pool, ORDERS - done.len()), last_of(&pool.place.read("log")));
        }
        if began.elapsed() >= next_kill && supervisor.killed.len() < KILLS {
            supervisor.kill(env.rng().next_u64() as usize % INSTANCES);
            next_kill = began.elapsed() + Duration::from_millis(300 + env.rng().next_u64() % 900);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = began.elapsed();
    let done = || pool.status()["done"].as_u64().unwrap();
    let all_done = comes(|| {
        supervisor.tend();
        done() >= ORDERS as u64
    });
    match all_done {
        true => assert_eq!(done(), ORDERS as u64, "some are done twice"),
        false => panic!("{}", timeout_message(pool, ORDERS - done() as usize)),
    }
    check(pool, &supervisor, test, took);
}

/// Describes a wait that failed with this many orders missing.
fn timeout_message(pool: &Pool, missing: usize) -> String {
    let status = pool.status();
    let left = ["waiting", "scheduled", "claimed", "retrying"].map(|name| status[name].as_u64().unwrap());
    match left.iter().sum::<u64>() {
        0 => format!("lost: {missing} orders, and nothing waits any more: {status}"),
        left => {
            format!("test timed out: all orders are done; {left} wait still, {missing} are missing: {status}")
        }
    }
}

/// Returns the orders that have ended at least once.
fn ended(pool: &Pool) -> BTreeSet<String> {
    let journal = pool.place.read("journal");
    journal
        .lines()
        .filter_map(|line| Some(line.strip_prefix("end ")?.split(' ').next()?.to_owned()))
        .collect()
}

fn check(pool: &Pool, supervisor: &Supervisor<'_>, test: &str, took: Duration) {
    let mut starts: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for line in pool.journal() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["start", order, _, worker] => {
                starts.entry(order.to_owned()).or_default().push(worker.parse().unwrap())
            }
            ["end", ..] => {}
            _ => panic!("two were at it at once: {line}"),
        }
    }
    assert_eq!(starts.len(), ORDERS);
    let mut again = 0;
    for (order, workers) in &starts {
        again += workers.len() - 1;
        // Every worker that began it, except the last, was killed.
        let (_, former) = workers.split_last().unwrap();
        for worker in former {
            assert!(
                supervisor.killed.contains(worker),
                "order {order} was worked again, though {worker} lived: {workers:?}"
            );
        }
    }
    let (killed, failed) = (supervisor.killed.len(), supervisor.failed);
    eprintln!(
        "{test}: {ORDERS} orders in {took:.1?}; {killed} instances killed, {again} orders worked again, {failed} ended badly"
    );
    assert!(killed >= KILLS / 3, "too few were killed to show anything");
    assert_eq!(failed, 0, "an instance ended badly by itself: {}", last_of(&pool.place.read("log")));
}

fn last_of(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

#[test]
fn k4_k6_k7_two_hundred_orders_and_eight_instances_that_are_killed() {
    let test = "k4_k6_k7_two_hundred_orders_and_eight_instances_that_are_killed";
    let Some(pool) = Pool::of(test) else { return };
    all_is_completed(&pool, test);
}

#[test]
fn k5_k10_the_same_while_the_coordination_topic_is_compacted() {
    let test = "k5_k10_the_same_while_the_coordination_topic_is_compacted";
    let Some(server) = eager_broker(test) else { return };
    let pool = Pool::at(server.url(), 0);
    pool.make_claims_compact_soon();
    pool.make_orders(4);
    all_is_completed(&pool, test);
    // The broker has usually compacted many times by now. What matters is that no finished order is taken for
    // unfinished afterwards.
    until("the broker has compacted", || {
        // The broker does not compact the newest segment, so more has to be written after it.
        pool.run(&["pause", &pool.orders]).ok();
        pool.run(&["resume", &pool.orders]).ok();
        let (left, end) = pool.claims_records();
        eprintln!("{test}: {} of {end} records are left on the coordination topic", left.len());
        (left.len() as i64) < end
    });
    let status = pool.status();
    let (done, waiting) = (status["done"].as_u64(), status["waiting"].as_u64());
    assert_eq!((done, waiting), (Some(ORDERS as u64), Some(0)), "{status}");
}
