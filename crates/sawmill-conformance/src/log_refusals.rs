//! Checks of a log: what it must refuse, and that a refusal changes nothing.

use bytes::Bytes;
use sawmill::engine::model::{Headers, MAX_HEADER_BYTES, MAX_KEY_BYTES, Topic};
use sawmill::engine::storage::{Capabilities, Log, Position, ReadRequest};
use sawmill::{ErrorKind, Message};

use crate::Place;
use crate::reader::{Reader, assert_says};
use crate::sample::{assert_refused, message, now, record, record_due, seconds_after};

/// Asserts that every call on this topic is refused because the topic does not exist.
async fn assert_missing(log: &dyn Log, topic: &Topic, span: &sawmill::engine::storage::Span) {
    let kind = ErrorKind::NotFound;
    assert_refused("append", log.append(topic, now(), vec![record(0, "m")]).await, kind);
    let later = seconds_after(now(), 600);
    assert_refused("append aside", log.append(topic, now(), vec![record_due(0, "m", later)]).await, kind);
    let want = ReadRequest { shard: 0, after: Position::default(), limit: 1 };
    assert_refused("read", log.read(topic, &[want]).await, kind);
    assert_refused("reread", log.reread(topic, 0, span).await, kind);
    assert_refused("promote", log.promote(topic, later, 1).await, kind);
    assert_refused("backlog", log.backlog(topic, &[(0, Position::default())]).await, kind);
    assert_refused("trim", log.trim(topic, &[vec![Position::default()]], later).await, kind);
}

/// Every call on a topic that was never created is refused.
pub async fn a_topic_that_never_was_is_refused(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    log.append(&topic, now(), vec![record(0, "m")]).await.expect("a message is appended");
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.until(1, 1).await;
    let stranger = Topic { uid: format!("{}0x", topic.uid), ..topic.clone() };
    assert_missing(&*log, &stranger, &reader.blocks[0].span).await;
    assert!(!log.delete_topic(&stranger).await.expect("nothing is deleted"), "there was no such topic");
    assert_says(&place, &log, &topic, 0, &["m"]).await;
}

/// Every call on a deleted topic is refused, regardless of the handle that deleted it, even if a new topic
/// has the same name.
pub async fn a_deleted_topic_is_refused(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let other = place.log().await;
    log.append(&topic, now(), vec![record(0, "m")]).await.expect("a message is appended");
    let mut reader = Reader::new(&place, &other, &topic, 0);
    reader.until(1, 1).await;
    assert!(log.delete_topic(&topic).await.expect("a topic is deleted"));
    for handle in [&log, &other] {
        assert_missing(&**handle, &topic, &reader.blocks[0].span).await;
    }
    let new = place.topic(&log, "orders", 1).await;
    for handle in [&log, &other] {
        assert_missing(&**handle, &topic, &reader.blocks[0].span).await;
    }
    assert_says::<&str>(&place, &log, &new, 0, &[]).await;
}

/// A batch with a shard that the topic does not have is refused, and nothing of it is appended.
pub async fn a_batch_with_a_wrong_shard_is_refused_whole(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    let later = seconds_after(now(), 600);
    for wrong in [2, 3, u16::MAX] {
        for bad in [record(wrong, "bad"), record_due(wrong, "bad", later)] {
            let batch = vec![record(0, "good"), record_due(1, "good", later), bad, record(1, "good")];
            assert_refused("a wrong shard", log.append(&topic, now(), batch).await, ErrorKind::Invalid);
        }
    }
    log.append(&topic, now(), vec![record(0, "after"), record(1, "after")])
        .await
        .expect("messages are appended");
    for shard in 0..2 {
        assert_says(&place, &log, &topic, shard, &["after"]).await;
    }
    let promoted = log.promote(&topic, later, 10).await.expect("nothing is promoted");
    assert_eq!((promoted.moved, promoted.next_due), (0, None), "nothing was kept aside");
}

/// A shard that the topic does not have cannot be read, counted or trimmed.
pub async fn a_wrong_shard_is_refused(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 2).await;
    log.append(&topic, now(), vec![record(0, "m")]).await.expect("a message is appended");
    let mut reader = Reader::new(&place, &log, &topic, 0);
    reader.until(1, 1).await;
    let kind = ErrorKind::Invalid;
    let want = |shard| ReadRequest { shard, after: Position::default(), limit: 1 };
    assert_refused("read", log.read(&topic, &[want(0), want(2)]).await, kind);
    assert_refused("reread", log.reread(&topic, 2, &reader.blocks[0].span).await, kind);
    let after = [(0, Position::default()), (2, Position::default())];
    assert_refused("backlog", log.backlog(&topic, &after).await, kind);
    let upto = [Vec::new(), Vec::new(), vec![reader.position.clone()]];
    assert_refused("trim", log.trim(&topic, &upto, seconds_after(now(), 9)).await, kind);
    assert_says(&place, &log, &topic, 0, &["m"]).await;
}

/// An engine's capabilities are constant and include a limit.
pub async fn capabilities_are_always_the_same(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let said = log.capabilities();
    log.append(&topic, now(), vec![record(0, "m")]).await.expect("a message is appended");
    assert_eq!(log.capabilities(), said);
    assert_eq!(place.log().await.capabilities(), said);
    assert!((1..=1 << 30).contains(&said.max_payload_bytes), "a limit that can be kept: {said:?}");
}

/// A message over one of the engine's limits is refused with an error that names the limit; at the limit it
/// is accepted.
pub async fn what_is_too_large_is_refused_naming_the_limit(place: Place) {
    let capabilities: Capabilities = place.log().await.capabilities();
    let bytes = |length: usize| Bytes::from(vec![b'x'; length]);
    let payload = |length| Message { payload: bytes(length), ..message("") };
    let key = |length| Message { key: Some(bytes(length)), ..message("") };
    let headers = |length: usize| {
        let set = [("a", bytes(length / 2 - 1)), ("b", bytes(length - length / 2 - 1))];
        Message { headers: set.into_iter().collect::<Headers>(), ..message("") }
    };
    let most = capabilities.max_payload_bytes;
    for (what, at_limit, over, limit) in [
        ("payload", payload(most), payload(most + 1), most),
        ("key", key(MAX_KEY_BYTES), key(MAX_KEY_BYTES + 1), MAX_KEY_BYTES),
        ("headers", headers(MAX_HEADER_BYTES), headers(MAX_HEADER_BYTES + 1), MAX_HEADER_BYTES),
    ] {
        capabilities.check(&at_limit).expect("a message at the limit is accepted");
        let error = capabilities.check(&over).expect_err("a message over the limit is refused");
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error:?}");
        let said = error.to_string();
        assert!(
            said.contains(what) && said.contains(&limit.to_string()),
            "the error names the limit: {said}"
        );
    }
}
