//! Checks of a log: the backlog after a position.

use std::sync::Arc;
use std::time::Duration;

use sawmill::Message;
use sawmill::engine::model::Topic;
use sawmill::engine::storage::{Backlog, Log, Position, Record};

use crate::Place;
use crate::reader::Reader;
use crate::sample::{message, now, record, record_due, records, seconds_after};

/// Asserts that the backlog soon has this value. Acknowledged messages are readable and counted soon, not at
/// once.
async fn assert_backlog(
    place: &Place,
    log: &Arc<dyn Log>,
    topic: &Topic,
    after: &[(u16, Position)],
    expected: Backlog,
) {
    let mut last = Backlog::default();
    let counting = async {
        loop {
            last = log.backlog(topic, after).await.expect("the backlog of an existing topic is counted");
            if last == expected {
                break;
            }
            place.env().sleep(Duration::from_millis(10)).await;
        }
    };
    if place.env().within(place.patience(), counting).await.is_none() {
        assert_eq!(last, expected, "the backlog after {after:?}");
    }
}

/// The messages after each position are counted, in the order of the positions.
pub async fn what_lies_after_each_position_is_counted(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 3).await;
    let beginning = Position::default;
    let nothing = Backlog { ready: vec![0, 0], aside: 0, oldest: None };
    assert_backlog(&place, &log, &topic, &[(0, beginning()), (1, beginning())], nothing).await;

    let created = now();
    let mut batch: Vec<Record> = records(0, "a", 0..5).into_iter().chain(records(2, "c", 0..9)).collect();
    batch.iter_mut().for_each(|record| record.message.created = created);
    log.append(&topic, now(), batch).await.expect("messages are appended");
    let mut reader = Reader::new(&place, &log, &topic, 2);
    reader.until(4, 4).await;
    let middle = reader.position.clone();
    reader.until(9, 100).await;
    let end = reader.position.clone();

    let after = [(2, middle), (0, beginning()), (1, beginning()), (2, end.clone()), (2, beginning())];
    for handle in [log.clone(), place.log().await] {
        let expected = Backlog { ready: vec![5, 5, 0, 0, 9], aside: 0, oldest: Some(created) };
        assert_backlog(&place, &handle, &topic, &after, expected).await;
    }
    let nothing = Backlog { ready: vec![0], aside: 0, oldest: None };
    assert_backlog(&place, &log, &topic, &[(2, end)], nothing).await;
    assert_backlog(&place, &log, &topic, &[], Backlog::default()).await;
}

/// Messages kept aside are counted for the whole topic, separately from ready ones, until they are promoted.
pub async fn what_is_kept_aside_is_counted_apart(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let (created, due) = (now(), seconds_after(now(), 600));
    let mut batch: Vec<Record> = vec![record(0, "ready")];
    batch.extend((0..4).map(|i| record_due(1, format!("aside{i}"), seconds_after(due, i))));
    batch.iter_mut().for_each(|record| record.message.created = created);
    log.append(&topic, now(), batch).await.expect("messages are appended");
    let both = [(0, Position::default()), (1, Position::default())];
    let expected = |ready: [u64; 2], aside| Backlog { ready: ready.to_vec(), aside, oldest: Some(created) };
    assert_backlog(&place, &log, &topic, &both, expected([1, 0], 4)).await;
    let only_aside = Backlog { ready: vec![0], aside: 4, oldest: None };
    assert_backlog(&place, &log, &topic, &both[1..], only_aside).await;

    assert_eq!(log.promote(&topic, due, 10).await.expect("what is due is promoted").moved, 1);
    assert_backlog(&place, &log, &topic, &both, expected([1, 1], 3)).await;
    while log.promote(&topic, seconds_after(due, 9), 10).await.expect("what is due is promoted").moved > 0 {}
    assert_backlog(&place, &log, &topic, &both, expected([1, 4], 0)).await;
}

/// The oldest is the creation time of the oldest message after the positions, over all shards in the request.
pub async fn the_oldest_message_is_dated(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 3).await;
    let base = now();
    let aged = |shard, seconds| {
        Record::once(shard, Message { created: base - Duration::from_secs(seconds), ..message("m") })
    };
    let batch = vec![aged(0, 50), aged(0, 40), aged(1, 45), aged(1, 10), aged(2, 99)];
    log.append(&topic, base, batch).await.expect("messages are appended");
    let mut ends = Vec::new();
    for (shard, count) in [(0, 1), (1, 1), (1, 2)] {
        let mut reader = Reader::new(&place, &log, &topic, shard);
        reader.until(count, count).await;
        ends.push(reader.position);
    }
    let beginning = Position::default;
    for (after, ready, oldest) in [
        (vec![(0, beginning()), (1, beginning())], vec![2, 2], Some(50)),
        (vec![(0, ends[0].clone()), (1, beginning())], vec![1, 2], Some(45)),
        (vec![(0, ends[0].clone()), (1, ends[1].clone())], vec![1, 1], Some(40)),
        (vec![(1, ends[1].clone())], vec![1], Some(10)),
        (vec![(1, ends[2].clone())], vec![0], None),
        (vec![(1, ends[2].clone()), (2, beginning())], vec![0, 1], Some(99)),
    ] {
        let oldest = oldest.map(|seconds| base - Duration::from_secs(seconds));
        assert_backlog(&place, &log, &topic, &after, Backlog { ready, aside: 0, oldest }).await;
    }
}
