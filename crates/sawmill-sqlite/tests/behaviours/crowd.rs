//! A crowd: ten workers that start together and stop together.

use tokio::task::JoinSet;

use crate::desk::Desk;
use crate::support::{LONG_TTL, POLL, Peek, Place, eventually, numbered, soon, topic};

const WORKERS: usize = 10;
const MESSAGES: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q7_ten_workers_that_start_or_stop_together_settle_without_a_storm() {
    let place = Place::new();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 16).await;
    let peek = Peek::new(&place, &topic, "default");
    mill.push_many("orders", numbered(0..MESSAGES)).await.unwrap();
    let (desk, taps) = (Desk::open(), (0..WORKERS).map(|_| place.tap()).collect::<Vec<_>>());

    let mut starting = JoinSet::new();
    for (number, tap) in taps.iter().enumerate() {
        let builder = tap.mill().worker("orders").slots(2).ttl(LONG_TTL).poll(POLL);
        let seat = desk.seat(&number.to_string());
        starting.spawn(async move { builder.start(seat).await.unwrap() });
    }
    let workers = soon("all start", starting.join_all()).await;
    desk.ended(MESSAGES).await;
    for worker in &workers {
        soon("it settles", worker.drained()).await;
    }
    assert_eq!(peek.members().await.len(), WORKERS);
    for worker in &workers {
        let rebalances = worker.counts().rebalances;
        assert!((1..=WORKERS as u64).contains(&rebalances), "{rebalances}");
    }

    let mut stopping = JoinSet::new();
    for worker in workers {
        stopping.spawn(worker.stop());
    }
    let counts = soon("all stop", stopping.join_all()).await;
    assert!(peek.members().await.is_empty());
    assert!(peek.claims().await.is_empty());
    assert_eq!(desk.numbers(), (0..MESSAGES).collect::<Vec<_>>(), "each is run once");
    eventually("all is done", async || {
        mill.status("orders", "default").await.unwrap().done == MESSAGES as u64
    })
    .await;

    // What it cost: a few writes for each worker and shard, far fewer than one for each message and worker.
    let conflicts: u64 = counts.iter().map(|counts| counts.conflicts).sum();
    let commits: usize = taps.iter().map(|tap| tap.commits()).sum();
    assert!(commits <= MESSAGES, "{commits} commits, {conflicts} conflicts");
    assert!(conflicts <= MESSAGES as u64 / 2, "{commits} commits, {conflicts} conflicts");
}
