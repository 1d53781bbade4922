//! Checks of a log: messages come back unchanged.

use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::{Headers, MAX_HEADER_BYTES, MAX_KEY_BYTES, shard_of};
use sawmill::engine::storage::Record;
use sawmill::{Message, MessageId, Timestamp};

use crate::Place;
use crate::reader::Reader;
use crate::sample::{message, now};

/// Returns a payload of all byte values, repeated up to this length.
fn binary(length: usize) -> Bytes {
    (0..length).map(|i| (i * 7 + i / 256) as u8).collect::<Vec<u8>>().into()
}

async fn assert_come_back(place: &Place, messages: Vec<Message>) {
    let (log, topic) = place.log_and_topic("orders", 1).await;
    let batch = messages.iter().map(|message| Record::once(0, message.clone())).collect();
    log.append(&topic, now(), batch).await.expect("messages within all limits are appended");
    for handle in [log, place.log().await] {
        let mut reader = Reader::new(place, &handle, &topic, 0);
        reader.until(messages.len(), 100).await;
        for (came, went) in reader.seen.iter().zip(&messages) {
            // Payloads may be large, so they are compared without being printed.
            assert!(came.payload == went.payload, "the payload of {} came back changed", went.id);
            let without_payload = |message: &Message| Message { payload: Bytes::new(), ..message.clone() };
            assert_eq!(without_payload(came), without_payload(went));
        }
    }
}

/// A payload comes back unchanged: empty, text, every byte value, and several hundred kilobytes.
pub async fn payloads_come_back_as_they_were(place: Place) {
    let most = place.log().await.capabilities().max_payload_bytes;
    let sizes = [0, 1, 255, 65_535, 65_536, 700 * 1024];
    let mut payloads: Vec<Bytes> = sizes.map(|size| binary(size.min(most))).to_vec();
    for odd in [
        &b"\0"[..],
        b"\0\0a\0",
        b"\xff\xfe",
        b"'; DROP TABLE messages; --",
        b"\r\n",
        "grüße \u{1f600}".as_bytes(),
    ] {
        payloads.push(Bytes::copy_from_slice(odd));
    }
    let messages = payloads.into_iter().map(|payload| Message { payload, ..message("") }).collect();
    assert_come_back(&place, messages).await;
}

/// A key comes back unchanged, and a missing key differs from an empty one.
pub async fn keys_come_back_as_they_were(place: Place) {
    let keys = [
        None,
        Some(Bytes::new()),
        Some(Bytes::from_static(b"alice")),
        Some(Bytes::from_static(b"\0")),
        Some(Bytes::from_static(b"\xff\0\xfe")),
        Some(binary(MAX_KEY_BYTES)),
    ];
    let messages = keys.into_iter().map(|key| Message { key, ..message("m") }).collect();
    assert_come_back(&place, messages).await;
}

/// Headers come back unchanged and in order: repeated names, empty values, binary values.
pub async fn headers_come_back_as_they_were(place: Place) {
    let sets: [Vec<(&str, Bytes)>; 5] = [
        vec![],
        vec![("a", Bytes::new())],
        vec![
            ("b", Bytes::from_static(b"2")),
            ("a", Bytes::from_static(b"1")),
            ("b", Bytes::from_static(b"3")),
        ],
        vec![("größe", binary(300)), ("sawmill-attempt", Bytes::from_static(b"1")), ("A", Bytes::new())],
        vec![("long", binary(MAX_HEADER_BYTES - 4))],
    ];
    let messages = sets
        .into_iter()
        .map(|set| Message { headers: set.into_iter().collect::<Headers>(), ..message("m") })
        .collect();
    assert_come_back(&place, messages).await;
}

/// Ids and times come back to the last bit: the smallest id and the largest, the oldest creation, a past due
/// time.
pub async fn ids_and_times_come_back_as_they_were(place: Place) {
    let now = now();
    let times = [
        (0, now, None),
        (1, Timestamp::from_millis(0), Some(Timestamp::from_millis(0))),
        (u128::MAX, now - Duration::from_millis(1), Some(now - Duration::from_millis(1))),
        (1 << 127, now, Some(Timestamp::from_millis(1))),
        (u128::from(u64::MAX), Timestamp::from_millis(1_700_000_000_123), None),
        (u128::from(u64::MAX) << 64, now, Some(now - Duration::from_secs(86_400))),
    ];
    let messages = times
        .into_iter()
        .map(|(id, created, due)| Message { id: MessageId::from_u128(id), created, due, ..message("m") })
        .collect();
    assert_come_back(&place, messages).await;
}

/// A message comes back unchanged after it was kept aside and promoted.
pub async fn what_was_kept_aside_comes_back_as_it_was(place: Place) {
    let (log, topic) = place.log_and_topic("orders", 3).await;
    let (now, due) = (now(), now() + Duration::from_millis(600_001));
    let key = Bytes::from_static(b"\xffkey");
    let shard = shard_of(&key, 3);
    let went = Message {
        key: Some(key),
        payload: binary(70_000),
        headers: [("b", "2"), ("a", ""), ("b", "3")].into_iter().collect(),
        due: Some(due),
        created: now - Duration::from_millis(3),
        ..message("")
    };
    let bare = Message { key: None, payload: Bytes::new(), due: Some(due), ..message("") };
    let batch = [&went, &bare].map(|message| Record::once(shard, message.clone())).to_vec();
    log.append(&topic, now, batch).await.expect("messages are kept aside");
    let mut moved = 0;
    while moved < 2 {
        let promoted = log.promote(&topic, due, 10).await.expect("what is due is promoted");
        assert!(promoted.moved > 0, "nothing was promoted, though a message is due");
        moved += promoted.moved;
    }
    let mut reader = Reader::new(&place, &log, &topic, shard);
    reader.until(2, 10).await;
    assert_eq!(reader.seen, [went, bare]);
}

/// Messages of the engine's maximum size come back: the longest payload, key and headers at once.
pub async fn the_largest_message_comes_back(place: Place) {
    /// Larger payloads take long and find nothing more.
    const ENOUGH: usize = 32 << 20;
    let most = place.log().await.capabilities().max_payload_bytes;
    let largest = Message {
        key: Some(binary(MAX_KEY_BYTES)),
        payload: binary(most.min(ENOUGH)),
        headers: [("h", binary(MAX_HEADER_BYTES - 1))].into_iter().collect(),
        ..message("")
    };
    assert_come_back(&place, vec![message("before"), largest, message("after")]).await;
}

/// A batch of several large messages is appended in one call.
pub async fn a_batch_of_large_messages_comes_back(place: Place) {
    let most = place.log().await.capabilities().max_payload_bytes;
    let messages =
        (0..12).map(|_| Message { payload: binary(most.min(600 * 1024)), ..message("") }).collect();
    assert_come_back(&place, messages).await;
}
