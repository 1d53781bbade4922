//! Tests of the round trip from push to done on the in-memory engine, through the public API.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::admin::DeadLetterSelection;
use sawmill::{Context, Outcome, Push, RetryPolicy, Sawmill};
use sawmill_engine::runtime::Env;

#[tokio::test]
async fn everything_pushed_is_worked_once_in_large_blocks() {
    let mill = Sawmill::open("memory:").await.unwrap();
    mill.create_topic("t").await.unwrap();
    let pushes = (0..5000).map(|i| Push::new(format!("{i}")).key(format!("{}", i % 50)));
    let ids = mill.push_many("t", pushes).await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let handler = {
        let seen = seen.clone();
        move |context: Context| {
            seen.lock().unwrap().push(context.id());
            async {}
        }
    };
    let worker = mill.worker("t").concurrency(4).start(handler).await.unwrap();
    worker.drained().await;
    let counts = worker.stop().await;
    let mut seen = seen.lock().unwrap().clone();
    seen.sort();
    assert_eq!(seen, ids);
    assert!(counts.commits < 500, "nothing costs a write per message: {counts:?}");
    let status = mill.admin().status("t", "default").await.unwrap();
    assert_eq!((status.done, status.waiting, status.claimed), (5000, 0, 0));
}

#[tokio::test]
async fn failures_are_retried_die_and_are_resent() {
    let mill = Sawmill::open("memory:").await.unwrap();
    mill.create_topic("t").await.unwrap();
    let id = mill.push("t", "x").await.unwrap();
    let policy = RetryPolicy::retries(3).backoff(Duration::from_millis(10), Duration::from_millis(20));
    let fail = |context: Context| async move { Outcome::retry(format!("no {}", context.attempt())) };
    let worker = mill.worker("t").retry(policy).start(fail).await.unwrap();
    let dead = mill.admin().dead_letters("t", "default").await.unwrap();
    while dead.list(10).await.unwrap().is_empty() {
        Env::system().sleep(Duration::from_millis(5)).await;
    }
    let letter = dead.show(id).await.unwrap();
    assert_eq!(letter.reason(), "out of attempts after 4: no 4");
    assert_eq!(
        letter.message.failures().iter().map(|failure| failure.attempt).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    assert_eq!(worker.stop().await.started, 4);

    assert_eq!(dead.retry(DeadLetterSelection::Ids(vec![id])).await.unwrap(), 1);
    assert!(dead.list(10).await.unwrap().is_empty());
    let worker = mill.worker("t").start(|_: Context| async {}).await.unwrap();
    worker.drained().await;
    worker.stop().await;
    let status = mill.admin().status("t", "default").await.unwrap();
    assert_eq!((status.done, status.dead, status.retrying), (1, 0, 0));
}

#[tokio::test]
async fn g8_a_stopping_worker_reports_what_is_done_while_its_last_handler_runs() {
    let mill = Sawmill::open("memory:").await.unwrap();
    mill.create_topic("t").await.unwrap();
    mill.push_many("t", ["long", "short"]).await.unwrap();
    let both_run = Arc::new(tokio::sync::Barrier::new(3));
    let end = Arc::new(tokio::sync::Notify::new());
    let handler = {
        let (both_run, end) = (both_run.clone(), end.clone());
        move |context: Context| {
            let (both_run, end) = (both_run.clone(), end.clone());
            async move {
                both_run.wait().await;
                if context.payload() == "long" {
                    end.notified().await;
                }
            }
        }
    };
    let worker = mill.worker("t").concurrency(2).start(handler).await.unwrap();
    both_run.wait().await;
    let (counts, ()) = tokio::join!(worker.stop(), async {
        while mill.admin().status("t", "default").await.unwrap().done < 1 {
            Env::system().sleep(Duration::from_millis(5)).await;
        }
        end.notify_one();
    });
    assert_eq!(counts.done, 2);
}

#[tokio::test]
async fn what_follows_a_message_is_added_once_by_whatever_way_it_is_pushed() {
    let mill = Sawmill::open("memory:").await.unwrap();
    mill.create_topic("t").await.unwrap();
    let order = mill.push("t", "order").await.unwrap();
    let bill = || Push::new("bill").follows(order, "bill");
    let ids = mill.push_many("t", [bill(), bill(), Push::new("note").follows(order, "note")]).await.unwrap();
    assert!(ids[0] == ids[1] && ids[0] != ids[2] && ids[0] != order);
    assert_eq!(mill.producer("t").await.unwrap().push(bill()).await.unwrap(), ids[0]);
    assert_eq!(mill.push("t", bill().key("k")).await.unwrap(), ids[0], "the first one stays");
    assert_eq!(mill.admin().peek("t", "default", 10).await.unwrap().len(), 3);

    let refused = mill.push("t", bill().unique("bill")).await.unwrap_err();
    assert!(refused.to_string().contains("leave out"), "{refused}");
    let refused = mill.draft("t", [bill()]).await.unwrap_err();
    assert!(refused.to_string().contains("within a transaction"), "{refused}");
}
