//! Due times: never early, ascending within a shard, and any number at the same time.

use std::collections::BTreeSet;
use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill::{Context, Push};

use super::both::both;
use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Peek, Subject, eventually, topic};

/// The program may exit once its worker has stopped. Without idempotent appends, an interrupted promotion
/// leaves messages twice.
pub async fn a_worker_that_leaves_finishes_what_it_promotes(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "orders", 1).await;
        store.promote_slowly();
        let handler = |_: Context| async {};
        let worker = mill.worker("orders").ttl(LONG_TTL).poll(POLL).start(handler).await.unwrap();
        eventually("something is promoted", async || store.promoting() > 0).await;
        worker.stop().await;
        assert_eq!(store.promoting(), 0, "{}", store.engine);
    }
}

pub async fn c3_nothing_starts_before_it_is_due_and_a_shard_goes_by_due_time(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    let now = Env::system().wall();
    let due = |ms| now + Duration::from_millis(ms);
    let times = [3100, 2300, 2700, 2500, 2900];
    mill.push_many("orders", times.map(|ms| Push::new(ms.to_string()).at(due(ms)))).await.unwrap();
    mill.push("orders", Push::new("0")).await.unwrap();
    let in_time = Env::system().wall() < due(2300);
    let gated = GatedHandler::open();
    let worker =
        mill.worker("orders").concurrency(1).ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    gated.ended(1).await;
    eventually("only those that are not due are left", async || {
        let status = mill.admin().status("orders", "default").await.unwrap();
        // On a busy machine the first may become due meanwhile.
        Env::system().wall() >= due(2000) || status.done == 1 && status.waiting + status.claimed == 0
    })
    .await;
    if Env::system().wall() < due(2000) {
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().scheduled, 5);
        assert!(peek.claims().await.is_empty(), "no claim is held while they wait");
    }
    // A message that is pushed later and due earlier goes first.
    mill.push("orders", Push::new("2200").at(due(2200))).await.unwrap();
    gated.ended(7).await;
    let mut last = now;
    for run in gated.runs() {
        let Some(due) = run.context.message().due else { continue };
        assert!(run.at >= due, "{} started at {}, due at {due}", run.payload(), run.at);
        // Messages already due when pushed keep the order of the pushes.
        assert!(due >= last || run.payload() == "2200" || !in_time, "{} came too late", run.payload());
        last = due;
    }
    worker.stop().await;
}

pub async fn c3_every_shard_ascends_also_when_much_has_become_due(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    topic(&mill, "orders", 4).await;
    let keys = place.key_per_shard(4);
    let now = Env::system().wall();
    // Far apart and close together, the later ones pushed first.
    let times: Vec<u64> =
        (0..8).rev().map(|i| 1200 + 5 * i).chain((0..4).rev().map(|i| 800 + 90 * i)).collect();
    for ms in &times {
        let due = now + Duration::from_millis(*ms);
        let pushes = keys.iter().map(|key| Push::new(ms.to_string()).key(key.clone()).at(due));
        mill.push_many("orders", pushes).await.unwrap();
    }
    let in_time = Env::system().wall() < now + Duration::from_millis(800);
    // No worker runs while they become due one by one.
    let last = now + Duration::from_millis(1300);
    Env::system().sleep(last.since(Env::system().wall())).await;
    let gated = GatedHandler::open();
    let mut workers = Vec::new();
    for name in ["one", "two"] {
        let builder = place.mill().await.worker("orders").ordered().concurrency(4).ttl(LONG_TTL).poll(POLL);
        workers.push(builder.start(gated.seat(name)).await.unwrap());
    }
    gated.ended(keys.len() * times.len()).await;
    for worker in workers {
        worker.stop().await;
    }
    let runs = gated.runs();
    assert_eq!(runs.len(), keys.len() * times.len());
    assert!(runs.iter().all(|run| run.at >= run.context.message().due.unwrap()));
    for key in &keys {
        let due: Vec<_> =
            runs.iter().filter(|run| run.key() == *key).map(|run| run.context.message().due).collect();
        // Messages already due when pushed keep the order of the pushes.
        assert!(due.is_sorted() || !in_time, "{key}: {due:?}");
    }
}

pub async fn c4_equal_due_times_never_collide(on: Subject) {
    let place = on.place();
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
    let gated = GatedHandler::open();
    let mill = place.mill().await;
    let worker =
        mill.worker("orders").concurrency(4).ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    gated.ended(200).await;
    worker.drained().await;
    worker.stop().await;
    let runs = gated.runs();
    let run: BTreeSet<_> = runs.iter().map(|run| run.context.id()).collect();
    assert_eq!((runs.len(), run), (200, pushed), "each of them, once");
    assert!(runs.iter().all(|run| run.at >= due && run.context.message().due == Some(due)));
    assert_eq!(mill.admin().status(&topic.name.to_string(), "default").await.unwrap().done, 200);
}

pub async fn a_drain_does_what_is_due_though_nobody_has_tended_the_topic_yet(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "jobs", 4).await;
        let due = Push::new("x").after(Duration::from_millis(5));
        mill.push_many("jobs", vec![due; 3]).await.unwrap();
        Env::system().sleep(Duration::from_millis(50)).await;
        let worker = mill.worker("jobs").start(|_: Context| async {}).await.unwrap();
        worker.drained().await;
        assert_eq!(worker.stop().await.done, 3, "{}", store.engine);
    }
}
