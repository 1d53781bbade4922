//! Two versions of a program on one store: the newer one changes the tables while workers of the older one
//! run, and neither disturbs the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join;
use sawmill::engine::runtime::Env;
use sawmill::{Context, Sawmill, Worker};

const TOPIC: &str = "upgrade";
/// The number of messages that each worker must get at each stage.
const ENOUGH: usize = 200;
const DEADLINE: Duration = Duration::from_secs(60);

/// The workers that ran each payload.
type Runs = Arc<Mutex<BTreeMap<String, Vec<&'static str>>>>;

/// Pushes and works with the older program throughout; opens the newer one, lets it work in parallel, and
/// finally lets the older one work alone again. Every push succeeds, and every message runs once.
pub async fn upgrade(older: &Sawmill, open_newer: impl AsyncFn() -> Sawmill) {
    older.create_topic(TOPIC).await.expect("a topic");
    let (runs, stop) = (Runs::default(), AtomicBool::new(false));
    let pushing = async {
        let mut pushed = 0;
        while !stop.load(Ordering::SeqCst) {
            let batch: Vec<String> = (pushed..pushed + 10).map(|n| n.to_string()).collect();
            older.push_many(TOPIC, batch).await.expect("the older program pushes");
            pushed += 10;
            Env::system().sleep(Duration::from_millis(2)).await;
        }
        pushed
    };
    let upgrading = async {
        let first = worker(older, "older", &runs).await;
        more(&runs, "older").await;
        let newer = open_newer().await;
        more(&runs, "older").await;
        let second = worker(&newer, "newer", &runs).await;
        more(&runs, "newer").await;
        more(&runs, "older").await;
        second.stop().await;
        more(&runs, "older").await;
        stop.store(true, Ordering::SeqCst);
        first
    };
    let (pushed, first) = join(pushing, upgrading).await;
    // From here on nothing is in flight.
    first.drained().await;
    first.stop().await;
    let runs = runs.lock().expect("no handler panics");
    assert_eq!(runs.len(), pushed, "every message ran");
    let twice: Vec<_> = runs.iter().filter(|(_, by)| by.len() > 1).collect();
    assert!(twice.is_empty(), "these ran more than once: {twice:?}");
}

async fn worker(mill: &Sawmill, name: &'static str, runs: &Runs) -> Worker {
    let runs = runs.clone();
    let handler = move |job: Context| {
        let payload = String::from_utf8_lossy(job.payload()).into_owned();
        runs.lock().expect("no handler panics").entry(payload).or_default().push(name);
        async {}
    };
    // The long TTL keeps workers alive on a slow machine.
    mill.worker(TOPIC).ttl(DEADLINE).poll(Duration::from_millis(50)).start(handler).await.expect("a worker")
}

/// Waits until this worker has run some more.
async fn more(runs: &Runs, name: &str) {
    let count = || {
        let runs = runs.lock().expect("no handler panics");
        runs.values().flatten().filter(|by| **by == name).count()
    };
    let goal = count() + ENOUGH;
    let reached = async {
        while count() < goal {
            Env::system().sleep(Duration::from_millis(10)).await;
        }
    };
    if Env::system().within(DEADLINE, reached).await.is_none() {
        panic!("test timed out: the {name} program runs some more");
    }
}
