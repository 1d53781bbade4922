//! Checks of a log: messages that are not due are kept aside, and due ones are found.

use std::time::Duration;

use sawmill::Timestamp;
use sawmill::engine::storage::Promoted;

use crate::Place;
use crate::reader::{Reader, assert_says};
use crate::sample::{now, record, record_due, seconds_after, texts};

/// A message that is not due is not read, though messages after it are.
pub async fn what_is_not_due_is_not_read(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let now = now();
    let soon = now + Duration::from_millis(600_000);
    let batch =
        vec![record(0, "a"), record_due(0, "later", soon), record(0, "b"), record_due(1, "later", soon)];
    log.append(&topic, now, batch).await.expect("messages are appended");
    log.append(&topic, now, vec![record(0, "c")]).await.expect("a message is appended");
    assert_says(&place, &log, &topic, 0, &["a", "b", "c"]).await;
    assert_says::<&str>(&place, &log, &topic, 1, &[]).await;

    let promoted =
        log.promote(&topic, soon - Duration::from_millis(1), 10).await.expect("nothing is promoted");
    assert_eq!(promoted, Promoted { moved: 0, next_due: Some(soon) }, "a millisecond too early");
    assert_says(&place, &log, &topic, 0, &["a", "b", "c"]).await;
    assert_says::<&str>(&place, &log, &topic, 1, &[]).await;
}

/// A message that is due at exactly `now` is promoted.
pub async fn what_is_due_now_is_promoted(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let due = seconds_after(now(), 600);
    log.append(&topic, now(), vec![record_due(0, "m", due)]).await.expect("a message is kept aside");
    let promoted = log.promote(&topic, due, 10).await.expect("what is due is promoted");
    assert_eq!(promoted, Promoted { moved: 1, next_due: None });
    assert_says(&place, &log, &topic, 0, &["m"]).await;
}

/// The `now` of the call decides what is due, even if the engine's own clock differs.
pub async fn the_callers_time_decides(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let past = now() - Duration::from_secs(3600);
    let due = past + Duration::from_secs(60);
    log.append(&topic, past, vec![record_due(0, "m", due)]).await.expect("a message is kept aside");
    let promoted = log.promote(&topic, past, 10).await.expect("nothing is promoted");
    assert_eq!(promoted, Promoted { moved: 0, next_due: Some(due) });
    assert_says::<&str>(&place, &log, &topic, 0, &[]).await;
    assert_eq!(log.promote(&topic, due, 10).await.expect("what is due is promoted").moved, 1);
    assert_says(&place, &log, &topic, 0, &["m"]).await;
}

/// A promotion returns the earliest due time still aside, or nothing if there is none.
pub async fn promoting_says_when_the_next_one_is_due(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let now = now();
    let due = |seconds: u64| seconds_after(now, 600 + seconds);
    assert_eq!(log.promote(&topic, now, 10).await.expect("nothing is promoted"), Promoted::default());
    let batch = vec![record_due(0, "c", due(30)), record_due(1, "a", due(10)), record_due(0, "b", due(20))];
    log.append(&topic, now, batch).await.expect("messages are kept aside");
    for (time, moved, next_due) in [
        (now, 0, Some(due(10))),
        (due(10), 1, Some(due(20))),
        (due(10), 0, Some(due(20))),
        (due(29), 1, Some(due(30))),
        (due(31), 1, None),
        (due(31), 0, None),
    ] {
        let promoted = log.promote(&topic, time, 10).await.expect("promoting is always possible");
        assert_eq!(promoted, Promoted { moved, next_due });
    }
    // A message with an earlier time than all before it becomes the next one.
    log.append(&topic, now, vec![record_due(0, "e", due(50))]).await.expect("a message is kept aside");
    log.append(&topic, now, vec![record_due(0, "d", due(40))]).await.expect("a message is kept aside");
    let promoted = log.promote(&topic, now, 10).await.expect("nothing is promoted");
    assert_eq!(promoted.next_due, Some(due(40)));
    assert_says(&place, &log, &topic, 0, &["b", "c"]).await;
    assert_says(&place, &log, &topic, 1, &["a"]).await;
}

/// A message that is due in the far future is kept until then.
pub async fn the_far_future_can_wait(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let far = Timestamp::from_millis(i64::MAX as u64);
    let century = seconds_after(now(), 100 * 365 * 86_400);
    let batch = vec![record_due(0, "far", far), record_due(0, "century", century)];
    log.append(&topic, now(), batch).await.expect("messages are kept aside");
    let promoted = log.promote(&topic, now(), 10).await.expect("nothing is promoted");
    assert_eq!(promoted, Promoted { moved: 0, next_due: Some(century) });
    let promoted = log.promote(&topic, century, 10).await.expect("what is due is promoted");
    assert_eq!(promoted, Promoted { moved: 1, next_due: Some(far) });
    assert_eq!(log.promote(&topic, far, 10).await.expect("what is due is promoted").moved, 1);
    assert_says(&place, &log, &topic, 0, &["century", "far"]).await;
}

/// A promoted message is readable after every position that a read has returned, and before messages appended
/// later.
pub async fn what_is_promoted_comes_after_what_was_read(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let due = seconds_after(now(), 600);
    // Kept aside first, to expose an engine that reads in the order of pushing or by id.
    log.append(&topic, now(), vec![record_due(0, "promoted", due)]).await.expect("a message is kept aside");
    log.append(&topic, now(), vec![record(0, "a"), record(0, "b")]).await.expect("messages are appended");
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.until(2, 1).await;
    reader.assert_at_end().await;
    assert_eq!(log.promote(&topic, due, 10).await.expect("what is due is promoted").moved, 1);
    log.append(&topic, due, vec![record(0, "c")]).await.expect("a message is appended");
    reader.until(4, 10).await;
    assert_eq!(texts(&reader.seen), ["a", "b", "promoted", "c"]);
    reader.assert_at_end().await;
}
