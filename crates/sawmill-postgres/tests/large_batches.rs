//! Large batches go into the log in another way than small ones: what comes out is the same.

mod support;

use std::time::Duration;

use sawmill::Message;
use sawmill::clock::{Clock, SystemClock, Timestamp};
use sawmill::log::{Log, Position, Record};
use support::{NOW, ids, message, namespace, open, read, records, server_for, soon, stranger, topic};

/// Messages of all kinds: with and without a key, headers, a due time that has passed; empty, small and large.
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

/// Who stops waiting in the middle leaves nothing behind: no half of the batch, and no open transaction.
#[tokio::test]
async fn a_large_batch_that_is_given_up_leaves_nothing() {
    let Some(url) = server_for("a_large_batch_that_is_given_up_leaves_nothing") else { return };
    let namespace = namespace();
    let log = open(&url, &namespace).await;
    let topic = topic(&log, "orders", 1).await;
    let table = format!("\"sawmill_{}\".message_{}_0", namespace.as_str(), topic.uid.trim_start_matches('t'));
    let stranger = stranger(&url).await;
    stranger.batch_execute(&format!("BEGIN; LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE")).await.unwrap();
    let waits = async {
        let sql = "SELECT count(*) FROM pg_locks WHERE relation = $1::text::regclass AND NOT granted";
        while stranger.query_one(sql, &[&table]).await.unwrap().get::<_, i64>(0) == 0 {
            SystemClock.sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        done = log.append(&topic, NOW, records(0, 0..1_000)) => panic!("the table is locked: {done:?}"),
        () = soon("the batch waits for the table", waits) => {}
    }
    stranger.batch_execute("COMMIT").await.unwrap();
    soon("the next batch", log.append(&topic, NOW, records(0, 5_000..5_600))).await.unwrap();
    let found = ids(&read(&log, &topic, 0, &Position::default(), 10_000).await);
    assert_eq!(found, (5_000..5_600).collect::<Vec<u128>>());
}
