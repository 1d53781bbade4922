//! Messages that are too large or malformed, and unusual ones that are valid.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use sawmill::{Context, ErrorKind, Message, MessageId, Push, Timestamp};
use sawmill_engine::model::{MAX_HEADER_BYTES, MAX_KEY_BYTES};
use sawmill_engine::storage::Engine;
use sawmill_sqlite::SqliteEngine;

use crate::{Store, refused};

#[tokio::test]
async fn a_payload_over_the_limit_is_refused_and_nothing_is_pushed() {
    let store = Store::new().await;
    let limit = SqliteEngine.capabilities().max_payload_bytes;
    let too_large = || Push::new(vec![7; limit + 1]);
    let (size, limit_text) = ((limit + 1).to_string(), limit.to_string());
    let said = ["payload", &size, &limit_text, "push a reference"];
    refused(store.mill.push("jobs", too_large()).await, ErrorKind::TooLarge, &said);
    let batch = [Push::new("before"), too_large(), Push::new("after")];
    refused(store.mill.push_many("jobs", batch).await, ErrorKind::TooLarge, &said);
    assert_eq!(store.waiting().await, 0);
    store.mill.push("jobs", vec![7; limit]).await.unwrap();
    assert_eq!(store.waiting().await, 1);
}

#[tokio::test]
async fn a_key_over_the_limit_is_refused() {
    let store = Store::new().await;
    let push = |size: usize| store.mill.push("jobs", Push::new("x").key(vec![7; size]));
    refused(push(MAX_KEY_BYTES + 1).await, ErrorKind::TooLarge, &["key", "1025", "limit is 1024"]);
    assert_eq!(store.waiting().await, 0);
    push(MAX_KEY_BYTES).await.unwrap();
}

#[tokio::test]
async fn headers_over_the_limit_are_refused_all_together() {
    let store = Store::new().await;
    let push = |size: usize| {
        let one = Push::new("x").header("one", vec![7; MAX_HEADER_BYTES / 2]);
        store.mill.push("jobs", one.header("two", vec![7; size - MAX_HEADER_BYTES / 2 - 6]))
    };
    refused(push(MAX_HEADER_BYTES + 1).await, ErrorKind::TooLarge, &["headers", "32769", "limit is 32768"]);
    assert_eq!(store.waiting().await, 0);
    push(MAX_HEADER_BYTES).await.unwrap();
}

#[tokio::test]
async fn header_names_that_are_reserved_or_empty_are_refused() {
    let store = Store::new().await;
    let push = |name: &str| store.mill.push("jobs", Push::new("x").header(name, "y"));
    let said = ["\"sawmill-origin\"", "the library's own", "choose another name"];
    refused(push("sawmill-origin").await, ErrorKind::Invalid, &said);
    refused(push("").await, ErrorKind::Invalid, &["empty name", "give it one"]);
    assert_eq!(store.waiting().await, 0);
}

#[tokio::test]
async fn nothing_to_push_is_no_error() {
    let store = Store::new().await;
    assert_eq!(store.mill.push_many("jobs", Vec::<Push>::new()).await.unwrap(), []);
    assert_eq!(store.waiting().await, 0);
}

#[tokio::test]
async fn odd_messages_come_out_as_they_went_in() {
    let store = Store::new().await;
    let all: Vec<u8> = (0..=255).collect();
    let pushes = [
        Push::new(""),
        Push::new(all.clone()).key(all.clone()).header("ü \0 \n", all.clone()),
        Push::new("x").key("").header("twice", "1").header("twice", "2").header("none", ""),
        Push::new("long ago").at(Timestamp::from_millis(0)),
    ];
    let ids = store.mill.push_many("jobs", pushes).await.unwrap();
    let seen: Arc<Mutex<Vec<Message>>> = Arc::default();
    let handler = {
        let seen = seen.clone();
        move |context: Context| {
            seen.lock().unwrap().push(context.message().clone());
            async {}
        }
    };
    let worker = store.mill.worker("jobs").start(handler).await.unwrap();
    worker.drained().await;
    worker.stop().await;
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.sort_by_key(|message| message.id);
    assert_eq!(seen.iter().map(|message| message.id).collect::<Vec<MessageId>>(), ids);
    let all = Bytes::from(all);
    assert_eq!(seen[0].payload, "");
    assert_eq!((&seen[1].payload, seen[1].key.as_ref()), (&all, Some(&all)));
    assert_eq!(seen[1].headers.get("ü \0 \n"), Some(&all));
    assert_eq!(seen[2].key.as_deref(), Some(&b""[..]));
    let headers: Vec<(&str, &[u8])> =
        seen[2].headers.iter().map(|(name, value)| (name, &value[..])).collect();
    assert_eq!(headers, [("twice", &b"1"[..]), ("twice", b"2"), ("none", b"")]);
    assert_eq!(seen[3].due, Some(Timestamp::from_millis(0)));
}

#[tokio::test]
async fn a_due_time_at_the_end_of_time_waits_and_breaks_nothing() {
    let store = Store::new().await;
    store.mill.push("jobs", Push::new("x").at(Timestamp::from_millis(u64::MAX))).await.unwrap();
    store.mill.push("jobs", Push::new("x").after(Duration::MAX)).await.unwrap();
    store.mill.push("jobs", "now").await.unwrap();
    let worker = store.mill.worker("jobs").start(|_: Context| async {}).await.unwrap();
    worker.drained().await;
    assert_eq!(worker.stop().await.done, 1);
    let status = store.mill.admin().status("jobs", "default").await.unwrap();
    assert_eq!((status.scheduled, status.waiting, status.done), (2, 0, 1));
}
