//! Tests of the test kit: time moves as the test says, and assertions fail when they should.
#![allow(clippy::unwrap_used, reason = "a failure in a helper must fail the test")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use sawmill::testing::TestMill;
use sawmill::{Context, Delivery, Outcome, Push, RetryPolicy, Timestamp};
use sawmill_engine::runtime::{Clock, SystemClock};

const MINUTE: Duration = Duration::from_secs(60);

async fn ever_busy(_: Context) -> Outcome {
    Outcome::retry_after("busy", MINUTE)
}

async fn retries_wait_for_their_time() {
    let kit = TestMill::new();
    let id = kit.push("emails", Push::new("Hello").key("alice")).await;
    let builder = || kit.worker("emails").retry(RetryPolicy::retries(2));
    let first = kit.drain_with(builder(), ever_busy).await;
    assert_eq!((first.started, first.failed, first.dead), (1, 1, 0));
    assert_eq!(kit.drain_with(builder(), ever_busy).await.started, 0, "it is not due");
    kit.advance(MINUTE).await;
    assert_eq!(kit.drain_with(builder(), ever_busy).await.started, 1);
    assert!(kit.dead("emails").await.is_empty());
    kit.advance(MINUTE).await;
    assert_eq!(kit.drain_with(builder(), ever_busy).await.dead, 1, "out of attempts");
    let dead = kit.dead("emails").await;
    assert_eq!((dead.len(), dead[0].id()), (1, id));
    assert!(kit.dead_in("emails", "others").await.is_empty());
    let pushed: Vec<_> = kit.pushed("emails").await.iter().map(|message| message.id).collect();
    assert_eq!(pushed, [id], "retries are not pushes");
}

#[tokio::test]
async fn retries_wait_for_their_time_on_one_thread() {
    retries_wait_for_their_time().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn retries_wait_for_their_time_on_several_threads() {
    retries_wait_for_their_time().await;
}

#[tokio::test]
async fn a_drain_takes_little_test_time_and_keeps_the_order_of_pushing() {
    let kit = TestMill::new();
    for number in 0..2500 {
        kit.push("numbers", number.to_string()).await;
    }
    let (seen, began) = (Arc::new(Mutex::new(Vec::new())), kit.now());
    let note = seen.clone();
    let counts = kit
        .drain("numbers", move |number: Context| {
            note.lock().unwrap().push(String::from_utf8_lossy(number.payload()).parse::<u32>().unwrap());
            async {}
        })
        .await;
    assert_eq!((counts.started, counts.done), (2500, 2500));
    assert!(seen.lock().unwrap().iter().copied().eq(0..2500));
    assert!(kit.now().since(began) < Duration::from_secs(1), "{:?}", kit.now().since(began));
}

#[tokio::test]
async fn handlers_that_wait_for_something_real_are_not_raced_by_the_clock() {
    let kit = TestMill::new();
    kit.push("slow", "1").await;
    let began = kit.now();
    let slow = |_: Context| async { SystemClock.sleep(Duration::from_millis(50)).await };
    let counts = kit.drain("slow", slow).await;
    assert_eq!((counts.done, counts.rejoined), (1, 0));
    assert!(kit.now().since(began) < Duration::from_secs(5), "{:?}", kit.now().since(began));
}

#[tokio::test]
async fn what_is_due_starts_in_the_order_of_time() {
    let kit = TestMill::new();
    for minutes in [3, 1, 2] {
        kit.push("calls", Push::new(minutes.to_string()).after(MINUTE * minutes)).await;
    }
    let (seen, began, clock) = (Arc::new(Mutex::new(Vec::new())), kit.now(), kit.clock().clone());
    let note = seen.clone();
    let handler = move |call: Context| {
        let at = clock.wall().since(began).as_secs() / 60;
        note.lock().unwrap().push((String::from_utf8_lossy(call.payload()).into_owned(), at));
        async {}
    };
    let worker = kit.worker("calls").start(handler).await.unwrap();
    kit.advance(MINUTE * 10).await;
    kit.wait_for(worker.stop()).await;
    let seen = seen.lock().unwrap();
    let seen: Vec<(&str, u64)> = seen.iter().map(|(call, at)| (call.as_str(), *at)).collect();
    assert_eq!(seen, [("1", 1), ("2", 2), ("3", 3)]);
    assert_eq!(worker.counts().rejoined, 0, "its heartbeats were in time");
}

#[tokio::test]
async fn a_drain_of_an_ordered_group_leaves_what_waits_in_place() {
    let kit = TestMill::new();
    kit.push("orders", Push::new("1").key("a")).await;
    kit.push("orders", Push::new("2").key("a")).await;
    kit.push("orders", Push::new("3").key("b")).await;
    let handler = |order: Context| async move {
        match (&order.payload()[..], order.attempt()) {
            (b"1", 1) => Outcome::retry_after("not yet", MINUTE),
            _ => Outcome::Done,
        }
    };
    let began = kit.now();
    let counts = kit.drain_with(kit.worker("orders").ordered(), handler).await;
    assert_eq!((counts.started, counts.done), (2, 1), "3 does not wait for 1, but 2 does");
    assert!(kit.now().since(began) < MINUTE, "{:?}", kit.now().since(began));

    let worker = kit.worker("orders").ordered().start(handler).await.unwrap();
    kit.advance(MINUTE * 2).await;
    assert_eq!(kit.wait_for(worker.stop()).await.done, 2);
}

#[tokio::test]
async fn two_kits_with_one_seed_do_the_same() {
    let run = async || {
        let kit = TestMill::new();
        let id = kit.push("emails", "Hello").await;
        let builder = kit.worker("emails").delivery(Delivery::AtMostOnce);
        kit.drain_with(builder, ever_busy).await;
        (id, kit.dead("emails").await)
    };
    assert_eq!(run().await, run().await);
    assert_ne!(TestMill::with_seed(1).push("emails", "Hello").await, run().await.0);
}

#[tokio::test]
async fn the_clock_can_be_set() {
    let kit = TestMill::new();
    let noon = Timestamp::from_millis(43_200_000);
    kit.set_time(noon);
    kit.push("emails", "Hello").await;
    assert_eq!((kit.pushed("emails").await[0].created, kit.now()), (noon, noon));
    kit.advance(MINUTE).await;
    assert_eq!(kit.now(), noon + MINUTE);
}

#[tokio::test]
async fn assertions_fail_and_say_what_was_pushed() {
    let kit = TestMill::new();
    let text = |panic: Box<dyn std::any::Any + Send>| *panic.downcast::<String>().unwrap();
    let caught = async |future: LocalBoxFuture<'_, ()>| {
        text(std::panic::AssertUnwindSafe(future).catch_unwind().await.unwrap_err())
    };
    let nothing = caught(kit.assert_pushed("emails", |_| true).boxed_local()).await;
    assert!(nothing.contains("nothing was pushed") && nothing.contains("kit.rs"), "{nothing}");
    kit.push("emails", Push::new("Hello Alice").key("alice").header("lang", "en").after(MINUTE)).await;
    let other = caught(kit.assert_pushed("emails", |push| push.payload == "Hello Bob").boxed_local()).await;
    for part in ["Hello Alice", "alice", "lang", "due"] {
        assert!(other.contains(part), "{other}");
    }
    let there = caught(kit.assert_not_pushed("emails", |push| push.key.is_some()).boxed_local()).await;
    assert!(there.contains("Hello Alice"), "{there}");
    kit.assert_pushed("emails", |push| push.payload == "Hello Alice").await;
    kit.assert_not_pushed("emails", |push| push.payload == "Hello Bob").await;
}
