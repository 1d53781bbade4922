//! A node that is killed under load: nothing that was acknowledged is lost, and workers go on by themselves.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::clock::{Clock, SystemClock};
use sawmill::env::Env;
use sawmill::{Context, MessageId, Push, Sawmill};
use sawmill_cassandra::CassandraEngine;
use sawmill_servers::{Kind, Server};
use tokio::sync::oneshot;
use tokio::task::block_in_place;

const TOPIC: &str = "orders";

#[derive(Default)]
struct Seen {
    pushed: Mutex<Vec<MessageId>>,
    run: Mutex<HashMap<MessageId, usize>>,
    failed: Mutex<Vec<String>>,
    stop: AtomicBool,
}

async fn push(mill: Sawmill, seen: Arc<Seen>) {
    let mut number = 0;
    while !seen.stop.load(Ordering::SeqCst) {
        number += 1;
        let batch = (0..20).map(|i| Push::new(format!("{number}-{i}")).key(format!("key {}", i % 7)));
        match mill.push_many(TOPIC, batch).await {
            Ok(ids) => seen.pushed.lock().unwrap().extend(ids),
            Err(error) => {
                assert!(error.may_pass(), "{error:?}");
                seen.failed.lock().unwrap().push(error.to_string());
            }
        }
        SystemClock.sleep(Duration::from_millis(2)).await;
    }
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let began = SystemClock.now();
    while !done() {
        assert!(SystemClock.now().since(began) < Duration::from_secs(90), "waited too long: {what}");
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
}

/// A node that has written what it acknowledges. As it is usually set up, one that is killed forgets the last tenth of a second,
/// and the other nodes that have it tell it: here there are none.
fn start() -> Result<Server, String> {
    let mut server = Server::start(Kind::Cassandra)?;
    server.stop()?;
    let settings =
        std::fs::read_to_string(server.folder().join("cassandra.yaml")).map_err(|error| error.to_string())?;
    let periodic = "commitlog_sync: periodic\ncommitlog_sync_period: 10000ms\n";
    assert!(settings.contains(periodic), "{settings}");
    server.give_file("cassandra.yaml", &settings.replace(periodic, "commitlog_sync: batch\n"))?;
    server.restart()?;
    Ok(server)
}

async fn survive(test: &str) {
    let server = block_in_place(start).map_err(|why| sawmill_conformance::skipped(test, &why));
    let Ok(mut server) = server else { return };
    let options = || Sawmill::options().engine(CassandraEngine);
    let mill = options().open(server.url()).await.unwrap();
    mill.create_topic(TOPIC).await.unwrap();
    let seen = Arc::new(Seen::default());
    let mut workers = Vec::new();
    for _ in 0..2 {
        let mill = options().open(server.url()).await.unwrap();
        let noted = seen.clone();
        // Longer than the node is away: nobody is to be declared dead.
        let builder = mill.worker(TOPIC).slots(4).ttl(Duration::from_secs(30));
        let handler = move |context: Context| {
            let noted = noted.clone();
            async move {
                *noted.run.lock().unwrap().entry(context.message().id).or_insert(0) += 1;
                Ok::<(), sawmill::Error>(())
            }
        };
        workers.push(builder.start(handler).await.unwrap());
    }
    let (ended, pusher) = oneshot::channel();
    let pushing = push(mill.clone(), seen.clone());
    Env::system().spawn(async move {
        pushing.await;
        let _ = ended.send(());
    });
    // One is enough for every day; `SAWMILL_TEST_KILLS` says how many.
    let kills = std::env::var("SAWMILL_TEST_KILLS").ok().and_then(|text| text.parse().ok());
    for round in 0..kills.unwrap_or(1) {
        let goal = seen.run.lock().unwrap().len() + 500;
        until("messages are run", || seen.run.lock().unwrap().len() >= goal).await;
        block_in_place(|| server.kill().and_then(|()| server.restart())).unwrap();
        let began = SystemClock.now();
        let goal = seen.pushed.lock().unwrap().len() + 100;
        until("pushes are taken again", || seen.pushed.lock().unwrap().len() >= goal).await;
        eprintln!(
            "{test}, round {round}: pushes were taken again after {:?}",
            SystemClock.now().since(began)
        );
    }
    seen.stop.store(true, Ordering::SeqCst);
    pusher.await.unwrap();
    let pushed: HashSet<MessageId> = seen.pushed.lock().unwrap().iter().copied().collect();
    let missing = || {
        let run = seen.run.lock().unwrap();
        pushed.iter().filter(|id| !run.contains_key(id)).count()
    };
    let began = SystemClock.now();
    while missing() > 0 {
        if SystemClock.now().since(began) > Duration::from_secs(120) {
            let status = mill.status(TOPIC, "default").await;
            panic!("of {} acknowledged {} were not run: {status:?}", pushed.len(), missing());
        }
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    for worker in workers {
        worker.stop().await;
    }
    let again = seen.run.lock().unwrap().values().filter(|times| **times > 1).count();
    eprintln!(
        "{test}: {} acknowledged, {} calls failed, {again} run again",
        pushed.len(),
        seen.failed.lock().unwrap().len()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_killed() {
    survive("a_node_is_killed").await;
}
