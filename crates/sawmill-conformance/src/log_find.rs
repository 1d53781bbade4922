//! Checks of a log: finding a message by its id, and positions by time.

use std::time::Duration;

use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Log, ReadRequest, Record};
use sawmill::{Message, Timestamp};

use crate::Place;
use crate::sample::{fresh_id, message, now, record, record_due, records, seconds_after, texts};

/// A message is found with its shard and content, and with the position before it. A missing message is not
/// found, nor is one of another topic.
pub async fn a_message_is_found_by_its_id(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 3).await;
    let other = place.topic(&log, "other", 3).await;
    let batch = records(2, "m", 0..5);
    log.append(&topic, now(), batch.clone()).await.expect("messages are appended");
    log.append(&other, now(), vec![record(0, "elsewhere")]).await.expect("messages are appended");
    let found =
        log.find(&topic, batch[3].message.id).await.expect("the log can search").expect("it is there");
    assert_eq!((found.shard, &found.message), (2, &batch[3].message));
    let before = found.before.expect("it is readable");
    let wants = [ReadRequest { shard: 2, after: before, limit: 10 }];
    let blocks = log.read(&topic, &wants).await.expect("the log can be read");
    assert_eq!(texts(&blocks[0].messages), ["m3", "m4"]);
    assert!(log.find(&topic, fresh_id()).await.expect("the log can search").is_none());
    assert!(log.find(&other, batch[3].message.id).await.expect("the log can search").is_none());
}

/// A message that is not due is found without a position; after promotion it has one.
pub async fn what_is_kept_aside_is_found(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let due = seconds_after(now(), 600);
    let aside = record_due(1, "aside", due);
    log.append(&topic, now(), vec![record(1, "ready"), aside.clone()]).await.expect("messages are appended");
    let found = log.find(&topic, aside.message.id).await.expect("the log can search").expect("it is there");
    assert_eq!((found.shard, &found.message, found.before), (1, &aside.message, None));
    log.promote(&topic, due, 10).await.expect("what is due is promoted");
    let found = log.find(&topic, aside.message.id).await.expect("the log can search").expect("it is there");
    assert!(found.before.is_some(), "it is readable now");
}

/// Returns the payloads of each shard after the positions of a time.
async fn after(log: &dyn Log, topic: &Topic, since: Timestamp) -> Vec<Vec<String>> {
    let positions = log.positions(topic, since).await.expect("the log can search");
    assert_eq!(positions.len(), usize::from(topic.shards), "one position for each shard");
    let wants: Vec<ReadRequest> =
        (0..).zip(positions).map(|(shard, after)| ReadRequest { shard, after, limit: 100 }).collect();
    let blocks = log.read(topic, &wants).await.expect("the log can be read");
    blocks.iter().map(|block| texts(&block.messages)).collect()
}

/// After the positions of a time lies everything created then or later, shard by shard.
pub async fn positions_divide_a_shard_by_time(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 3).await;
    let base = now();
    let at = |n: u64| base - Duration::from_secs(1000 - 100 * n);
    let aged = |shard, n: u64| Record::once(shard, Message { created: at(n), ..message(format!("m{n}")) });
    let batch = vec![aged(0, 0), aged(1, 1), aged(0, 2), aged(1, 3), aged(0, 4)];
    log.append(&topic, base, batch).await.expect("messages are appended");
    for (n, expected) in
        [(0, [vec!["m0", "m2", "m4"], vec!["m1", "m3"]]), (2, [vec!["m2", "m4"], vec!["m3"]])]
    {
        let found = after(&*log, &topic, at(n)).await;
        for (shard, expected) in expected.iter().enumerate() {
            let expected: Vec<String> = expected.iter().map(|m| (*m).to_owned()).collect();
            assert!(found[shard].ends_with(&expected), "an engine may begin earlier, not later: {found:?}");
        }
        assert!(found[2].is_empty());
    }
    assert_eq!(after(&*log, &topic, Timestamp::default()).await[0].len(), 3, "the beginning of time has all");
}

/// The positions of a future time are the ends of the shards: later appends lie after them.
pub async fn positions_of_the_far_future_are_the_ends(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    log.append(&topic, now(), records(0, "old", 0..4)).await.expect("messages are appended");
    assert!(after(&*log, &topic, Timestamp::LATEST).await.iter().all(Vec::is_empty));
    let ends = log.positions(&topic, Timestamp::LATEST).await.expect("the log can search");
    log.append(&topic, now(), vec![record(0, "new"), record(1, "newer")])
        .await
        .expect("messages are appended");
    let wants: Vec<ReadRequest> =
        (0..).zip(ends).map(|(shard, after)| ReadRequest { shard, after, limit: 100 }).collect();
    let blocks = log.read(&topic, &wants).await.expect("the log can be read");
    assert_eq!(blocks.iter().map(|block| texts(&block.messages)).collect::<Vec<_>>(), [["new"], ["newer"]]);
}
