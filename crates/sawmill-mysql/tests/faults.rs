//! The server is stopped, killed and started again under load, and connections are cut: what was acknowledged is not lost,
//! workers go on by themselves, and what may run at most once does. How long it took is printed.
#![allow(clippy::unwrap_used, reason = "these are tests")]

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all};
use mysql_async::prelude::Queryable;
use mysql_async::{Conn, OptsBuilder};
use sawmill::clock::Moment;
use sawmill::engine::Engine;
use sawmill::env::Env;
use sawmill::ledger::{Commit, EntryKey, Write};
use sawmill::{Context, Delivery, ErrorKind, Sawmill, Worker};
use sawmill_mysql::MysqlEngine;
use sawmill_servers::{Kind, Server};

const TOPIC: &str = "orders";
/// Two groups, each of which sees every message.
const GROUPS: [(&str, Delivery); 2] = [("least", Delivery::AtLeastOnce), ("most", Delivery::AtMostOnce)];
const WORKERS: usize = 2;
const PUSHERS: usize = 3;
const TTL: Duration = Duration::from_secs(3);
/// When faults end, work goes on within the TTL and so much more.
const GRACE: Duration = Duration::from_secs(5);
/// How many starts of each group there must be between two faults.
const BETWEEN: usize = 300;

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

/// A server with workers and pushers at work on it.
struct Yard {
    server: Mutex<Server>,
    url: String,
    books: [Arc<Book>; 2],
    acknowledged: Mutex<Vec<String>>,
    refused: AtomicUsize,
    stop: AtomicBool,
}

impl Yard {
    fn new(test: &str) -> Option<Self> {
        let server = Server::start(Kind::Mariadb).map_err(|why| sawmill_conformance::skipped(test, &why));
        let server = server.ok()?;
        Some(Self {
            url: server.url().to_owned(),
            server: Mutex::new(server),
            books: Default::default(),
            acknowledged: Mutex::default(),
            refused: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        })
    }

    async fn mill(&self) -> Sawmill {
        Sawmill::options().engine(MysqlEngine).open(&self.url).await.unwrap()
    }

    /// Workers of both groups, each with connections of its own.
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

    /// Pushes until it is told to stop. What is answered with an error may have arrived or not, and is not pushed again.
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
                    self.refused.fetch_add(1, Ordering::SeqCst);
                }
            }
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    }

    /// Does this to the server, on a thread that may wait.
    async fn harm(self: &Arc<Self>, harm: fn(&mut Server) -> Result<(), String>) {
        let yard = self.clone();
        Env::system()
            .blocking(move || harm(&mut yard.server.lock().unwrap()))
            .await
            .unwrap()
            .unwrap()
            .unwrap();
    }

    /// Waits until every group has started so many more; returns when the first of each had.
    async fn more(&self, count: usize) -> Moment {
        let counts = || self.books.each_ref().map(|book| book.count.load(Ordering::SeqCst));
        let (before, mut first) = (counts(), None);
        let reached = async {
            loop {
                let least = counts().iter().zip(before).map(|(now, before)| now - before).min().unwrap();
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
        assert!(in_time.is_some(), "work stands still: {before:?}, then {:?}", counts());
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
    println!("{test}: {} pushes were refused meanwhile", yard.refused.load(Ordering::SeqCst));
    yard.settle(&mill).await;
    for worker in workers {
        worker.stop().await;
    }
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

/// Nobody can beat, and all workers are as good as dead when it comes back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_away_for_long_loses_nothing() {
    under_load("away", 1, async |yard| {
        yard.harm(Server::kill).await;
        Env::system().sleep(TTL + Duration::from_secs(2)).await;
        yard.harm(Server::restart).await;
    })
    .await;
}

/// What was read before a crash may be gone: so it is not acted upon.
#[tokio::test]
async fn nothing_that_was_read_in_one_life_of_a_server_is_written_on_in_the_next() {
    let Some(yard) = Yard::new("lives").map(Arc::new) else { return };
    let store = MysqlEngine.open(&yard.url.parse().unwrap(), &Default::default()).await.unwrap();
    let ledger = store.ledger.unwrap();
    let key = EntryKey::raw("shards/1");
    let write = |expect, value: &str| {
        let (key, value) = (key.clone(), Some(value.to_owned().into()));
        let ledger = ledger.clone();
        async move { ledger.commit(Write { key, expect, value }).await.unwrap() }
    };
    let Commit::Done(first) = write(None, "a").await else { panic!("nobody else writes") };
    let Commit::Done(second) = write(Some(first), "b").await else { panic!("nobody else writes") };
    // A connection that is cut is nothing to worry about.
    drop(MysqlEngine.open(&yard.url.parse().unwrap(), &Default::default()).await.unwrap());
    let Commit::Done(third) = write(Some(second), "c").await else { panic!("the server lives") };

    yard.harm(Server::kill).await;
    yard.harm(Server::restart).await;
    let answer = loop {
        match ledger.get(&EntryKey::raw("another")).await {
            Ok(_) => break write(Some(third), "d").await,
            Err(error) => assert!(error.may_pass(), "{error}"),
        }
    };
    assert_eq!(answer, Commit::Conflict);
    let now = ledger.get(&key).await.unwrap().unwrap();
    assert_eq!(now.value, "c");
    assert!(now.version > third);
    assert!(matches!(write(Some(now.version), "d").await, Commit::Done(_)), "what is read now counts");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_that_are_cut_under_load_lose_nothing() {
    under_load("cut", 3, async |yard| {
        let opts = mysql_async::Opts::from_url(&yard.url).unwrap();
        let mut killer = Conn::new(OptsBuilder::from_opts(opts).prefer_socket(false)).await.unwrap();
        let others =
            "SELECT id FROM information_schema.processlist WHERE db = 'sawmill' AND id <> CONNECTION_ID()";
        let mut cut = 0;
        for _ in 0..20 {
            for id in killer.query::<u64, _>(others).await.unwrap() {
                // It may have ended by itself.
                cut += usize::from(killer.query_drop(format!("KILL {id}")).await.is_ok());
            }
            Env::system().sleep(Duration::from_millis(50)).await;
        }
        assert!(cut > 5, "only {cut} connections were cut");
    })
    .await;
}
