//! The whole round trip on the in-memory engine.
use sawmill::{Context, Outcome, Push, RetryPolicy, Sawmill, Which};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[tokio::test]
async fn everything_pushed_is_worked_once() {
    let mill = Sawmill::open("memory:").await.unwrap();
    mill.create_topic("t").await.unwrap();
    let ids = mill
        .push_many("t", (0..5000).map(|i| Push::new(format!("{i}")).key(format!("{}", i % 50))))
        .await
        .unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    let worker = mill
        .worker("t")
        .slots(4)
        .start(move |c: Context| {
            let log = log.clone();
            async move {
                log.lock().unwrap().push(c.id());
            }
        })
        .await
        .unwrap();
    worker.drained().await;
    let counts = worker.stop().await;
    println!("{counts:?}");
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, ids);
    let status = mill.status("t", "default").await.unwrap();
    assert_eq!((status.done, status.waiting, status.claimed), (5000, 0, 0));
}

#[tokio::test]
async fn failures_are_retried_and_die() {
    let mill = Sawmill::open("memory:").await.unwrap();
    mill.create_topic("t").await.unwrap();
    let id = mill.push("t", "x").await.unwrap();
    let tries = Arc::new(Mutex::new(0));
    let t = tries.clone();
    let worker = mill
        .worker("t")
        .slots(4)
        .retry(RetryPolicy::retries(3).backoff(Duration::from_millis(10), Duration::from_millis(20)))
        .start(move |c: Context| {
            let t = t.clone();
            async move {
                *t.lock().unwrap() += 1;
                Outcome::retry(format!("no {}", c.attempt()))
            }
        })
        .await
        .unwrap();
    let dead = mill.dead_letters("t", "default").await.unwrap();
    loop {
        let letters = dead.list(10).await.unwrap();
        if let [letter] = letters.as_slice() {
            println!("{letter:?} {:?}", letter.message.failures());
            assert_eq!(letter.id(), id);
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(*tries.lock().unwrap(), 4);
    worker.stop().await;
    assert_eq!(dead.resend(Which::Ids(vec![id])).await.unwrap(), 1);
    assert!(dead.list(10).await.unwrap().is_empty());
    let worker = mill.worker("t").start(|_: Context| async {}).await.unwrap();
    worker.drained().await;
    worker.stop().await;
    let status = mill.status("t", "default").await.unwrap();
    assert_eq!(status.done, 1, "{status:?}");
}
