//! What the server sees of us: which locks are held, which rows are changed, and how often others are notified.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::{namespace, server_for, soon, stranger};
use futures_util::future::join_all;
use sawmill::engine::Namespace;
use sawmill::env::Env;
use sawmill::ledger::{Commit, EntryKey, Ledger, Write};
use sawmill::{Context, Push, Sawmill};
use sawmill_postgres::{Postgres, PostgresEngine};
use tokio::sync::Semaphore;
use tokio_postgres::{AsyncMessage, NoTls};

/// How often a test looks at what is locked, and how often it does so again at most.
const LOOKS: usize = 100;
const ROUNDS: usize = 3;

async fn mill(url: &str, namespace: &Namespace) -> Sawmill {
    let engine = PostgresEngine::default();
    Sawmill::options().engine(engine).namespace(namespace.as_str()).open(url).await.unwrap()
}

/// While a handler runs nothing is locked: whatever we do meanwhile (beating, looking, adding to the log) is over in a moment, and never
/// locks a table so that others could not write to it.
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
    let worker = mill.worker("jobs").slots(4).start(handler).await.unwrap();
    mill.push_many("jobs", (0..4).map(|n| n.to_string())).await.unwrap();
    started.acquire_many(4).await.unwrap().forget();

    let watch = stranger(&url).await;
    let sql = "SELECT count(*) FILTER (WHERE l.pid IS NOT NULL),
                   count(*) FILTER (WHERE l.locktype = 'relation' AND l.mode NOT IN
                       ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')),
                   count(*) FILTER (WHERE a.xact_start < now() - interval '5 seconds'),
                   count(DISTINCT a.pid)
               FROM pg_stat_activity AS a LEFT JOIN pg_locks AS l USING (pid) WHERE a.application_name = $1";
    // On a busy machine what is over in a moment is seen more often, and then it is looked at for longer.
    let (mut free, mut most_free, mut longest) = (0, 0, 0);
    for _ in 0..ROUNDS {
        let before = free;
        for look in 0..LOOKS {
            let row = watch.query_one(sql, &[&name]).await.unwrap();
            let (locks, strong, long, sessions): (i64, i64, i64, i64) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            assert!(sessions > 0, "our connections are there to be seen");
            assert_eq!(strong, 0, "look {look}: strong locks on tables");
            longest = long.max(longest);
            free += usize::from(locks == 0);
            Env::system().sleep(Duration::from_millis(20)).await;
        }
        most_free = (free - before).max(most_free);
        if most_free > LOOKS / 2 {
            break;
        }
    }
    assert!(free > 0, "something is locked all the time that handlers run");
    assert!(
        most_free > LOOKS / 2,
        "test timed out: locks are the exception; nothing was locked in {most_free} of {LOOKS} looks"
    );
    assert!(longest == 0, "test timed out: the end of {longest} transactions within 5 s");
    gate.add_permits(4);
    soon("the end", worker.drained()).await;
    worker.stop().await;
}

/// Messages are added and, with their whole table, dropped: no row of theirs is changed or deleted, and no entry is updated.
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
    let watch = stranger(&url).await;
    let schema = format!("sawmill_{}", space.as_str());
    let sql = "SELECT coalesce(sum(n_tup_ins) FILTER (WHERE relname LIKE 'message%'), 0)::int8,
                   coalesce(sum(n_tup_upd + n_tup_del) FILTER (WHERE relname LIKE 'message%'), 0)::int8,
                   coalesce(sum(n_tup_upd) FILTER (WHERE relname = 'entry'), 0)::int8,
                   coalesce(sum(n_tup_ins) FILTER (WHERE relname = 'entry'), 0)::int8
               FROM pg_stat_user_tables WHERE schemaname = $1";
    // A session tells what it did when it is idle, or ends.
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

/// Others are told of many pushes at once: notifying takes a lock that all of the server's transactions share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn notifications_of_single_pushes_go_together() {
    const TASKS: usize = 20;
    const EACH: usize = 100;
    let Some(url) = server_for("notifications_of_single_pushes_go_together") else { return };
    let space = namespace();
    let mill = mill(&url, &space).await;
    mill.create_topic("jobs").await.unwrap();
    let (listener, mut connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
    let heard = Arc::new(AtomicUsize::new(0));
    let count = heard.clone();
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
    // The last of them is told of, too.
    Env::system().sleep(Duration::from_millis(300)).await;
    listener.batch_execute("SELECT 1").await.unwrap();
    let heard = heard.load(Ordering::SeqCst);
    eprintln!("{heard} notifications of {} pushes in {took:?}", TASKS * EACH);
    assert!(heard > 0, "nobody was told of anything");
    // After each there is a pause of 3 ms.
    assert!(heard as u128 <= (took.as_millis() + 300) / 3 + 2, "{heard} notifications in {took:?}");
}

/// While somebody holds a transaction open, old versions of entries cannot be cleaned up. They cost nothing, whatever the planner thinks of
/// the index: it is told here that to use it is dear.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_versions_that_cannot_be_cleaned_up_are_not_walked_over() {
    const VERSIONS: usize = 1_000;
    const LOOKS: usize = 10;
    const MOST_READ: i64 = 300;
    let Some(url) = server_for("old_versions_that_cannot_be_cleaned_up_are_not_walked_over") else { return };
    let (space, key) = (namespace(), EntryKey::raw("shards/1"));
    let name = format!("old-{}", space.as_str());
    let dear = "options=-c%20enable_indexscan%3Doff%20-c%20enable_indexonlyscan%3Doff%20-c%20jit%3Doff";
    let ours = format!("{url}?application_name={name}&{dear}");
    let (watch, pin) = (stranger(&url).await, stranger(&url).await);
    pin.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()").await.unwrap();
    let change = async |store: &Postgres, expect| {
        let write = Write { key: key.clone(), expect, value: Some("x".repeat(100).into()) };
        match store.commit_lightly(write).await.unwrap() {
            Commit::Done(version) => Some(version),
            other => panic!("nobody else writes: {other:?}"),
        }
    };
    // What a session has read is told when it ends.
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
    for _ in 0..LOOKS {
        version = change(&store, version).await;
        assert!(store.get(&key).await.unwrap().is_some());
        assert_eq!(store.list(&EntryKey::raw("shards/")).await.unwrap().len(), 1);
    }
    drop(store);
    let read = soon("all sessions end", read_by_all()).await - before;
    pin.batch_execute("COMMIT").await.unwrap();
    assert!(read >= 3 * LOOKS as i64 && read < MOST_READ, "{read} rows were read for {} calls", 3 * LOOKS);
}
