//! Checks of a log: acknowledged messages are there after the store was closed and reopened.

use crate::Place;
use crate::reader::{Reader, assert_says};
use crate::sample::{now, numbered, record_due, records, seconds_after, texts};

/// Topics and messages are there after a reopen, in order, even without a clean shutdown.
pub async fn what_was_acknowledged_survives_a_reopen(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    log.append(&topic, now(), records(0, "a", 0..20)).await.expect("messages are appended");
    log.append(&topic, now(), records(1, "b", 0..20)).await.expect("messages are appended");
    drop(log);
    let log = place.log().await;
    assert_eq!(log.topic(&topic.name).await.expect("a topic is looked up"), Some(topic.clone()));
    assert_says(&place, &log, &topic, 0, &numbered("a", 0..20)).await;
    assert_says(&place, &log, &topic, 1, &numbered("b", 0..20)).await;
}

/// Messages kept aside are there after a reopen, and so are promoted ones.
pub async fn what_was_kept_aside_survives_a_reopen(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let due = |n: u64| seconds_after(now(), 600 * (n + 1));
    let (first, second) = (due(0), due(1));
    let batch = vec![record_due(0, "second", second), record_due(0, "first", first)];
    log.append(&topic, now(), batch).await.expect("messages are kept aside");
    assert_eq!(log.promote(&topic, first, 10).await.expect("what is due is promoted").moved, 1);
    drop(log);
    let log = place.log().await;
    assert_says(&place, &log, &topic, 0, &["first"]).await;
    let promoted = log.promote(&topic, now(), 10).await.expect("nothing is promoted");
    assert_eq!((promoted.moved, promoted.next_due), (0, Some(second)));
    assert_eq!(log.promote(&topic, second, 10).await.expect("what is due is promoted").moved, 1);
    assert_says(&place, &log, &topic, 0, &["first", "second"]).await;
}

/// Positions and spans stay valid after a reopen, and later appends come after the position.
pub async fn positions_and_spans_survive_a_reopen(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    log.append(&topic, now(), records(0, "m", 0..12)).await.expect("messages are appended");
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.until(8, 4).await;
    let blocks = reader.blocks.clone();
    drop((reader, log));

    let log = place.log().await;
    log.append(&topic, now(), records(0, "m", 12..15)).await.expect("messages are appended");
    let mut rest = Reader::new(&place, &log, &topic, 0).at(&blocks[blocks.len() - 1].end);
    rest.until(7, 5).await;
    assert_eq!(texts(&rest.seen), numbered("m", 8..15));
    rest.assert_at_end().await;
    for block in blocks {
        let again = log.reread(&topic, 0, &block.span).await.expect("a block is read again");
        assert_eq!(again, block.messages);
    }
}
