//! A node that is restarted and killed under load: nothing that was acknowledged is lost, and workers go on by themselves.
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

async fn survive(test: &str, harm: impl Fn(&mut Server) -> Result<(), String>) {
    let server = Server::start(Kind::Cassandra).map_err(|why| sawmill_conformance::skipped(test, &why));
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
    for round in 0..2 {
        let goal = seen.run.lock().unwrap().len() + 500;
        until("messages are run", || seen.run.lock().unwrap().len() >= goal).await;
        block_in_place(|| harm(&mut server).and_then(|()| server.restart())).unwrap();
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
    until("all that was acknowledged is run", || {
        let run = seen.run.lock().unwrap();
        pushed.iter().all(|id| run.contains_key(id))
    })
    .await;
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
async fn a_node_is_restarted() {
    survive("a_node_is_restarted", Server::stop).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_is_killed() {
    survive("a_node_is_killed", Server::kill).await;
}
