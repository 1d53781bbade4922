//! Checks of a log with idempotent appends: a message whose id exists is not added again.

use std::collections::HashMap;
use std::sync::Arc;

use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Log, Position, Record};

use crate::Place;
use crate::place::together;
use crate::reader::{Reader, assert_says};
use crate::sample::{now, numbered, record, record_due, records, seconds_after, text};

/// Opens a log that must have idempotent appends, and creates a topic.
async fn idempotent_log(place: &Place, shards: u16) -> (Arc<dyn Log>, Topic) {
    let (log, topic) = place.log_and_topic("orders", shards).await;
    let tells = log.capabilities().idempotent_append;
    assert!(tells, "a log that cannot tell what is there takes the suite `without(idempotent_append)`");
    (log, topic)
}

/// A log that skips the other checks in this file must not declare idempotent appends.
pub async fn the_log_says_that_it_cannot_tell_what_is_there(place: Place) {
    let (log, _) = place.log_and_topic("orders", 1).await;
    assert!(!log.capabilities().idempotent_append, "a log that can tell takes the whole suite");
}

/// Marks the records as possibly appended before.
fn marked_retried(batch: Vec<Record>) -> Vec<Record> {
    batch.into_iter().map(|record| Record { repeatable: true, ..record }).collect()
}

async fn append(log: &Arc<dyn Log>, topic: &Topic, batch: Vec<Record>) {
    log.append(topic, now(), marked_retried(batch)).await.expect("what is there already is no error");
}

/// An id that occurs twice in one call is added once.
pub async fn the_same_id_in_one_call_is_added_once(place: Place) {
    let (log, topic) = idempotent_log(&place, 1).await;
    let twice = record(0, "twice");
    append(&log, &topic, vec![record(0, "a"), twice.clone(), record(0, "b"), twice.clone(), twice]).await;
    assert_says(&place, &log, &topic, 0, &["a", "twice", "b"]).await;
}

/// An append that is repeated, in full or in part, adds only new messages and leaves the existing ones in
/// place.
pub async fn a_repeated_append_adds_only_what_is_new(place: Place) {
    let (log, topic) = idempotent_log(&place, 1).await;
    let batch = records(0, "m", 0..6);
    append(&log, &topic, batch[..4].to_vec()).await;
    append(&place.log().await, &topic, batch[..4].to_vec()).await;
    append(&log, &topic, batch[2..].to_vec()).await;
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.until(6, 2).await;
    let mut changed = batch[0].clone();
    changed.message.payload = "changed".into();
    append(&log, &topic, vec![changed]).await;
    reader.assert_at_end().await;
    assert_says(&place, &place.log().await, &topic, 0, &numbered("m", 0..6)).await;
}

/// An id that is in one shard is not added to another shard of the same topic.
pub async fn the_same_id_in_another_shard_is_not_added(place: Place) {
    let (log, topic) = idempotent_log(&place, 3).await;
    let once = record(1, "once");
    append(&log, &topic, vec![once.clone()]).await;
    for shard in 0..3 {
        append(&log, &topic, vec![Record { shard, ..once.clone() }]).await;
    }
    assert_says::<&str>(&place, &log, &topic, 0, &[]).await;
    assert_says(&place, &log, &topic, 1, &["once"]).await;
    assert_says::<&str>(&place, &log, &topic, 2, &[]).await;
}

/// When several append the same messages at once, each message is added once.
pub async fn the_same_ids_at_once_are_added_once(place: Place) {
    let (log, topic) = idempotent_log(&place, 2).await;
    let batch: Vec<Record> = (0..60).map(|n| record(n % 2, format!("m{n}"))).collect();
    let mut handles = vec![log.clone(), log.clone()];
    for _ in 0..6 {
        handles.push(place.log().await);
    }
    together(handles.into_iter().map(|log| {
        let (topic, batch) = (topic.clone(), batch.clone());
        async move {
            for part in batch.chunks(6) {
                append(&log, &topic, part.to_vec()).await;
            }
        }
    }))
    .await;
    let mut times: HashMap<String, usize> = HashMap::new();
    for shard in 0..2 {
        let mut reader = Reader::new(&place, &log, &topic, shard);
        reader.until(30, 100).await;
        reader.assert_at_end().await;
        for message in &reader.seen {
            *times.entry(text(message)).or_default() += 1;
        }
    }
    assert_eq!(times.len(), 60, "every message came");
}

/// A message kept aside is not added again, neither aside nor as ready; nor after its promotion.
pub async fn what_is_kept_aside_is_not_added_again(place: Place) {
    let (log, topic) = idempotent_log(&place, 1).await;
    let (now, due) = (now(), seconds_after(now(), 600));
    let aside = record_due(0, "aside", due);
    let mut ready = aside.clone();
    ready.message.due = None;
    let other_time = record_due(0, "aside", seconds_after(due, 60));
    let mut later = aside.clone();
    later.message.due = other_time.message.due;

    append(&log, &topic, vec![aside.clone(), aside.clone()]).await;
    append(&log, &topic, vec![aside.clone(), later.clone(), ready.clone()]).await;
    assert_says::<&str>(&place, &log, &topic, 0, &[]).await;
    let backlog = log.backlog(&topic, &[(0, Position::default())]).await.expect("the backlog is counted");
    assert_eq!((backlog.aside, backlog.ready), (1, vec![0]));
    let promoted = log.promote(&topic, seconds_after(due, 100), 10).await.expect("what is due is promoted");
    assert_eq!((promoted.moved, promoted.next_due), (1, None));

    for again in [&aside, &later, &ready] {
        for now in [now, due] {
            let batch = self::marked_retried(vec![again.clone()]);
            log.append(&topic, now, batch).await.expect("what is there already is no error");
        }
    }
    let promoted = log.promote(&topic, seconds_after(due, 100), 10).await.expect("nothing is promoted");
    assert_eq!((promoted.moved, promoted.next_due), (0, None));
    assert_says(&place, &log, &topic, 0, &["aside"]).await;
}

/// A ready message is not kept aside again.
pub async fn what_is_ready_is_not_kept_aside_again(place: Place) {
    let (log, topic) = idempotent_log(&place, 1).await;
    let due = seconds_after(now(), 600);
    let ready = record(0, "ready");
    let mut later = ready.clone();
    later.message.due = Some(due);
    append(&log, &topic, vec![ready]).await;
    append(&log, &topic, vec![later]).await;
    let promoted = log.promote(&topic, due, 10).await.expect("nothing is promoted");
    assert_eq!((promoted.moved, promoted.next_due), (0, None));
    assert_says(&place, &log, &topic, 0, &["ready"]).await;
}

/// The same id in another topic or lane is another message.
pub async fn the_same_id_in_another_topic_is_added(place: Place) {
    let (log, topic) = idempotent_log(&place, 1).await;
    let batch = records(0, "m", 0..3);
    for name in ["orders", "other", "orders@g.retry", "orders@g.dead"] {
        let topic = place.topic(&log, name, 1).await;
        append(&log, &topic, batch.clone()).await;
        assert_says(&place, &log, &topic, 0, &numbered("m", 0..3)).await;
    }
    assert_says(&place, &log, &topic, 0, &numbered("m", 0..3)).await;
}

/// Ids are still known after the store was closed and reopened.
pub async fn ids_are_known_after_a_reopen(place: Place) {
    let (log, topic) = idempotent_log(&place, 1).await;
    let due = seconds_after(now(), 600);
    let batch = vec![record(0, "ready"), record_due(0, "aside", due)];
    append(&log, &topic, batch.clone()).await;
    drop(log);
    let log = place.log().await;
    append(&log, &topic, batch).await;
    assert_says(&place, &log, &topic, 0, &["ready"]).await;
    assert_eq!(log.promote(&topic, due, 10).await.expect("what is due is promoted").moved, 1);
    assert_says(&place, &log, &topic, 0, &["ready", "aside"]).await;
}
