//! Due times: never early, ascending within a shard, and as many at one time as anybody likes.

use std::collections::BTreeSet;
use std::time::Duration;

use sawmill::Push;
use sawmill::env::Env;

use crate::desk::Desk;
use crate::support::{LONG_TTL, POLL, Peek, Place, eventually, topic};

#[tokio::test]
async fn c3_nothing_starts_before_it_is_due_and_a_shard_goes_by_due_time() {
    let place = Place::new();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    let now = Env::system().wall();
    let due = |ms| now + Duration::from_millis(ms);
    let times = [3100, 2300, 2700, 2500, 2900];
    mill.push_many("orders", times.map(|ms| Push::new(ms.to_string()).at(due(ms)))).await.unwrap();
    mill.push("orders", Push::new("0")).await.unwrap();
    let desk = Desk::open();
    let worker =
        mill.worker("orders").slots(1).ttl(LONG_TTL).poll(POLL).start(desk.seat("one")).await.unwrap();
    desk.ended(1).await;
    eventually("only those that are not due are left", async || {
        let status = mill.status("orders", "default").await.unwrap();
        status.done == 1 && status.waiting + status.claimed == 0
    })
    .await;
    if Env::system().wall() < due(2000) {
        assert_eq!(mill.status("orders", "default").await.unwrap().scheduled, 5);
        assert!(peek.claims().await.is_empty(), "no claim is held while they wait");
    }
    // One that is pushed later and due earlier goes first.
    mill.push("orders", Push::new("2200").at(due(2200))).await.unwrap();
    desk.ended(7).await;
    let mut last = now;
    for run in &desk.runs()[1..] {
        let due = run.context.due.unwrap();
        assert!(run.at >= due, "{} started at {}, due at {due}", run.payload(), run.at);
        assert!(due >= last || run.payload() == "2200", "{} came too late", run.payload());
        last = due;
    }
    worker.stop().await;
}

#[tokio::test]
async fn c4_equal_due_times_never_collide() {
    let place = Place::new();
    let topic = topic(&place.mill().await, "orders", 2).await;
    let due = Env::system().wall() + Duration::from_millis(1000);
    let mut pushing = tokio::task::JoinSet::new();
    for producer in 0..4 {
        let mill = place.mill().await;
        pushing.spawn(async move {
            let mut ids = Vec::new();
            for part in 0..5 {
                let same = (0..10).map(|_| Push::new(format!("{producer}-{part}")).key("k").at(due));
                ids.extend(mill.push_many("orders", same).await.unwrap());
            }
            ids
        });
    }
    let ids: Vec<_> = pushing.join_all().await.concat();
    let pushed: BTreeSet<_> = ids.iter().copied().collect();
    assert_eq!((ids.len(), pushed.len()), (200, 200));
    let desk = Desk::open();
    let mill = place.mill().await;
    let worker =
        mill.worker("orders").slots(4).ttl(LONG_TTL).poll(POLL).start(desk.seat("one")).await.unwrap();
    desk.ended(200).await;
    worker.drained().await;
    worker.stop().await;
    let runs = desk.runs();
    let run: BTreeSet<_> = runs.iter().map(|run| run.context.id()).collect();
    assert_eq!((runs.len(), run), (200, pushed), "each of them, once");
    assert!(runs.iter().all(|run| run.at >= due && run.context.due == Some(due)));
    assert_eq!(mill.status(&topic.name.to_string(), "default").await.unwrap().done, 200);
}
