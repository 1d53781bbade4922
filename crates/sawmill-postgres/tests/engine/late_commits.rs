//! Messages that commit late are not lost, and open transactions delay nobody.

use std::time::Duration;

use crate::support::{ids, namespace, open, plain_client, read, records, server_for, soon, topic};
use sawmill_engine::runtime::{Clock, SystemClock};
use sawmill_engine::storage::{Log, Position};

/// Returns a statement that pushes within a user's transaction, like the library's own append.
fn push(namespace: &str, uid: &str, id: u128) -> String {
    let number = uid.trim_start_matches('t');
    format!(
        "INSERT INTO \"sawmill_{namespace}\".message_{number}_0
             (xid, n, shard, id, created_ms, again, payload)
         SELECT pg_current_xact_id()::text::int8 + shift, 1, 0, '{id:032x}', 0, false, 'late'
         FROM \"sawmill_{namespace}\".meta"
    )
}

/// A push that commits after later pushes is delivered exactly once and soon after its commit. Meanwhile it
/// delays nothing.
#[tokio::test]
async fn a_push_that_commits_late_is_delivered_once() {
    let Some(url) = server_for("a_push_that_commits_late_is_delivered_once") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let topic = topic(&log, "orders", 1).await;
    let (slow, slower) = (plain_client(&url).await, plain_client(&url).await);
    for (client, id) in [(&slow, 1001), (&slower, 1002)] {
        client.batch_execute("BEGIN").await.unwrap();
        client.batch_execute(&push(namespace.as_str(), &topic.uid, id)).await.unwrap();
    }
    let (mut at, mut seen) = (Position::default(), Vec::new());
    for id in 0..5 {
        log.append(&topic, crate::support::NOW, records(0, [id])).await.unwrap();
        let block = read(&log, &topic, 0, &at, 100).await;
        assert_eq!(ids(&block), [id], "read at once, past those that have not committed");
        seen.push(block.clone());
        at = block.end;
    }
    for (client, id) in [(&slower, 1002), (&slow, 1001)] {
        client.batch_execute("COMMIT").await.unwrap();
        let block = read(&log, &topic, 0, &at, 100).await;
        assert_eq!(ids(&block), [id], "delivered as soon as it has committed");
        seen.push(block.clone());
        at = block.end;
        assert!(read(&log, &topic, 0, &at, 100).await.messages.is_empty(), "and not again");
    }
    for block in &seen {
        let again = log.reread(&topic, 0, &block.span).await.unwrap();
        assert_eq!(again, block.messages, "a block is the same, whatever has committed since");
    }
    // A new reader gets each message once, in any order.
    let mut all = ids(&read(&log, &topic, 0, &Position::default(), 100).await);
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4, 1001, 1002]);
}

/// A push that was rolled back is never visible.
#[tokio::test]
async fn a_push_that_is_rolled_back_is_not_delivered() {
    let Some(url) = server_for("a_push_that_is_rolled_back_is_not_delivered") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let topic = topic(&log, "orders", 1).await;
    let other = plain_client(&url).await;
    other.batch_execute("BEGIN").await.unwrap();
    other.batch_execute(&push(namespace.as_str(), &topic.uid, 7)).await.unwrap();
    log.append(&topic, crate::support::NOW, records(0, [1])).await.unwrap();
    let block = read(&log, &topic, 0, &Position::default(), 10).await;
    other.batch_execute("ROLLBACK").await.unwrap();
    log.append(&topic, crate::support::NOW, records(0, [2])).await.unwrap();
    assert_eq!(ids(&read(&log, &topic, 0, &block.end, 10).await), [2]);
}

/// Another client's open write transaction delays no message, neither in this database nor in another one of
/// the same server. It stays open for some seconds, or for `SAWMILL_TEST_STRANGER_SECONDS`.
#[tokio::test]
async fn a_strangers_transaction_delays_nothing() {
    let Some(url) = server_for("a_strangers_transaction_delays_nothing") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let topic = topic(&log, "orders", 1).await;
    let here = plain_client(&url).await;
    let elsewhere = plain_client(&format!("{}/template1", url.rsplit_once('/').unwrap().0)).await;
    let wanted = std::env::var("SAWMILL_TEST_STRANGER_SECONDS").ok().and_then(|text| text.parse().ok());
    let long = Duration::from_secs(wanted.unwrap_or(5));
    for client in [&here, &elsewhere] {
        client
            .batch_execute("BEGIN; CREATE TEMP TABLE mine (a int); INSERT INTO mine VALUES (1)")
            .await
            .unwrap();
        client.batch_execute("SELECT pg_current_xact_id()").await.unwrap();
    }
    let mut at = Position::default();
    let started = SystemClock.now();
    let mut id = 0;
    // A busy machine takes fewer messages in this time and continues.
    while SystemClock.now().since(started) < long || id <= 10 {
        log.append(&topic, crate::support::NOW, records(0, [id])).await.unwrap();
        let block = read(&log, &topic, 0, &at, 10).await;
        assert_eq!(ids(&block), [id], "read at once");
        at = block.end;
        id += 1;
    }
    assert!(at.as_bytes().len() < 100, "the position does not grow: {at:?}");
    for client in [&here, &elsewhere] {
        client.batch_execute("ROLLBACK").await.unwrap();
    }
}

/// The cost of a block depends only on its contents: the last block of a large window is as fast as the
/// first, even while an old transaction is open.
#[tokio::test]
async fn a_large_window_is_read_block_by_block() {
    let Some(url) = server_for("a_large_window_is_read_block_by_block") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let topic = topic(&log, "orders", 2).await;
    let pin = plain_client(&url).await;
    pin.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    for batch in 0..20u128 {
        let both =
            records(0, batch * 1000..batch * 1000 + 1000).into_iter().chain(records(1, [batch])).collect();
        log.append(&topic, crate::support::NOW, both).await.unwrap();
    }
    let mut at = Position::default();
    let mut seen = Vec::new();
    soon("reading the window", async {
        loop {
            let block = read(&log, &topic, 0, &at, 700).await;
            seen.extend(ids(&block));
            at = block.end;
            if !block.more {
                break;
            }
        }
    })
    .await;
    assert!(seen.iter().copied().eq(0..20_000), "all, in order, once: {} came", seen.len());
    pin.batch_execute("ROLLBACK").await.unwrap();
}

/// After a restore on another server with other transaction ids, old messages are read as before and new ones
/// come after them.
#[tokio::test]
async fn numbers_from_another_server_are_shifted_past() {
    let Some(url) = server_for("numbers_from_another_server_are_shifted_past") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let topic = topic(&log, "orders", 1).await;
    log.append(&topic, crate::support::NOW, records(0, [1, 2])).await.unwrap();
    drop(log);
    // Simulates a restored dump: ids that this server has not reached, and the identifier of another server.
    let (schema, number) =
        (format!("\"sawmill_{namespace}\"", namespace = namespace.as_str()), &topic.uid[1..]);
    let other = plain_client(&url).await;
    other
        .batch_execute(&format!(
            "UPDATE {schema}.message_{number}_0 SET xid = xid + 1000000000; UPDATE {schema}.meta SET server = 'other'"
        ))
        .await
        .unwrap();
    let log = open(&url, &namespace).await;
    let old = read(&log, &topic, 0, &Position::default(), 10).await;
    assert_eq!(ids(&old), [1, 2]);
    log.append(&topic, crate::support::NOW, records(0, [3])).await.unwrap();
    assert_eq!(ids(&read(&log, &topic, 0, &old.end, 10).await), [3]);
    assert_eq!(ids(&read(&log, &topic, 0, &Position::default(), 10).await), [1, 2, 3]);
}

/// The same if all old messages had been read and dropped: positions still refer to their ids, and new
/// messages come after them.
#[tokio::test]
async fn numbers_of_what_was_dropped_are_shifted_past() {
    let Some(url) = server_for("numbers_of_what_was_dropped_are_shifted_past") else { return };
    // With and without knowing which server the tables come from.
    for server in ["other", ""] {
        let namespace = namespace();
        let log = open(&url, &namespace).await;
        let topic = topic(&log, "orders", 2).await;
        let schema = format!("\"sawmill_{}\"", namespace.as_str());
        let other = plain_client(&url).await;
        // Ids higher than this server will reach during the test.
        other.batch_execute(&format!("UPDATE {schema}.meta SET shift = 1000000000")).await.unwrap();
        log.append(&topic, crate::support::NOW, records(0, [1, 2])).await.unwrap();
        let at = read(&log, &topic, 0, &Position::default(), 10).await.end;
        let later = crate::support::NOW + Duration::from_secs(1);
        assert_eq!(log.trim(&topic, &[vec![at.clone()]], later).await.unwrap(), [2]);
        drop(log);
        let restored = format!("UPDATE {schema}.meta SET shift = 0, server = '{server}'");
        other.batch_execute(&restored).await.unwrap();
        let log = open(&url, &namespace).await;
        log.append(&topic, crate::support::NOW, records(0, [3])).await.unwrap();
        assert_eq!(ids(&read(&log, &topic, 0, &at, 10).await), [3], "from {server:?}");
        assert_eq!(ids(&read(&log, &topic, 0, &Position::default(), 10).await), [3]);
    }
}
