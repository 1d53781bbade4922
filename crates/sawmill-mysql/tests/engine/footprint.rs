//! Tests of what the server observes: locks while handlers run, deadlocks, and leftover rows.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{NOW, database_for, innodb_status, record, soon, topic, waits_for_lock};
use futures_util::future::join;
use mysql_async::prelude::Queryable;
use sawmill::{Context, Sawmill};
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Position, ReadRequest};
use sawmill_mysql::MysqlEngine;
use tokio::sync::Semaphore;

/// The number of samples of the transaction list per round.
const SAMPLES: usize = 50;
/// The maximum number of rounds.
const ROUNDS: usize = 3;
/// The server refreshes this list only if nobody has read it for 100 ms. Reading more often returns the same
/// list.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(150);

/// No lock is held while a handler runs. Everything done meanwhile (heartbeats, refreshes) is short, and no
/// table is locked against others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_no_lock_is_held_while_a_handler_runs() {
    let Some(database) = database_for("g6_no_lock_is_held_while_a_handler_runs").await else { return };
    let mill = Sawmill::options().engine(MysqlEngine).open(&database.url()).await.unwrap();
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

    let mut watch = database.plain_connection().await;
    let name = &database.name;
    let sessions = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db = '{name}' AND id <> CONNECTION_ID()"
    );
    let transactions = format!(
        "SELECT COUNT(*), COALESCE(SUM(t.trx_started < NOW() - INTERVAL 5 SECOND), 0)
         FROM information_schema.innodb_trx AS t
         JOIN information_schema.processlist AS p ON p.id = t.trx_mysql_thread_id WHERE p.db = '{name}'"
    );
    // On a busy machine short locks are seen more often, so the test samples for longer.
    let (mut free, mut most_free, mut longest) = (0, 0, 0);
    for _ in 0..ROUNDS {
        let before = free;
        for _ in 0..SAMPLES {
            let seen: u64 = watch.query_first(&sessions).await.unwrap().unwrap();
            assert!(seen > 0, "our connections are visible");
            let (open, long): (u64, u64) = watch.query_first(&transactions).await.unwrap().unwrap();
            longest = long.max(longest);
            let in_use: Vec<mysql_async::Row> =
                watch.query(format!("SHOW OPEN TABLES FROM {name} WHERE In_use > 0")).await.unwrap();
            free += usize::from(open == 0 && in_use.is_empty());
            Env::system().sleep(SAMPLE_INTERVAL).await;
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

/// Another client takes the counters in the opposite order. The server rolls our push back because the other
/// client has written more, and the push is repeated, once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_a_deadlock_has_ended_is_done_again() {
    let Some(database) = database_for("a_push_that_a_deadlock_has_ended_is_done_again").await else { return };
    let log = database.open("default").await.unwrap().log.unwrap();
    let topic = topic(&*log, "orders", 2).await;
    let mut other = database.plain_connection().await;
    let values = vec!["(1)"; 1_000].join(",");
    let hold = |shard| {
        format!("SELECT last FROM sawmill_default_shard WHERE topic = 1 AND number = {shard} FOR UPDATE")
    };
    for sql in ["CREATE TABLE theirs (a INT) ENGINE=InnoDB", "START TRANSACTION"] {
        other.query_drop(sql).await.unwrap();
    }
    other.query_drop(format!("INSERT INTO theirs VALUES {values}")).await.unwrap();
    other.query_drop(hold(1)).await.unwrap();
    let pushing = log.append(&topic, NOW, vec![record(0, "a"), record(1, "b")]);
    let crossing = async {
        let mut watch = database.plain_connection().await;
        let ours = format!("`{}`.`sawmill_default_shard`", database.name);
        waits_for_lock(&mut watch, &ours).await;
        other.query_drop(hold(0)).await.unwrap();
        let status = innodb_status(&mut watch).await;
        let latest = status.split("LATEST DETECTED DEADLOCK").nth(1).unwrap_or_default();
        // The server tells of the latest deadlock only, which may be one of another test by now.
        assert!(latest.contains(&ours), "test timed out: the server tells of our deadlock: {latest}");
        other.query_drop("COMMIT").await.unwrap();
    };
    let (pushed, ()) = soon("the push", join(pushing, crossing)).await;
    pushed.unwrap();
    for (shard, text) in [(0, b"a"), (1, b"b")] {
        let want = ReadRequest { shard, after: Position::default(), limit: 9 };
        let block = log.read(&topic, &[want]).await.unwrap().remove(0);
        let came: Vec<_> = block.messages.iter().map(|message| &message.payload[..]).collect();
        assert_eq!(came, [text]);
    }
}

/// Records of finished messages are deleted after a week, however many there are.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_finished_long_ago_is_forgotten() {
    let Some(database) = database_for("what_was_finished_long_ago_is_forgotten").await else { return };
    let log = database.open("default").await.unwrap().log.unwrap();
    let topic = topic(&*log, "orders", 1).await;
    let mut other = database.plain_connection().await;
    let row = |n: u32, age: u32| format!("(UNHEX('{n:032x}'), 'group', NOW() - INTERVAL {age} DAY)");
    let rows: Vec<String> = (0..2_500).map(|n| row(n, 8)).chain([row(9_999, 6)]).collect();
    let insert = format!("INSERT INTO sawmill_default_finished (id, reader, at) VALUES {}", rows.join(","));
    other.query_drop(insert).await.unwrap();
    log.append(&topic, NOW, vec![record(0, "a")]).await.unwrap();
    let upto = [vec![Position::from_number(1)]];
    assert_eq!(log.trim(&topic, &upto, NOW + Duration::from_secs(1)).await.unwrap(), [1]);
    let left = async {
        let count = "SELECT COUNT(*) FROM sawmill_default_finished";
        while other.query_first::<u64, _>(count).await.unwrap() != Some(1) {
            // The sweep that opening has started may still be running, and then this starts none.
            log.trim(&topic, &upto, NOW + Duration::from_secs(1)).await.unwrap();
            Env::system().sleep(Duration::from_millis(20)).await;
        }
    };
    soon("the old rows go, and the young one stays", left).await;
}
