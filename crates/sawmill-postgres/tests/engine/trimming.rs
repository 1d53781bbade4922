//! Tests of trimming: a table is truncated only when nothing in it is needed, and tables are written in turn.

use std::time::Duration;

use crate::support::{NOW, ids, message, namespace, open, plain_client, read, records, server_for, topic};
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{Log, Position, Record};
use sawmill_postgres::Postgres;

const LATER: Duration = Duration::from_secs(60);

/// The end of a shard.
async fn end(log: &Postgres, topic: &Topic, shard: u16) -> Position {
    let mut at = Position::default();
    loop {
        let block = read(log, topic, shard, &at, 10_000).await;
        at = block.end;
        if !block.more {
            return at;
        }
    }
}

/// Trims all shards up to their current end. Returns the number of dropped messages.
async fn trim(log: &Postgres, topic: &Topic) -> u64 {
    let mut upto = Vec::new();
    for shard in 0..topic.shards {
        let end = end(log, topic, shard).await;
        // Like the library: everything in a shard that nobody has read is needed.
        upto.push(if end == Position::default() { Vec::new() } else { vec![end] });
    }
    log.trim(topic, &upto, NOW + LATER).await.unwrap().iter().sum()
}

#[tokio::test]
async fn what_all_are_past_goes_whole() {
    let Some(url) = server_for("what_all_are_past_goes_whole") else { return };
    let log = open(&url, &namespace()).await;
    // An empty shard does not prevent trimming.
    let topic = topic(&log, "orders", 3).await;
    for shard in [0, 2] {
        log.append(&topic, NOW, records(shard, 0..100)).await.unwrap();
    }
    let half = read(&log, &topic, 0, &Position::default(), 50).await;
    assert_eq!(log.trim(&topic, &[vec![half.end]], NOW + LATER).await.unwrap(), [0], "half of it is needed");
    assert_eq!(trim(&log, &topic).await, 200);
    assert_eq!(trim(&log, &topic).await, 0);
    let old = end(&log, &topic, 0).await;
    log.append(&topic, NOW, records(0, [7])).await.unwrap();
    assert_eq!(ids(&read(&log, &topic, 0, &old, 9).await), [7]);
    let upto = [vec![end(&log, &topic, 0).await]];
    assert_eq!(log.trim(&topic, &upto, NOW).await.unwrap(), [0], "it is too young");
}

/// The id of a repeatable message is remembered until the message is dropped.
#[tokio::test]
async fn ids_are_known_until_their_messages_go() {
    let Some(url) = server_for("ids_are_known_until_their_messages_go") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let topic = topic(&log, "orders", 1).await;
    let again = || vec![Record::repeatable(&topic, message(5))];
    let known = async || {
        let sql =
            format!("SELECT count(*) FROM \"sawmill_{}\".known_{}", namespace.as_str(), &topic.uid[1..]);
        let count: i64 = plain_client(&url).await.query_one(&sql, &[]).await.unwrap().get(0);
        count
    };
    for _ in 0..3 {
        log.append(&topic, NOW, again()).await.unwrap();
    }
    assert_eq!((ids(&read(&log, &topic, 0, &Position::default(), 9).await), known().await), (vec![5], 1));
    assert_eq!((trim(&log, &topic).await, known().await), (1, 0));
}

/// Uncommitted writes are not lost, and trimming does not wait for them.
#[tokio::test]
async fn nothing_is_trimmed_under_a_writer() {
    let Some(url) = server_for("nothing_is_trimmed_under_a_writer") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let topic = topic(&log, "orders", 1).await;
    log.append(&topic, NOW, records(0, 0..10)).await.unwrap();
    let writer = plain_client(&url).await;
    let schema = format!("\"sawmill_{}\"", namespace.as_str());
    let insert = format!(
        "BEGIN; INSERT INTO {schema}.message_{}_0 (xid, n, shard, id, created_ms, again, payload)
         SELECT pg_current_xact_id()::text::int8 + shift, 1, 0, '{:032x}', 0, false, '' FROM {schema}.meta",
        &topic.uid[1..],
        77
    );
    writer.batch_execute(&insert).await.unwrap();
    let at = end(&log, &topic, 0).await;
    assert_eq!(crate::support::soon("trimming", trim(&log, &topic)).await, 0);
    writer.batch_execute("COMMIT").await.unwrap();
    assert_eq!(ids(&read(&log, &topic, 0, &at, 9).await), [77]);
    assert_eq!(trim(&log, &topic).await, 11);
}

/// Messages that are added while a table is being checked stay, and keep the rest of the table.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_while_a_table_is_looked_over_stays() {
    let Some(url) = server_for("what_comes_while_a_table_is_looked_over_stays") else { return };
    let space = namespace();
    let log = open(&url, &space).await;
    let topic = topic(&log, "orders", 1).await;
    log.append(&topic, NOW, records(0, 0..10)).await.unwrap();
    let at = end(&log, &topic, 0).await;
    // The trim waits here: after its first check and before it locks the table.
    let (holder, watch) = (plain_client(&url).await, plain_client(&url).await);
    let known = format!("\"sawmill_{}\".known_{}", space.as_str(), &topic.uid[1..]);
    holder.batch_execute(&format!("BEGIN; LOCK TABLE {known} IN SHARE MODE")).await.unwrap();
    let meanwhile = async {
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = $1::text::regclass";
        while watch.query_one(waits, &[&known]).await.unwrap().get::<_, i64>(0) == 0 {
            Env::system().sleep(Duration::from_millis(10)).await;
        }
        log.append(&topic, NOW, records(0, [77])).await.unwrap();
        holder.batch_execute("COMMIT").await.unwrap();
    };
    let upto = [vec![at.clone()]];
    let both = futures_util::future::join(log.trim(&topic, &upto, NOW + LATER), meanwhile);
    let (dropped, ()) = crate::support::soon("trimming", both).await;
    assert_eq!(dropped.unwrap(), [0]);
    assert_eq!(ids(&read(&log, &topic, 0, &at, 9).await), [77]);
    assert_eq!(trim(&log, &topic).await, 11);
}

/// Another client's open transaction does not prevent trimming.
#[tokio::test]
async fn a_strangers_transaction_keeps_nothing() {
    let Some(url) = server_for("a_strangers_transaction_keeps_nothing") else { return };
    let log = open(&url, &namespace()).await;
    let topic = topic(&log, "orders", 2).await;
    let forgetful = plain_client(&url).await;
    forgetful.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    for shard in [0, 1] {
        log.append(&topic, NOW, records(shard, 0..100)).await.unwrap();
    }
    assert_eq!(crate::support::soon("trimming", trim(&log, &topic)).await, 200);
    forgetful.batch_execute("COMMIT").await.unwrap();
}

/// Under continuous load, tables are written in turn: messages that were read are dropped although there are
/// always unread ones.
#[tokio::test]
async fn tables_take_turns() {
    let Some(url) = server_for("tables_take_turns") else { return };
    let log = open(&url, &namespace()).await;
    let topic = topic(&log, "orders", 2).await;
    let (mut pushed, mut dropped, mut seen) = (0u128, 0, Vec::new());
    let mut at = Position::default();
    for _ in 0..12 {
        let large =
            |id| Record::once(0, sawmill::Message { payload: vec![b'x'; 1000].into(), ..message(id) });
        for _ in 0..3 {
            log.append(&topic, NOW, (pushed..pushed + 1000).map(large).collect()).await.unwrap();
            pushed += 1000;
        }
        // Half of the last batch is still unread when trimming begins.
        while seen.len() as u128 + 500 < pushed {
            let block = read(&log, &topic, 0, &at, 500).await;
            seen.extend(ids(&block));
            at = block.end;
        }
        dropped += log.trim(&topic, &[vec![at.clone()]], NOW + LATER).await.unwrap()[0];
    }
    while (seen.len() as u128) < pushed {
        let block = read(&log, &topic, 0, &at, 500).await;
        seen.extend(ids(&block));
        at = block.end;
    }
    assert!(seen.iter().copied().eq(0..pushed), "all came, in order, once: {} of {pushed}", seen.len());
    assert!(dropped >= 10_000, "only {dropped} of {pushed} went");
}
