//! Tests of what the server observes: locks, changed rows, and the number of notifications.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{namespace, plain_client, server_for, soon};
use futures_util::future::join_all;
use sawmill::{Context, Push, Sawmill};
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Commit, EntryKey, Ledger, Namespace, Write};
use sawmill_postgres::{Postgres, PostgresEngine};
use tokio::sync::Semaphore;
use tokio_postgres::{AsyncMessage, NoTls};

/// The number of lock samples per round, and the maximum number of rounds.
const SAMPLES: usize = 100;
const ROUNDS: usize = 3;

async fn mill(url: &str, namespace: &Namespace) -> Sawmill {
    let engine = PostgresEngine::default();
    Sawmill::options().engine(engine).namespace(namespace.as_str()).open(url).await.unwrap()
}

/// No lock is held while a handler runs. Everything done meanwhile (heartbeats, refreshes, appends) is short,
/// and never locks a table against writers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_no_lock_is_held_while_a_handler_runs() {
    let Some(url) = server_for("g6_no_lock_is_held_while_a_handler_runs") else { return };
    let space = namespace();
    let name = format!("g6-{}", space.as_str());
    let mill = mill(&format!("{url}?application_name={name}"), &space).await;
    mill.create_topic("jobs").await.unwrap();
    let (started, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (start, end) = (started.clone(), gate.clone());
    let handler = move |_: Context| {
        let end = end.clone();
        start.add_permits(1);
        async move { end.acquire().await.unwrap().forget() }
    };
    let worker = mill.worker("jobs").concurrency(4).start(handler).await.unwrap();
    mill.push_many("jobs", (0..4).map(|n| n.to_string())).await.unwrap();
    started.acquire_many(4).await.unwrap().forget();

    let watch = plain_client(&url).await;
    let sql = "SELECT count(*) FILTER (WHERE l.pid IS NOT NULL),
                   count(*) FILTER (WHERE l.locktype = 'relation' AND l.mode NOT IN
                       ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')),
                   count(*) FILTER (WHERE a.xact_start < now() - interval '5 seconds'),
                   count(DISTINCT a.pid)
               FROM pg_stat_activity AS a LEFT JOIN pg_locks AS l USING (pid) WHERE a.application_name = $1";
    // On a busy machine short locks are seen more often, so the test samples for longer.
    let (mut free, mut most_free, mut longest) = (0, 0, 0);
    for _ in 0..ROUNDS {
        let before = free;
        for sample in 0..SAMPLES {
            let row = watch.query_one(sql, &[&name]).await.unwrap();
            let (locks, strong, long, sessions): (i64, i64, i64, i64) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            assert!(sessions > 0, "our connections are visible");
            assert_eq!(strong, 0, "sample {sample}: strong locks on tables");
            longest = long.max(longest);
            free += usize::from(locks == 0);
            Env::system().sleep(Duration::from_millis(20)).await;
        }
        most_free = (free - before).max(most_free);
        if most_free > SAMPLES / 2 {
            break;
        }
    }
    assert!(free > 0, "something is locked all the time that handlers run");
    assert!(
        most_free > SAMPLES / 2,
        "test timed out: locks are the exception; nothing was locked in {most_free} of {SAMPLES} samples"
    );
    assert!(longest == 0, "test timed out: the end of {longest} transactions within 5 s");
    gate.add_permits(4);
    soon("the end", worker.drained()).await;
    worker.stop().await;
}

/// Messages are inserted and dropped with their whole table: no message row is updated or deleted, and no
/// entry is updated.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c2_no_row_is_updated_or_deleted_for_a_message() {
    const MESSAGES: usize = 10_000;
    let Some(url) = server_for("c2_no_row_is_updated_or_deleted_for_a_message") else { return };
    let space = namespace();
    let mill = mill(&url, &space).await;
    mill.create_topic("jobs").await.unwrap();
    let worker = mill.worker("jobs").start(|_: Context| async {}).await.unwrap();
    for batch in 0..MESSAGES / 100 {
        mill.push_many("jobs", (0..100).map(|n| Push::new(format!("{batch} {n}")))).await.unwrap();
    }
    soon("all is done", worker.drained()).await;
    assert_eq!(worker.stop().await.started, MESSAGES as u64);
    drop((worker, mill));
    let watch = plain_client(&url).await;
    let schema = format!("sawmill_{}", space.as_str());
    let sql = "SELECT coalesce(sum(n_tup_ins) FILTER (WHERE relname LIKE 'message%'), 0)::int8,
                   coalesce(sum(n_tup_upd + n_tup_del) FILTER (WHERE relname LIKE 'message%'), 0)::int8,
                   coalesce(sum(n_tup_upd) FILTER (WHERE relname = 'entry'), 0)::int8,
                   coalesce(sum(n_tup_ins) FILTER (WHERE relname = 'entry'), 0)::int8
               FROM pg_stat_user_tables WHERE schemaname = $1";
    // A session reports its statistics when it is idle or ends.
    let counted = async {
        loop {
            let row = watch.query_one(sql, &[&schema]).await.unwrap();
            let counts: (i64, i64, i64, i64) = (row.get(0), row.get(1), row.get(2), row.get(3));
            if counts.0 >= (MESSAGES / 100) as i64 && counts.3 > 0 {
                return counts;
            }
            Env::system().sleep(Duration::from_millis(50)).await;
        }
    };
    let (added, changed, entries_updated, entries_added) = soon("the counts", counted).await;
    assert_eq!(
        (changed, entries_updated),
        (0, 0),
        "of {added} rows of messages and {entries_added} of entries"
    );
}

/// One notification covers many pushes, because NOTIFY takes a lock that all transactions of the server
/// share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_of_single_pushes_go_together() {
    const TASKS: usize = 20;
    const EACH: usize = 100;
    let Some(url) = server_for("notifications_of_single_pushes_go_together") else { return };
    let space = namespace();
    let mill = mill(&url, &space).await;
    mill.create_topic("jobs").await.unwrap();
    let (listener, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let received = Arc::new(AtomicUsize::new(0));
    let count = received.clone();
    Env::system().spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notification(note) = message
                && note.payload().starts_with(['m', 'b'])
            {
                count.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    listener.batch_execute(&format!("LISTEN \"sawmill_{}\"", space.as_str())).await.unwrap();
    let began = Env::system().now();
    let pushing = (0..TASKS).map(|task| {
        let mill = mill.clone();
        async move {
            for n in 0..EACH {
                mill.push("jobs", format!("{task} {n}")).await.unwrap();
            }
        }
    });
    soon("all pushes", join_all(pushing)).await;
    let took = Env::system().now().since(began);
    // Wait for the last notification.
    Env::system().sleep(Duration::from_millis(300)).await;
    listener.batch_execute("SELECT 1").await.unwrap();
    let received = received.load(Ordering::SeqCst);
    eprintln!("{received} notifications of {} pushes in {took:?}", TASKS * EACH);
    assert!(received > 0, "no notification arrived");
    // A pause of 3 ms follows each notification.
    assert!(received as u128 <= (took.as_millis() + 300) / 3 + 2, "{received} notifications in {took:?}");
}

/// An open transaction keeps old versions of entries from being cleaned up. They cost nothing, whatever the
/// planner thinks of the index: here the settings make index scans look expensive.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_versions_that_cannot_be_cleaned_up_are_not_walked_over() {
    const VERSIONS: usize = 1_000;
    const CYCLES: usize = 10;
    const MAX_READ: i64 = 300;
    let Some(url) = server_for("old_versions_that_cannot_be_cleaned_up_are_not_walked_over") else { return };
    let (space, key) = (namespace(), EntryKey::raw("shards/1"));
    let name = format!("old-{}", space.as_str());
    let no_index_scans =
        "options=-c%20enable_indexscan%3Doff%20-c%20enable_indexonlyscan%3Doff%20-c%20jit%3Doff";
    let ours = format!("{url}?application_name={name}&{no_index_scans}");
    let (watch, pin) = (plain_client(&url).await, plain_client(&url).await);
    pin.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()").await.unwrap();
    let change = async |store: &Postgres, expect| {
        let write = Write { key: key.clone(), expect, value: Some("x".repeat(100).into()) };
        match store.commit_lightly(write).await.unwrap() {
            Commit::Done(version) => Some(version),
            other => panic!("nobody else writes: {other:?}"),
        }
    };
    // A session reports what it has read when it ends.
    let read_by_all = async || {
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
        while watch.query_one(sessions, &[&name]).await.unwrap().get::<_, i64>(0) > 0 {
            Env::system().sleep(Duration::from_millis(20)).await;
        }
        let sql = "SELECT t.seq_tup_read + i.idx_tup_read FROM pg_stat_user_tables AS t
                   JOIN pg_stat_user_indexes AS i USING (relid) WHERE t.schemaname = $1 AND t.relname = 'entry'";
        watch.query_one(sql, &[&format!("sawmill_{}", space.as_str())]).await.unwrap().get::<_, i64>(0)
    };

    let store = crate::support::open(&ours, &space).await;
    let mut version = None;
    for _ in 0..VERSIONS {
        version = change(&store, version).await;
    }
    drop(store);
    watch.batch_execute(&format!("ANALYZE \"sawmill_{}\".entry", space.as_str())).await.unwrap();
    let before = soon("all sessions end", read_by_all()).await;
    let store = crate::support::open(&ours, &space).await;
    for _ in 0..CYCLES {
        version = change(&store, version).await;
        assert!(store.get(&key).await.unwrap().is_some());
        assert_eq!(store.list(&EntryKey::raw("shards/")).await.unwrap().len(), 1);
    }
    drop(store);
    let read = soon("all sessions end", read_by_all()).await - before;
    pin.batch_execute("COMMIT").await.unwrap();
    assert!(read >= 3 * CYCLES as i64 && read < MAX_READ, "{read} rows were read for {} calls", 3 * CYCLES);
}
