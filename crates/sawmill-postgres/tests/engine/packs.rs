//! Tests of packs: a push is read back unchanged.

use std::time::Duration;

use crate::support::{
    NOW, ids, message, namespace, open, plain_client, read, records, server_for, soon, topic,
};
use sawmill::{Message, MessageId, Timestamp};
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::{Clock, SystemClock};
use sawmill_engine::storage::{Log, Position, Record};
use sawmill_postgres::Postgres;

/// Messages of all kinds: with and without a key, headers, and a past due time; empty, small and large.
fn messages(count: u128) -> Vec<Message> {
    let kind = |id: u128| {
        let plain = message(id);
        match id % 6 {
            0 => Message { key: Some(format!("key {id}").into()), ..plain },
            1 => Message { headers: [("name", "value"), ("empty", "")].into_iter().collect(), ..plain },
            2 => Message { due: Some(Timestamp::from_millis(NOW.as_millis() - 1)), ..plain },
            3 => Message { payload: Default::default(), key: Some(Default::default()), ..plain },
            4 => Message { payload: vec![0xff; 3000].into(), ..plain },
            _ => plain,
        }
    };
    (0..count).map(kind).collect()
}

#[tokio::test]
async fn a_large_batch_comes_out_as_it_went_in() {
    let Some(url) = server_for("a_large_batch_comes_out_as_it_went_in") else { return };
    let log = open(&url, &namespace()).await;
    let topic = topic(&log, "orders", 3).await;
    let messages = messages(2_000);
    let shard = |at: usize| (at * 7 % 5 % 3) as u16;
    let records = messages.iter().enumerate().map(|(at, message)| Record::once(shard(at), message.clone()));
    log.append(&topic, NOW, records.collect()).await.unwrap();
    for number in 0..3 {
        let (mut at, mut found) = (Position::default(), Vec::new());
        loop {
            let block = read(&log, &topic, number, &at, 300).await;
            if block.messages.is_empty() {
                break;
            }
            assert_eq!(log.reread(&topic, number, &block.span).await.unwrap(), block.messages);
            found.extend(block.messages);
            at = block.end;
        }
        let mut pushed = messages.iter().enumerate().filter(|(at, _)| shard(*at) == number);
        for found in &found {
            let (_, pushed) = pushed.next().expect("nothing that was not pushed");
            assert_eq!(found, pushed, "in the order of the push");
        }
        assert!(pushed.next().is_none(), "and all of it");
    }
}

#[tokio::test]
async fn a_large_batch_for_a_topic_that_is_gone_is_refused() {
    let Some(url) = server_for("a_large_batch_for_a_topic_that_is_gone_is_refused") else { return };
    let log = open(&url, &namespace()).await;
    let topic = topic(&log, "orders", 1).await;
    log.append(&topic, NOW, records(0, 0..1_000)).await.unwrap();
    assert!(log.delete_topic(&topic).await.unwrap());
    let error = log.append(&topic, NOW, records(0, 0..1_000)).await.unwrap_err();
    assert_eq!(error.to_string(), topic.missing().to_string());
}

/// A cancelled append leaves all of the batch or nothing, and no open transaction.
#[tokio::test]
async fn a_large_batch_that_is_given_up_is_there_whole_or_not() {
    let Some(url) = server_for("a_large_batch_that_is_given_up_is_there_whole_or_not") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let topic = topic(&log, "orders", 1).await;
    let table = format!("\"sawmill_{}\".message_{}_0", namespace.as_str(), topic.uid.trim_start_matches('t'));
    let plain_client = plain_client(&url).await;
    plain_client.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).await.unwrap();
    let waits = async {
        let sql = "SELECT count(*) FROM pg_locks WHERE relation = $1::text::regclass AND NOT granted";
        while plain_client.query_one(sql, &[&table]).await.unwrap().get::<_, i64>(0) == 0 {
            SystemClock.sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        done = log.append(&topic, NOW, records(0, 0..1_000)) => panic!("the table is locked: {done:?}"),
        () = soon("the batch waits for the table", waits) => {}
    }
    plain_client.batch_execute("COMMIT").await.unwrap();
    soon("the next batch", log.append(&topic, NOW, records(0, 5_000..5_600))).await.unwrap();
    let found = rest(&log, &topic, Position::default(), 10_000).await;
    let given_up = if found.len() == 600 { 0..0 } else { 0..1_000 };
    assert_eq!(found, given_up.chain(5_000..5_600).collect::<Vec<u128>>());
}

/// The ids of all messages after a position.
async fn rest(log: &Postgres, topic: &Topic, mut at: Position, limit: usize) -> Vec<u128> {
    let mut found = Vec::new();
    loop {
        let block = read(log, topic, 0, &at, limit).await;
        if block.messages.is_empty() {
            return found;
        }
        assert!(block.messages.len() <= limit);
        found.extend(ids(&block));
        at = block.end;
    }
}

/// A reader can stop at any message of a pack and continue there: after a read, from an id, and when counting
/// the rest.
#[tokio::test]
async fn every_place_within_a_pack_is_a_place() {
    let Some(url) = server_for("every_place_within_a_pack_is_a_place") else { return };
    let log = open(&url, &namespace()).await;
    let topic = topic(&log, "orders", 1).await;
    log.append(&topic, NOW, records(0, 0..20)).await.unwrap();
    log.append(&topic, NOW, records(0, 20..21)).await.unwrap();
    log.append(&topic, NOW, records(0, 21..40)).await.unwrap();
    let backlog = async |at: &Position| log.backlog(&topic, &[(0, at.clone())]).await.unwrap().ready;
    for limit in 1..45 {
        let (mut at, mut seen) = (Position::default(), 0);
        while seen < 40 {
            let block = read(&log, &topic, 0, &at, limit).await;
            let end = seen + block.messages.len() as u128;
            assert_eq!(ids(&block), (seen..end).collect::<Vec<_>>());
            assert_eq!(log.reread(&topic, 0, &block.span).await.unwrap(), block.messages);
            (at, seen) = (block.end, end);
            assert_eq!(backlog(&at).await, [40 - seen as u64], "{limit} at a time");
        }
    }
    for id in 0..40 {
        let found = log.find(&topic, MessageId::from_u128(id)).await.unwrap().unwrap();
        assert_eq!(found.message, message(id));
        let before = found.before.unwrap();
        assert_eq!(rest(&log, &topic, before.clone(), 7).await, (id..40).collect::<Vec<_>>());
        assert_eq!(backlog(&before).await, [40 - id as u64]);
    }
    assert!(log.find(&topic, MessageId::from_u128(40)).await.unwrap().is_none());
}

/// Any mix of rows with one message and rows with many is read completely.
#[tokio::test]
async fn packs_and_single_messages_take_turns() {
    let Some(url) = server_for("packs_and_single_messages_take_turns") else { return };
    let log = open(&url, &namespace()).await;
    let topic = topic(&log, "orders", 1).await;
    let mut pushed = 0;
    for batch in [300, 1, 1, 1, 600, 1, 2, 257, 1, 1] {
        log.append(&topic, NOW, records(0, pushed..pushed + batch)).await.unwrap();
        pushed += batch;
    }
    for limit in [1, 10, 256, 257, 5_000] {
        let found = rest(&log, &topic, Position::default(), limit).await;
        assert_eq!(found, (0..pushed).collect::<Vec<_>>(), "{limit} at a time");
    }
    let at = read(&log, &topic, 0, &Position::default(), 5_000).await.end;
    let dropped = log.trim(&topic, &[vec![at]], NOW + Duration::from_secs(1)).await.unwrap();
    assert_eq!(u128::from(dropped[0]), pushed);
}
