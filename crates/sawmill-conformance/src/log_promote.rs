//! Checks of a log: the order and the number in which messages are promoted.

use std::collections::HashMap;
use std::sync::Arc;

use sawmill::Timestamp;
use sawmill::engine::model::Topic;
use sawmill::engine::storage::Log;

use crate::Place;
use crate::place::together;
use crate::reader::{Reader, assert_says};
use crate::sample::{now, numbered, record_due, seconds_after, text, texts};

/// Promotes until nothing is due, at most `limit` at a time, and returns the total.
async fn promote_all(log: &Arc<dyn Log>, topic: &Topic, now: Timestamp, limit: usize) -> usize {
    let mut moved = 0;
    loop {
        let promoted = log.promote(topic, now, limit).await.expect("promoting is always possible");
        assert!(promoted.moved <= limit, "{} were moved, and {limit} was the limit", promoted.moved);
        moved += promoted.moved;
        if promoted.next_due.is_none_or(|due| due > now) {
            return moved;
        }
    }
}

/// Messages are promoted in ascending order of due time, regardless of the order of the pushes.
pub async fn promotion_goes_by_due_time(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let now = now();
    let due = |n: usize| seconds_after(now, 600 + n as u64);
    // 7 and 30 have no common divisor, so this gives each number once, out of order.
    for i in 0..30 {
        let n = i * 7 % 30;
        let batch = vec![record_due(0, format!("m{n}"), due(n))];
        log.append(&topic, now, batch).await.expect("a message is kept aside");
    }
    assert_eq!(promote_all(&log, &topic, due(30), 100).await, 30);
    assert_says(&place, &log, &topic, 0, &numbered("m", 0..30)).await;
}

/// Messages with the same due time are all kept, and each is promoted.
pub async fn equal_due_times_do_not_collide(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let due = seconds_after(now(), 600);
    for call in 0..5 {
        let batch = (0..10).map(|i| record_due(i % 2, format!("m{call}-{i}"), due)).collect();
        log.append(&topic, now(), batch).await.expect("messages are kept aside");
    }
    assert_eq!(promote_all(&log, &topic, due, 7).await, 50);
    for shard in 0..2 {
        let mut reader = Reader::new(&place, &log, &topic, shard);
        reader.until(25, 100).await;
        reader.assert_at_end().await;
        let mut came = texts(&reader.seen);
        came.sort();
        came.dedup();
        assert_eq!(came.len(), 25, "each message comes once");
    }
}

/// Messages with the same due time are promoted in the order of the pushes.
pub async fn equal_due_times_keep_the_order_of_pushing(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let due = seconds_after(now(), 600);
    for call in 0..10 {
        let batch = (call * 3..call * 3 + 3).map(|n| record_due(0, format!("m{n}"), due)).collect();
        log.append(&topic, now(), batch).await.expect("messages are kept aside");
    }
    assert_eq!(promote_all(&log, &topic, due, 4).await, 30);
    assert_says(&place, &log, &topic, 0, &numbered("m", 0..30)).await;
}

/// A promoted message is readable in the shard to which it was pushed.
pub async fn what_is_promoted_keeps_its_shard(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 4).await;
    let now = now();
    let due = |n: usize| seconds_after(now, 600 + n as u64);
    let batch = (0..40).rev().map(|n| record_due((n % 4) as u16, format!("m{n}"), due(n))).collect();
    log.append(&topic, now, batch).await.expect("messages are kept aside");
    assert_eq!(promote_all(&log, &topic, due(40), 9).await, 40);
    for shard in 0..4 {
        let expected: Vec<String> = (usize::from(shard)..40).step_by(4).map(|n| format!("m{n}")).collect();
        assert_says(&place, &log, &topic, shard, &expected).await;
    }
}

/// A promotion respects its limit, and takes the messages that were due first, of all shards.
pub async fn the_limit_of_promotion_is_kept(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let now = now();
    let due = |n: usize| seconds_after(now, 600 + n as u64);
    let batch = (0..10).rev().map(|n| record_due((n % 2) as u16, format!("m{n}"), due(n))).collect();
    log.append(&topic, now, batch).await.expect("messages are kept aside");

    let none = log.promote(&topic, due(100), 0).await.expect("promoting nothing is possible");
    assert_eq!((none.moved, none.next_due), (0, Some(due(0))), "a limit of 0 moves nothing");
    let mut readers = [0, 1].map(|shard| Reader::new(&place, &log, &topic, shard));
    let mut moved = 0;
    while moved < 10 {
        let promoted = log.promote(&topic, due(100), 3).await.expect("what is due is promoted");
        assert!((1..=3).contains(&promoted.moved), "3 was the limit, and {} were moved", promoted.moved);
        moved += promoted.moved;
        let next_due = (moved < 10).then(|| due(moved));
        assert_eq!(promoted.next_due, next_due, "the next one is the one after the {moved} first");
        for (shard, reader) in readers.iter_mut().enumerate() {
            let expected: Vec<String> = (shard..moved).step_by(2).map(|n| format!("m{n}")).collect();
            reader.until(expected.len(), 10).await;
            reader.assert_at_end().await;
            assert_eq!(texts(&reader.seen), expected);
        }
    }
}

/// Many due messages are all promoted, if need be by several calls, each of which says when the next is due.
pub async fn many_that_are_due_are_all_promoted(place: Place) {
    const MANY: usize = 1300;
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let due = seconds_after(now(), 600);
    let batch = (0..MANY).map(|n| record_due(0, format!("m{n}"), due)).collect();
    log.append(&topic, now(), batch).await.expect("messages are kept aside");
    assert_eq!(promote_all(&log, &topic, due, 10_000).await, MANY);
    assert_says(&place, &log, &topic, 0, &numbered("m", 0..MANY)).await;
}

/// When several promote at once, each message moves once.
pub async fn promoting_at_once_moves_each_message_once(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 3).await;
    let now = now();
    let due = |n: usize| seconds_after(now, 600 + n as u64 / 10);
    let batch = (0..300).map(|n| record_due((n % 3) as u16, format!("m{n}"), due(n))).collect();
    log.append(&topic, now, batch).await.expect("messages are kept aside");
    let mut handles = vec![log.clone(), log.clone()];
    handles.extend([place.log().await, place.log().await]);
    let moved = together(handles.into_iter().map(|log| {
        let (topic, end) = (topic.clone(), due(300));
        async move { promote_all(&log, &topic, end, 7).await }
    }))
    .await;
    assert_eq!(moved.iter().sum::<usize>(), 300, "each is counted by the one who moved it: {moved:?}");

    let mut times = HashMap::new();
    for shard in 0..3 {
        let mut reader = Reader::new(&place, &log, &topic, shard);
        reader.until(100, 33).await;
        reader.assert_at_end().await;
        for message in &reader.seen {
            *times.entry(text(message)).or_insert(0) += 1;
        }
    }
    assert_eq!(times.len(), 300, "every message came");
    assert!(times.values().all(|times| *times == 1), "none came twice");
}
