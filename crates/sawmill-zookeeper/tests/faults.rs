//! ZooKeeper is stopped, killed and started again under load, while messages are in SQLite: what was acknowledged is not lost, who
//! has lost its session starts nothing, and workers go on by themselves. How long it took is printed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all};
use sawmill::clock::Moment;
use sawmill::env::Env;
use sawmill::{Context, Delivery, ErrorKind, Sawmill, Worker};
use sawmill_servers::{Kind, Server};
use sawmill_sqlite::SqliteEngine;
use sawmill_zookeeper::ZookeeperEngine;
use tempfile::TempDir;

const TOPIC: &str = "orders";
/// Two groups, each of which sees every message.
const GROUPS: [(&str, Delivery); 2] = [("least", Delivery::AtLeastOnce), ("most", Delivery::AtMostOnce)];
const WORKERS: usize = 2;
const PUSHERS: usize = 3;
/// A worker's, and that of its session.
const TTL: Duration = Duration::from_secs(3);
/// When faults end, work goes on within the TTL and so much more.
const GRACE: Duration = Duration::from_secs(5);
/// How many starts of each group there must be between two faults.
const BETWEEN: usize = 200;

/// What is known of one group.
#[derive(Default)]
struct Book {
    starts: Mutex<HashMap<String, usize>>,
    count: AtomicUsize,
}

impl Book {
    fn note(&self, payload: String) {
        *self.starts.lock().unwrap().entry(payload).or_default() += 1;
        self.count.fetch_add(1, Ordering::SeqCst);
    }
}

/// A server and a file, with workers and pushers at work on them.
struct Yard {
    server: Mutex<Server>,
    ledger: String,
    folder: TempDir,
    books: [Arc<Book>; 2],
    acknowledged: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Yard {
    fn new(test: &str) -> Option<Self> {
        let server = Server::start(Kind::Zookeeper).map_err(|why| sawmill_conformance::skipped(test, &why));
        let server = server.ok()?;
        Some(Self {
            ledger: format!("{}?session-timeout={}", server.url(), TTL.as_secs()),
            server: Mutex::new(server),
            folder: tempfile::tempdir().unwrap(),
            books: Default::default(),
            acknowledged: Mutex::default(),
            stop: AtomicBool::new(false),
        })
    }

    async fn mill(&self) -> Sawmill {
        let store = format!("sqlite:{}", self.folder.path().join("jobs.db").display());
        let options = Sawmill::options().engine(SqliteEngine).engine(ZookeeperEngine);
        options.ledger(&self.ledger).open(&store).await.unwrap()
    }

    /// Workers of both groups, each with a session of its own.
    async fn workers(&self) -> Vec<Worker> {
        let mut workers = Vec::new();
        for ((group, delivery), book) in GROUPS.into_iter().zip(&self.books) {
            for _ in 0..WORKERS {
                let book = book.clone();
                let handler = move |job: Context| {
                    book.note(String::from_utf8_lossy(job.payload()).into_owned());
                    async { Env::system().sleep(Duration::from_millis(1)).await }
                };
                let mill = self.mill().await;
                let builder = mill.worker(TOPIC).group(group).delivery(delivery).slots(4).ttl(TTL);
                workers.push(builder.start(handler).await.unwrap());
            }
        }
        workers
    }

    /// Pushes until it is told to stop. Messages are not ZooKeeper's business: they are taken all the time.
    async fn push(&self, pusher: usize) {
        let mill = self.mill().await;
        for round in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let batch: Vec<String> = (0..5).map(|n| format!("{pusher}-{round}-{n}")).collect();
            match mill.push_many(TOPIC, batch.clone()).await {
                Ok(_) => self.acknowledged.lock().unwrap().extend(batch),
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
                }
            }
            Env::system().sleep(Duration::from_millis(25)).await;
        }
    }

    /// Does this to the server, on a thread that may wait.
    async fn harm(self: &Arc<Self>, harm: fn(&mut Server) -> Result<(), String>) {
        let yard = self.clone();
        let harmed = Env::system().blocking(move || harm(&mut yard.server.lock().unwrap())).await;
        harmed.unwrap().unwrap().unwrap();
    }

    fn counts(&self) -> [usize; 2] {
        self.books.each_ref().map(|book| book.count.load(Ordering::SeqCst))
    }

    /// Waits until every group has started so many more; returns when the first of each had.
    async fn more(&self, count: usize) -> Moment {
        let (before, mut first) = (self.counts(), None);
        let reached = async {
            loop {
                let least = self.counts().iter().zip(before).map(|(now, before)| now - before).min().unwrap();
                if least > 0 && first.is_none() {
                    first = Some(Env::system().now());
                }
                if least >= count {
                    return;
                }
                Env::system().sleep(Duration::from_millis(5)).await;
            }
        };
        let in_time = Env::system().within(Duration::from_secs(90), reached).await;
        assert!(in_time.is_some(), "work stands still: {before:?}, then {:?}", self.counts());
        first.unwrap()
    }

    /// Waits until nothing is left to do, and holds what happened against what was promised.
    async fn settle(&self, mill: &Sawmill) {
        let acknowledged = self.acknowledged.lock().unwrap().clone();
        for ((group, delivery), book) in GROUPS.into_iter().zip(&self.books) {
            let settled = async {
                loop {
                    let now = mill.status(TOPIC, group).await.unwrap();
                    if now.waiting + now.claimed + now.retrying + now.scheduled == 0 {
                        return now;
                    }
                    Env::system().sleep(Duration::from_millis(50)).await;
                }
            };
            let settled = Env::system().within(Duration::from_secs(90), settled).await.expect("an end");
            let letters = mill.dead_letters(TOPIC, group).await.unwrap().list(1_000_000).await.unwrap();
            let lost: HashSet<String> = letters
                .iter()
                .map(|letter| String::from_utf8_lossy(&letter.message.payload).into_owned())
                .collect();
            let starts = book.starts.lock().unwrap();
            let gone =
                acknowledged.iter().filter(|text| !starts.contains_key(*text) && !lost.contains(*text));
            assert_eq!(gone.count(), 0, "{group}: acknowledged, and neither run nor among the dead");
            let twice = starts.values().filter(|starts| **starts > 1).count();
            match delivery {
                Delivery::AtMostOnce => assert_eq!(twice, 0, "{group}: started twice"),
                _ => assert!(lost.is_empty(), "{group}: {} were given up", lost.len()),
            }
            assert!(settled.done + settled.dead >= acknowledged.len() as u64, "{settled:?}");
            println!(
                "  {group}: {} acknowledged, {} started, {twice} of them again, {} lost and kept for a person",
                acknowledged.len(),
                starts.len(),
                lost.len()
            );
        }
    }
}

/// Runs load, does the harm so many times, and checks. `harm` returns when it is over.
async fn under_load(test: &str, times: usize, harm: impl AsyncFn(&Arc<Yard>)) {
    let Some(yard) = Yard::new(test).map(Arc::new) else { return };
    let mill = yard.mill().await;
    mill.create_topic(TOPIC).await.unwrap();
    let workers = yard.workers().await;
    let pushing = join_all((0..PUSHERS).map(|pusher| yard.push(pusher)));
    let faults = async {
        let env = Env::system();
        for _ in 0..times {
            yard.more(BETWEEN).await;
            let began = env.now();
            harm(&yard).await;
            let over = env.now();
            let first = yard.more(BETWEEN).await;
            let (down, recovery) = (over.since(began), first.since(over));
            println!("{test}: {down:?} of harm, then {recovery:?} until both groups had started something");
            assert!(recovery < TTL + GRACE, "{recovery:?}");
        }
        yard.stop.store(true, Ordering::SeqCst);
    };
    join(pushing, faults).await;
    yard.settle(&mill).await;
    let mut rejoined = 0;
    for worker in workers {
        rejoined += worker.stop().await.rejoined;
    }
    println!("{test}: {rejoined} times a worker was out, and joined anew");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_restarted_under_load_loses_nothing() {
    under_load("restart", 3, async |yard| {
        yard.harm(Server::stop).await;
        yard.harm(Server::restart).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_killed_under_load_loses_nothing() {
    under_load("kill", 3, async |yard| {
        yard.harm(Server::kill).await;
        yard.harm(Server::restart).await;
    })
    .await;
}

/// All sessions are lost: nobody starts anything until there is one again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q5_nobody_who_has_lost_a_session_starts_anything_and_all_go_on_when_it_is_back() {
    under_load("away", 1, async |yard| {
        yard.harm(Server::stop).await;
        // By then every session is over, and so is every lease.
        Env::system().sleep(TTL).await;
        let before = yard.counts();
        Env::system().sleep(TTL + TTL / 2).await;
        assert_eq!(yard.counts(), before, "something was started without a session");
        yard.harm(Server::restart).await;
    })
    .await;
}
