//! Checks of a log: appended messages keep their order and their shard.

use std::sync::Arc;

use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Log, Record};

use crate::Place;
use crate::reader::{Reader, assert_says};
use crate::sample::{now, numbered, record, record_due, records, seconds_after, text};

async fn append(log: &Arc<dyn Log>, topic: &Topic, batch: Vec<Record>) {
    log.append(topic, now(), batch).await.expect("a batch is appended");
}

/// Within a shard, messages of one call are readable in the order given.
pub async fn messages_of_one_call_keep_their_order(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    append(&log, &topic, records(0, "m", 0..500)).await;
    assert_says(&place, &log, &topic, 0, &numbered("m", 0..500)).await;
}

/// Within a shard, messages of a call come after everything acknowledged before the call.
pub async fn calls_one_after_another_keep_their_order(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    for call in 0..30 {
        append(&log, &topic, records(0, "m", call * 3..call * 3 + 3)).await;
    }
    assert_says(&place, &log, &topic, 0, &numbered("m", 0..90)).await;
}

/// The same, when every call goes through another handle than the one before.
pub async fn calls_through_several_handles_keep_their_order(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let handles = [log.clone(), place.log().await, place.log().await];
    for call in 0..60 {
        append(&handles[call % 3], &topic, records(0, "m", call..call + 1)).await;
    }
    assert_says(&place, &log, &topic, 0, &numbered("m", 0..60)).await;
}

/// Each message goes to its own shard, and to no other.
pub async fn each_message_goes_to_its_shard(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 4).await;
    // Shard 2 stays empty.
    let batch = (0..30).map(|i| record([0, 1, 3][i % 3], format!("m{i}"))).collect();
    append(&log, &topic, batch).await;
    for (shard, first) in [(0, 0), (1, 1), (3, 2)] {
        let expected: Vec<String> = (first..30).step_by(3).map(|i| format!("m{i}")).collect();
        assert_says(&place, &log, &topic, shard, &expected).await;
    }
    assert_says::<&str>(&place, &log, &topic, 2, &[]).await;
}

/// Messages that were due long ago do not jump the queue: they are read in the order of appending.
pub async fn past_due_times_do_not_change_the_order(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let now = now();
    let ago = |seconds| now - std::time::Duration::from_secs(seconds);
    append(&log, &topic, vec![record(0, "a"), record_due(0, "b", ago(10)), record_due(0, "c", ago(500))])
        .await;
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.until(3, 10).await;
    append(&log, &topic, vec![record_due(0, "d", ago(1000)), record(0, "e"), record_due(0, "f", ago(20))])
        .await;
    reader.until(6, 10).await;
    let seen: Vec<String> = reader.seen.iter().map(text).collect();
    assert_eq!(seen, ["a", "b", "c", "d", "e", "f"]);
}

/// A message that is due at exactly `now` is due.
pub async fn due_now_is_due(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    // The caller chooses the time: the engine uses `now`, not its own clock.
    for now in [now(), seconds_after(now(), 300)] {
        log.append(&topic, now, vec![record_due(0, "now", now)]).await.expect("a message is appended");
    }
    assert_says(&place, &log, &topic, 0, &["now", "now"]).await;
}

/// An empty batch is allowed and changes nothing.
pub async fn an_empty_batch_changes_nothing(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    append(&log, &topic, Vec::new()).await;
    append(&log, &topic, records(0, "m", 0..1)).await;
    append(&log, &topic, Vec::new()).await;
    assert_says(&place, &log, &topic, 0, &["m0"]).await;
}

/// A batch may be large: many messages over all shards in one call.
pub async fn a_large_batch_is_appended_whole(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 8).await;
    let batch = (0..5000).map(|i| record((i % 8) as u16, format!("m{i}"))).collect();
    append(&log, &topic, batch).await;
    for shard in 0..8u16 {
        let mut reader = Reader::new(&place, &log, &topic, shard);
        reader.until(625, 200).await;
        let expected: Vec<String> = (usize::from(shard)..5000).step_by(8).map(|i| format!("m{i}")).collect();
        assert!(reader.seen.iter().map(text).eq(expected), "shard {shard} has its messages in order");
        reader.assert_at_end().await;
    }
}
