//! Several instances that claim an order, instances that die, and the records of it: K4 to K7, K10.

use rustix::process::Signal;
use sawmill_servers::{KafkaExtras, Server};

use super::fixture::{Pool, Record};
use crate::support::{Running, until};

#[test]
fn k4_of_several_claimants_one_works_the_order() {
    const INSTANCES: u32 = 6;
    let test = "k4_of_several_claimants_one_works_the_order";
    let Some(pool) = Pool::of(test) else { return };
    // All wait, and see the order at the same moment.
    let mut instances: Vec<Running> = (0..INSTANCES).map(|number| pool.start(number)).collect();
    let waiting = || pool.run(&["--json", "workers"]).ok().matches("\"instance-").count();
    until("all are members", || waiting() >= INSTANCES as usize);
    pool.send(&["./job one 1"]);
    until("it is done", || pool.count("end one") > 0);
    until("one exits", || instances.iter_mut().any(|instance| !instance.is_running()));
    // The others have yielded and wait for the next order.
    let running = instances.iter_mut().filter_map(|instance| instance.is_running().then_some(())).count();
    assert_eq!(running, INSTANCES as usize - 1);
    assert_eq!((pool.count("start one"), pool.count("overlap")), (1, 0), "{:?}", pool.journal());
    pool.send(&["./job 2 0", "./job 3 0", "./job 4 0", "./job 5 0", "./job 6 0"]);
    for instance in instances {
        instance.wait().ok();
    }
    for order in ["one", "2", "3", "4", "5", "6"] {
        assert_eq!(pool.count(&format!("start {order}")), 1, "{:?}", pool.journal());
    }
}

#[test]
fn k6_an_instance_that_dies_does_not_block_its_order() {
    let test = "k6_an_instance_that_dies_does_not_block_its_order";
    let Some(pool) = Pool::of(test) else { return };
    pool.send(&["./job a go"]);
    let dying = pool.start(1);
    pool.until_noted("start a 1");
    let other = pool.start(2);
    dying.signal(Signal::KILL);
    pool.until_noted("start a 2");
    pool.place.write("go", "");
    other.wait().ok();
    assert_eq!((pool.count("end a 1"), pool.count("end a 2")), (0, 1), "{:?}", pool.journal());
    assert_eq!(pool.count("overlap"), 0, "what the dead one ran ended with it: {:?}", pool.journal());
}

#[test]
fn k7_the_cursor_moves_only_as_orders_are_settled() {
    let test = "k7_the_cursor_moves_only_as_orders_are_settled";
    let Some(pool) = Pool::of(test) else { return };
    pool.send(&["./job a go", "./job b 0", "./job c 0"]);
    let count = |name: &str| pool.status()[name].as_u64().unwrap();
    // It may begin with any of them: one is claimed, and none is done. Repeat until that one is `a`.
    let mut begun = pool.start(1);
    until("something is begun", || pool.count("start") > 0);
    while pool.count("start a") == 0 {
        begun.wait().ok();
        let before = pool.count("start");
        begun = pool.start(1);
        until("more is begun", || pool.count("start") > before);
    }
    let done = pool.count("end") as u64;
    until("it is claimed", || count("claimed") == 1);
    assert_eq!((count("done"), count("waiting")), (done, 2 - done), "the rest waits, untaken");
    begun.signal(Signal::KILL);
    let _ = begun.wait();
    assert_eq!((count("claimed"), count("done")), (1, done), "dead, and still its checkpoint");
    pool.place.script("job", "echo \"start $1\" >> journal; echo \"end $1\" >> journal");
    for _ in done..3 {
        pool.work(1);
    }
    until("all is done", || count("done") == 3);
    assert_eq!((count("claimed"), count("waiting")), (0, 0));
    for order in ["a", "b", "c"] {
        assert_eq!(pool.count(&format!("end {order}")), 1, "{:?}", pool.journal());
    }
}

/// Starts a broker that compacts as soon as it may.
pub(crate) fn eager_broker(test: &str) -> Option<Server> {
    let properties = "log.cleaner.backoff.ms=200\nlog.retention.check.interval.ms=500\n".to_owned();
    let extras = KafkaExtras { properties, ..KafkaExtras::default() };
    match Server::kafka(&extras) {
        Ok(server) => Some(server),
        Err(why) => {
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
            sawmill_conformance::skipped(test, &why);
            None
        }
    }
}

#[test]
fn k5_k10_what_is_completed_stays_so_and_the_topic_small_after_compaction() {
    const ORDERS: usize = 12;
    let test = "k5_k10_what_is_completed_stays_so_and_the_topic_small_after_compaction";
    let Some(server) = eager_broker(test) else { return };
    let pool = Pool::at(server.url(), 0);
    pool.make_claims_compact_soon();
    pool.make_orders(2);
    let orders: Vec<String> = (0..ORDERS).map(|order| format!("./job {order} 0")).collect();
    pool.send(&orders.iter().map(String::as_str).collect::<Vec<_>>());
    for nth in 0..ORDERS {
        pool.work(nth as u32 % 3);
    }
    assert_eq!(pool.count("end"), ORDERS);
    let (written, end) = pool.claims_records();
    let values = |records: &[Record]| {
        let live = |record: &&Record| record.offset < end && record.bytes.is_some_and(|bytes| bytes > 0);
        records.iter().filter(live).map(|record| record.key.clone()).collect::<Vec<_>>()
    };

    // The entries of topics and lanes, group, duty, shards, and the names of three instances, independent of
    // the number of orders.
    const BOUND: usize = 20;
    let before = values(&written).len();
    assert!(before > 2 * BOUND, "{before} values for {ORDERS} orders");
    let mut left = Vec::new();
    until("the broker has compacted", || {
        // The broker does not compact the newest segment, so more has to be written after it.
        pool.run(&["pause", &pool.orders]).ok();
        pool.run(&["resume", &pool.orders]).ok();
        left = values(&pool.claims_records().0);
        left.len() <= BOUND
    });
    eprintln!("{ORDERS} orders: {before} values were written, and {} are left: {left:?}", left.len());

    // Only the new order runs.
    pool.send(&["./job new 0"]);
    pool.work(1);
    assert_eq!((pool.count("end"), pool.count("end new")), (ORDERS + 1, 1), "{:?}", pool.journal());
    assert_eq!(pool.status()["done"].as_u64(), Some(ORDERS as u64 + 1));
}

#[test]
fn k10_the_coordination_topic_is_made_compacted() {
    let test = "k10_the_coordination_topic_is_made_compacted";
    let Some(pool) = Pool::of(test) else { return };
    pool.send(&["./job a 0"]);
    pool.work(1);
    assert_eq!(pool.claims_setting("cleanup.policy").as_deref(), Some("compact"));
    // There is an entry for each member and each open claim, and none for finished ones.
    let (records, _) = pool.claims_records();
    let mut standing = std::collections::BTreeSet::new();
    for record in records {
        match record.bytes {
            None => standing.remove(&record.key),
            Some(_) => standing.insert(record.key),
        };
    }
    let members = standing.iter().filter(|key| key.contains("members/")).count();
    assert!(members <= 1, "who has left is removed, but for the last word of it: {standing:?}");
}
