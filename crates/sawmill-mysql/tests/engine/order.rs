//! Tests that the order of numbers is the order of commits: no message appears behind a reader's position.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::{Database, NOW, database_for, record, soon, topic, waits_for_lock};
use futures_util::future::join_all;
use mysql_async::prelude::Queryable;
use sawmill_engine::model::Topic;
use sawmill_engine::storage::{Log, Position, ReadRequest};

const PUSHERS: usize = 16;
const EACH: usize = 120;
const SHARDS: u16 = 3;

async fn handles(database: &Database, count: usize) -> Vec<Arc<dyn Log>> {
    let open = (0..count).map(|_| async { database.open("default").await.unwrap().log.unwrap() });
    join_all(open).await
}

/// Follows a shard until all pushed messages were read. Asserts that each pusher's messages come in order and
/// that no number is missing. Returns the number of messages read.
async fn follow(log: Arc<dyn Log>, topic: Topic, shard: u16, all_pushed: &AtomicBool) -> usize {
    let (mut after, mut next, mut read) = (Position::default(), HashMap::<String, usize>::new(), 0);
    loop {
        // Checked before the read, so nothing comes after the end that it finds.
        let is_last = all_pushed.load(Ordering::SeqCst);
        let want = ReadRequest { shard, after: after.clone(), limit: 7 };
        let block = log.read(&topic, &[want]).await.unwrap().remove(0);
        let count = block.messages.len();
        assert_eq!(
            block.end.number().unwrap(),
            after.number().unwrap() + count as u64,
            "numbers follow one another"
        );
        for message in &block.messages {
            let text = String::from_utf8(message.payload.to_vec()).unwrap();
            let (pusher, number) = text.split_once(' ').unwrap();
            let number: usize = number.parse().unwrap();
            let next = next.entry(pusher.to_owned()).or_default();
            assert!(number >= *next, "{pusher} pushed {number} before {next}, and it came later");
            *next = number + 1;
        }
        read += count;
        after = block.end;
        if is_last && count == 0 && !block.more {
            return read;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_pushers_at_once_leave_no_gap_and_no_reader_skips_one() {
    let Some(database) = database_for("sixteen_pushers_at_once").await else { return };
    let handles = handles(&database, 4).await;
    let topic = topic(&*handles[0], "orders", SHARDS).await;
    let all_pushed = AtomicBool::new(false);
    let pushing = (0..PUSHERS).map(|pusher| {
        let (log, topic) = (handles[pusher % handles.len()].clone(), topic.clone());
        async move {
            let mut number = 0;
            while number < EACH {
                // Batches of different sizes, each over several shards and beginning with a different one.
                let size = (1 + (pusher + number) % 5).min(EACH - number);
                let shard = |n: usize| ((pusher + n * 7) % usize::from(SHARDS)) as u16;
                let batch = (number..number + size).map(|n| record(shard(n), format!("p{pusher} {n}")));
                log.append(&topic, NOW, batch.collect()).await.unwrap();
                number += size;
            }
        }
    });
    let pushing = async {
        join_all(pushing).await;
        all_pushed.store(true, Ordering::SeqCst);
    };
    let following = (0..SHARDS)
        .map(|shard| follow(handles[usize::from(shard)].clone(), topic.clone(), shard, &all_pushed));
    let all = futures_util::future::join(pushing, join_all(following));
    let (_, read) = soon("everything is pushed and read", all).await;
    assert_eq!(read.iter().sum::<usize>(), PUSHERS * EACH, "some are lost, or came twice");
}

/// A push that commits late delays later pushes to its shard, but to no other shard, and is read before them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_is_not_skipped() {
    let Some(database) = database_for("a_late_commit_is_not_skipped").await else { return };
    let log = handles(&database, 1).await.remove(0);
    let topic = topic(&*log, "orders", 2).await;
    let mut late = database.plain_connection().await;
    late.query_drop("START TRANSACTION").await.unwrap();
    let held = "SELECT last FROM sawmill_default_shard WHERE topic = 1 AND number = 0 FOR UPDATE";
    assert_eq!(late.query_first::<u64, _>(held).await.unwrap(), Some(0));
    late.query_drop(
        "INSERT INTO sawmill_default_message (topic, shard, number, id, created_ms, repeatable, size, payload)
         VALUES (1, 0, 1, REPEAT('x', 16), 1, 0, 4, 'late')",
    )
    .await
    .unwrap();
    late.query_drop("UPDATE sawmill_default_shard SET last = 1, kept = 1 WHERE topic = 1 AND number = 0")
        .await
        .unwrap();

    let waiting = {
        let (log, topic) = (log.clone(), topic.clone());
        async move { log.append(&topic, NOW, vec![record(0, "after")]).await.unwrap() }
    };
    let other = async {
        log.append(&topic, NOW, vec![record(1, "other shard")]).await.unwrap();
        let block = log
            .read(&topic, &[ReadRequest { shard: 0, after: Position::default(), limit: 9 }])
            .await
            .unwrap();
        assert!(block[0].messages.is_empty(), "nothing of shard 0 is committed");
        let counters = format!("`{}`.`sawmill_default_shard`", database.name);
        waits_for_lock(&mut database.plain_connection().await, &counters).await;
        late.query_drop("COMMIT").await.unwrap();
    };
    soon("both pushes", futures_util::future::join(waiting, other)).await;
    let block =
        log.read(&topic, &[ReadRequest { shard: 0, after: Position::default(), limit: 9 }]).await.unwrap();
    let came: Vec<_> = block[0].messages.iter().map(|message| &message.payload[..]).collect();
    assert_eq!(came, [&b"late"[..], b"after"]);
}

/// Another client's open transaction with a snapshot delays nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strangers_open_transaction_delays_nothing() {
    let Some(database) = database_for("a_strangers_open_transaction").await else { return };
    let log = handles(&database, 1).await.remove(0);
    let topic = topic(&*log, "orders", 1).await;
    let mut plain_connection = database.plain_connection().await;
    plain_connection.query_drop("CREATE TABLE theirs (a INT)").await.unwrap();
    plain_connection.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT").await.unwrap();
    plain_connection.query_drop("INSERT INTO theirs VALUES (1)").await.unwrap();
    plain_connection.query_drop("SELECT COUNT(*) FROM sawmill_default_message").await.unwrap();
    let mut after = Position::default();
    for n in 0..50 {
        log.append(&topic, NOW, vec![record(0, format!("p {n}"))]).await.unwrap();
        let want = ReadRequest { shard: 0, after: after.clone(), limit: 9 };
        let block = log.read(&topic, &[want]).await.unwrap().remove(0);
        assert_eq!(block.messages.len(), 1, "it is read at once");
        after = block.end;
    }
    plain_connection.query_drop("ROLLBACK").await.unwrap();
}
