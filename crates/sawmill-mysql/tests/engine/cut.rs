//! Tests with connections that are killed under load: nothing is lost or duplicated, and everything recovers
//! by itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{Database, NOW, PATIENCE, database_for, message, soon, topic};
use futures_util::future::{join, join_all};
use mysql_async::Conn;
use mysql_async::prelude::Queryable;
use sawmill::{Context, ErrorKind, Sawmill};
use sawmill_conformance::waits::timeout_message;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Commit, EntryKey, Ledger, Position, ReadRequest, Record, Write};
use sawmill_mysql::MysqlEngine;

/// Kills all other connections to the database repeatedly until `stop` is set. Returns the number of kills.
async fn kill(database: &Database, stop: &AtomicBool) -> usize {
    let mut killer: Conn = database.plain_connection().await;
    let mut killed = 0;
    while !stop.load(Ordering::SeqCst) {
        let others = format!(
            "SELECT id FROM information_schema.processlist WHERE db = '{}' AND id <> CONNECTION_ID()",
            database.name
        );
        for id in killer.query::<u64, _>(others).await.unwrap() {
            // It may have ended by itself.
            killed += usize::from(killer.query_drop(format!("KILL {id}")).await.is_ok());
        }
        Env::system().sleep(Duration::from_millis(50)).await;
    }
    killed
}

/// Returns whether an error is acceptable while connections are killed.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::Unavailable | ErrorKind::Unknown)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pushes_that_are_repeated_until_they_are_answered_arrive_once() {
    const PUSHERS: usize = 8;
    const ROUNDS: usize = 100;
    let Some(database) = database_for("pushes_that_are_repeated").await else { return };
    let log = database.open("default").await.unwrap().log.unwrap();
    let topic = topic(&*log, "orders", 4).await;
    let (stop, unknown) = (AtomicBool::new(false), AtomicUsize::new(0));
    let pushing = join_all((0..PUSHERS).map(|pusher| {
        let (log, topic, unknown) = (log.clone(), topic.clone(), &unknown);
        async move {
            for round in 0..ROUNDS {
                let records: Vec<Record> = (0..3)
                    .map(|n| Record::repeatable(&topic, message(format!("{pusher}-{round}-{n}"))))
                    .collect();
                while let Err(error) = log.append(&topic, NOW, records.clone()).await {
                    assert!(passes(error.kind()), "{error:?}");
                    unknown.fetch_add(usize::from(error.kind() == ErrorKind::Unknown), Ordering::SeqCst);
                }
            }
        }
    }));
    let pushing = async {
        pushing.await;
        stop.store(true, Ordering::SeqCst);
    };
    let (_, killed) = soon("all pushes", join(pushing, kill(&database, &stop))).await;
    assert!(killed > 10, "test timed out: more than 10 connections are killed, and not only {killed}");
    eprintln!("{killed} connections killed, {} outcomes unknown", unknown.load(Ordering::SeqCst));

    let mut times: HashMap<Vec<u8>, usize> = HashMap::new();
    for shard in 0..topic.shards {
        let want = ReadRequest { shard, after: Position::default(), limit: 100_000 };
        for message in log.read(&topic, &[want]).await.unwrap().remove(0).messages {
            *times.entry(message.payload.to_vec()).or_default() += 1;
        }
    }
    assert_eq!(times.len(), PUSHERS * ROUNDS * 3, "every message arrived");
    assert!(times.values().all(|times| *times == 1), "none arrived twice");
}

/// Increments an entry by one, whatever is answered, like the core: after an unknown outcome it reads, then
/// decides.
async fn count(ledger: &dyn Ledger, writer: usize, goal: u32) {
    let key = EntryKey::raw(format!("count/{writer}"));
    loop {
        let entry = match ledger.get(&key).await {
            Ok(entry) => entry,
            Err(error) => {
                assert!(passes(error.kind()), "{error:?}");
                continue;
            }
        };
        let now: u32 =
            entry.as_ref().map_or(0, |entry| String::from_utf8_lossy(&entry.value).parse().unwrap());
        if now == goal {
            return;
        }
        assert_eq!(now, goal - 1, "nobody else counts here");
        let write = Write {
            key: key.clone(),
            expect: entry.map(|entry| entry.version),
            value: Some(goal.to_string().into()),
        };
        match ledger.commit(write).await {
            Ok(Commit::Done(_)) => return,
            Ok(Commit::Conflict | Commit::Unknown) => {}
            Err(error) => assert!(passes(error.kind()), "{error:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn commits_that_are_answered_done_are_done() {
    const WRITERS: usize = 8;
    const GOAL: u32 = 150;
    let Some(database) = database_for("commits_that_are_answered_done").await else { return };
    let ledger = database.open("default").await.unwrap().ledger.unwrap();
    let mut began = HashMap::new();
    for writer in 0..WRITERS {
        let key = EntryKey::raw(format!("count/{writer}"));
        let write = Write { key: key.clone(), expect: None, value: Some("0".into()) };
        let Commit::Done(version) = ledger.commit(write).await.unwrap() else { panic!("{key} is there") };
        began.insert(key, version.0);
    }
    let stop = AtomicBool::new(false);
    let counting = async {
        join_all((0..WRITERS).map(|writer| {
            let ledger = ledger.clone();
            async move {
                for goal in 1..=GOAL {
                    count(&*ledger, writer, goal).await;
                }
            }
        }))
        .await;
        stop.store(true, Ordering::SeqCst);
    };
    let (_, killed) = soon("all counts", join(counting, kill(&database, &stop))).await;
    assert!(killed > 5, "test timed out: more than 5 connections are killed, and not only {killed}");
    for entry in ledger.list(&EntryKey::raw("count/")).await.unwrap() {
        assert_eq!(entry.value, GOAL.to_string());
        // Clients that open the database at the same time may each register the incarnation, which increases
        // versions by this much. Later connections do not.
        let moved = entry.version.0 - began[&entry.key];
        assert_eq!(moved % (1 << 20), u64::from(GOAL), "each step is one version: {entry:?}");
        assert!(moved >> 20 < 4, "{entry:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_go_on_by_themselves() {
    const MESSAGES: usize = 2_000;
    let Some(database) = database_for("workers_go_on_by_themselves").await else { return };
    let mill = Sawmill::options().engine(MysqlEngine).open(&database.url()).await.unwrap();
    mill.create_topic("orders").await.unwrap();
    let runs = Arc::new(std::sync::Mutex::new(HashMap::<Vec<u8>, usize>::new()));
    let counted = runs.clone();
    let worker = mill
        .worker("orders")
        .start(move |job: Context| {
            let counted = counted.clone();
            async move {
                *counted.lock().unwrap().entry(job.message().payload.to_vec()).or_default() += 1;
            }
        })
        .await
        .unwrap();
    let stop = AtomicBool::new(false);
    let pushing = async {
        let mut acknowledged = Vec::new();
        for n in 0..MESSAGES / 10 {
            let batch: Vec<String> = (0..10).map(|i| format!("{n}-{i}")).collect();
            // A push that failed may have arrived or not: only acknowledged messages must be there.
            if mill.push_many("orders", batch.clone()).await.is_ok() {
                acknowledged.extend(batch);
            }
        }
        stop.store(true, Ordering::SeqCst);
        acknowledged
    };
    let (acknowledged, killed) = soon("all pushes", join(pushing, kill(&database, &stop))).await;
    assert!(killed > 5, "test timed out: more than 5 connections are killed, and not only {killed}");
    let missing = || {
        let runs = runs.lock().unwrap();
        acknowledged.iter().filter(|text| !runs.contains_key(text.as_bytes())).count()
    };
    let all_run = async {
        while missing() > 0 {
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    };
    if Env::system().within(PATIENCE, all_run).await.is_none() {
        let what = "every acknowledged message is run";
        panic!("{}", timeout_message(what, &mill, "orders", "default", async || missing()).await);
    }
    worker.stop().await;
    eprintln!("{killed} connections killed, {} of {MESSAGES} acknowledged", acknowledged.len());
}
