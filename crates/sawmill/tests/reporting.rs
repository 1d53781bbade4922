//! Tests of when a worker reports finished messages: reports are delayed to be combined with other commits,
//! but nothing has to wait for them.
#![allow(clippy::unwrap_used, reason = "a failure in a helper must fail the test")]

use std::time::Duration;

use sawmill::testing::TestMill;
use sawmill::{Context, Delivery};

async fn nothing(_: Context) {}

async fn done(kit: &TestMill) -> u64 {
    kit.mill().admin().status("emails", "default").await.unwrap().done
}

#[tokio::test]
async fn what_is_done_is_reported_with_the_next_claim_or_after_a_while() {
    let kit = TestMill::new();
    kit.topic("emails").await;
    let worker = kit.worker("emails").start(nothing).await.unwrap();
    kit.wait_for(worker.drained()).await;
    let before = worker.counts().commits;
    for _ in 0..5 {
        kit.push("emails", "one after another").await;
        kit.advance(Duration::from_millis(50)).await;
    }
    assert_eq!(worker.counts().done, 5);
    assert_eq!(done(&kit).await, 4, "the last report waits, the others went with the claims");
    assert_eq!(worker.counts().commits - before, 5);
    kit.advance(Duration::from_millis(300)).await;
    assert_eq!(done(&kit).await, 5);
    assert_eq!(worker.counts().commits - before, 6);
    kit.wait_for(worker.stop()).await;
}

#[tokio::test]
async fn a_drain_does_not_wait_for_company() {
    let kit = TestMill::new();
    kit.topic("emails").await;
    let worker = kit.worker("emails").start(nothing).await.unwrap();
    kit.push("emails", "the only one").await;
    kit.advance(Duration::from_millis(1)).await;
    let began = kit.now();
    kit.wait_for(worker.drained()).await;
    assert!(kit.now().since(began) < Duration::from_millis(100), "{:?}", kit.now().since(began));
    assert_eq!(done(&kit).await, 1);
    kit.push("emails", "the last one").await;
    kit.advance(Duration::from_millis(1)).await;
    let began = kit.now();
    kit.wait_for(worker.stop()).await;
    assert!(kit.now().since(began) < Duration::from_millis(100), "{:?}", kit.now().since(began));
    assert_eq!(done(&kit).await, 2, "nor does a stop");
}

#[tokio::test]
async fn what_would_be_taken_for_lost_is_reported_soon() {
    let kit = TestMill::new();
    kit.topic("emails").await;
    let builder = kit.worker("emails").delivery(Delivery::AtMostOnce);
    let worker = builder.start(nothing).await.unwrap();
    kit.wait_for(worker.drained()).await;
    kit.push("emails", "once").await;
    kit.advance(Duration::from_millis(100)).await;
    assert_eq!(done(&kit).await, 1);
    kit.wait_for(worker.stop()).await;
}
