//! Shards: how they are assigned to workers, and how they move when workers come and go. Tested with ordered
//! groups, where only one worker may hold a shard.

use std::collections::BTreeSet;

use sawmill::engine::model::Rules;
use sawmill::engine::storage::{Commit, Write};
use sawmill::handler::{Handler, IntoHandler};
use sawmill::{Context, Push, Sawmill, Worker, WorkerBuilder};

use super::faulty_store::{FaultyStore, history};
use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Peek, Place, Subject, eventually, orders_done, soon, topic};

fn ordered(mill: &Sawmill, slots: usize) -> WorkerBuilder {
    mill.worker("orders").ordered().concurrency(slots).ttl(LONG_TTL).poll(POLL)
}

fn one_per_key(keys: &[String], payload: &str) -> Vec<Push> {
    keys.iter().map(|key| Push::new(payload.to_owned()).key(key.clone())).collect()
}

/// Asserts that no recorded state of a shard has claims of two workers.
fn assert_one_holder_each(peek: &Peek, stores: &[&FaultyStore]) {
    for shard in 0..peek.topic.shards {
        for state in history(stores, &peek.key(shard)) {
            let holders: BTreeSet<_> = state.claims.iter().map(|claim| &claim.owner).collect();
            assert!(holders.len() <= 1, "shard {shard}: {state:?}");
        }
    }
}

/// Asserts that no run of a key began before the previous one had ended.
fn assert_one_at_a_time(gated: &GatedHandler, keys: &[String]) {
    let runs = gated.runs();
    for key in keys {
        let of_key: Vec<_> = runs.iter().enumerate().filter(|(_, run)| run.key() == *key).collect();
        for pair in of_key.windows(2) {
            assert!(pair[0].1.ended_after.is_some_and(|end| end <= pair[1].0), "{key}");
        }
    }
}

pub async fn q1_a_worker_handles_many_queues_and_no_shard_has_two_workers(on: Subject) {
    let place = on.place();
    let stores = [place.faulty(), place.faulty(), place.faulty()];
    let mill = place.mill().await;
    let orders = topic(&mill, "orders", 4).await;
    topic(&mill, "returns", 2).await;
    let gated = GatedHandler::open();
    let mut workers = Vec::new();
    for (faulty, name) in stores.iter().zip(["a", "b", "c"]) {
        let builder =
            faulty.mill().worker_for(["orders", "returns"]).ordered().concurrency(2).ttl(LONG_TTL).poll(POLL);
        workers.push(builder.start(gated.seat(name)).await.unwrap());
    }
    let keys: Vec<String> = (0..20).map(|i| format!("key-{i}")).collect();
    for round in 0..10 {
        mill.push_many("orders", one_per_key(&keys, &round.to_string())).await.unwrap();
        mill.push("returns", Push::new(round.to_string()).key("back")).await.unwrap();
    }
    gated.ended(210).await;
    for worker in workers {
        worker.stop().await;
    }
    assert_one_holder_each(&Peek::new(&place, &orders, "default"), &stores.iter().collect::<Vec<_>>());
    let keys = [keys, vec!["back".to_owned()]].concat();
    assert_one_at_a_time(&gated, &keys);
    for key in &keys {
        let rounds: Vec<String> =
            gated.runs().iter().filter(|r| r.key() == *key).map(|r| r.payload()).collect();
        assert_eq!(rounds, (0..10).map(|round| round.to_string()).collect::<Vec<_>>(), "{key}");
    }
    let topics: BTreeSet<_> = gated.runs().iter().map(|run| run.context.topic().to_owned()).collect();
    assert_eq!(topics.into_iter().collect::<Vec<_>>(), ["orders", "returns"]);
}

/// Starts workers, lets each refresh its view, then pushes one message to every shard. Returns the busy slots
/// and the reads of each worker.
async fn shares(place: &Place, shards: u16, workers: usize) -> (Vec<usize>, Vec<usize>) {
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", shards).await;
    let gated = GatedHandler::closed();
    let mut started: Vec<(FaultyStore, Worker)> = Vec::new();
    for name in 0..workers {
        let faulty = place.faulty();
        let worker = ordered(&faulty.mill(), 16).start(gated.seat(&name.to_string())).await.unwrap();
        started.push((faulty, worker));
    }
    for (_, worker) in &started {
        soon("it looks around", worker.drained()).await;
    }
    let before: Vec<usize> = started.iter().map(|(faulty, _)| faulty.reads(&topic).len()).collect();
    mill.push_many("orders", one_per_key(&place.key_per_shard(shards), "0")).await.unwrap();
    gated.started(shards.into()).await;
    for (faulty, _) in &started {
        faulty.looks_again(&topic).await;
    }
    let busy = started.iter().map(|(_, worker)| worker.state().busy).collect();
    let reads =
        started.iter().zip(before).map(|((faulty, _), before)| faulty.reads(&topic).len() - before).collect();
    gated.release_all();
    for (_, worker) in started {
        worker.stop().await;
    }
    (busy, reads)
}

pub async fn q2_shards_are_shared_out_and_surplus_workers_idle_without_load(on: Subject) {
    let (busy, _) = shares(&on.place(), 3, 3).await;
    assert_eq!(busy, [1, 1, 1], "as many shards as workers");
    let (busy, _) = shares(&on.place(), 6, 3).await;
    assert_eq!(busy, [2, 2, 2], "more shards than workers");
    let (busy, reads) = shares(&on.place(), 1, 3).await;
    for (busy, reads) in busy.iter().zip(&reads) {
        assert_eq!(*reads > 0, *busy > 0, "who has no shard does not read: {reads:?}");
    }
    assert_eq!(busy.iter().sum::<usize>(), 1, "fewer shards than workers");
}

pub async fn q4_a_shard_moves_only_when_its_old_holder_has_let_go(on: Subject) {
    let place = on.place();
    let (mill, tap_a, tap_b) = (place.mill().await, place.faulty(), place.faulty());
    let topic = topic(&mill, "orders", 8).await;
    let peek = Peek::new(&place, &topic, "default");
    let (keys, gated) = (place.key_per_shard(8), GatedHandler::closed());
    let a = ordered(&tap_a.mill(), 8).start(gated.seat("a")).await.unwrap();
    mill.push_many("orders", one_per_key(&keys, "1")).await.unwrap();
    gated.started(8).await;

    // A worker joins and is to get half of the shards. The old holder is still busy on all of them.
    let b = ordered(&tap_b.mill(), 8).start(gated.seat("b")).await.unwrap();
    soon("the new one looks around", b.drained()).await;
    eventually("the old one sees the new one", async || a.counts().rebalances == 2).await;
    mill.push_many("orders", one_per_key(&keys, "2")).await.unwrap();
    tap_b.looks_again(&topic).await;
    assert_eq!(gated.runs_of("b").len(), 0, "it waits until the old holder lets go");
    gated.release(8);
    gated.started(16).await;
    assert_eq!((gated.runs_of("a").len(), gated.runs_of("b").len()), (12, 4));
    gated.release(8);
    gated.ended(16).await;

    // It leaves, and its shards come back.
    b.stop().await;
    mill.push_many("orders", one_per_key(&keys, "3")).await.unwrap();
    gated.release_all();
    gated.ended(24).await;
    assert_eq!((gated.runs_of("a").len(), gated.runs_of("b").len()), (20, 4));
    a.stop().await;
    assert_one_at_a_time(&gated, &keys);
    assert_one_holder_each(&peek, &[&tap_a, &tap_b]);
}

/// Returns a handler that passes messages that say so to `block`, and the rest to `quick`.
fn blocking(block: &GatedHandler, quick: &GatedHandler, name: &str) -> impl Handler {
    let (block, quick) = (block.seat(name), quick.seat(name));
    let handler = move |context: Context| match &context.payload()[..] {
        b"block" => block.call(context),
        _ => quick.call(context),
    };
    handler.into_handler()
}

pub async fn g2_membership_changes_move_work_without_any_stop(on: Subject) {
    let place = on.place();
    let (mill, tap_a, tap_b) = (place.mill().await, place.faulty(), place.faulty());
    let topic = topic(&mill, "orders", 8).await;
    let (block, quick) = (GatedHandler::closed(), GatedHandler::open());
    let keys = place.key_per_shard(8);
    let a = ordered(&tap_a.mill(), 4).start(blocking(&block, &quick, "a")).await.unwrap();
    mill.push("orders", Push::new("block").key(keys[0].clone())).await.unwrap();
    block.started(1).await;
    let rest = &keys[1..];
    mill.push_many("orders", one_per_key(rest, "1")).await.unwrap();
    quick.ended(7).await;

    // One handler runs through everything that follows. Nothing waits for it or stops it.
    let b = ordered(&tap_b.mill(), 4).start(blocking(&block, &quick, "b")).await.unwrap();
    eventually("both see each other", async || a.counts().rebalances == 2 && b.counts().rebalances >= 1)
        .await;
    mill.push_many("orders", one_per_key(rest, "2")).await.unwrap();
    quick.ended(14).await;
    let moved = quick.runs_of("b").len();
    assert!((3..=4).contains(&moved), "{moved} of the eight shards have moved");
    b.stop().await;
    mill.push_many("orders", one_per_key(rest, "3")).await.unwrap();
    quick.ended(21).await;
    assert_eq!(quick.runs_of("b").len(), moved);

    let run = block.runs().remove(0);
    assert!(!run.context.is_cancelled() && run.ended_after.is_none());
    block.release_all();
    orders_done(&mill, 22).await;
    assert_eq!((block.count(), quick.count()), (1, 21));
    a.stop().await;
    assert_one_at_a_time(&quick, &keys);
    assert_one_holder_each(&Peek::new(&place, &topic, "default"), &[&tap_a, &tap_b]);
}

pub async fn q6_losing_a_shard_drops_what_was_cached_of_it(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    let gated = GatedHandler::closed();
    let worker = ordered(&mill, 2).start(gated.seat("one")).await.unwrap();
    mill.push_many("orders", ["0", "1", "2"].map(|payload| Push::new(payload).key("k"))).await.unwrap();
    gated.started(1).await;
    eventually("the others wait in memory", async || worker.state().claimed == 3).await;

    let thief = peek.join_silently("thief").await;
    let rules = Rules { ordered: true, once: false };
    let claims = peek.take_over(0, &thief, rules).await;
    soon("the handler is told", gated.runs()[0].context.cancelled()).await;
    eventually("nothing is kept", async || worker.state().claimed == 0).await;
    gated.release_all();
    gated.ended(1).await;

    // When the shard comes back, it is read anew from the start, since nothing was done under the present
    // claim. A run from cached messages would appear twice.
    let (expect, mut state) = peek.shard(0).await;
    for claim in &claims {
        state.give_back(&thief, claim.token).unwrap();
    }
    let write = Write { key: peek.key(0), expect, value: Some(state.encode()) };
    assert!(matches!(peek.store.ledger.commit(write).await.unwrap(), Commit::Done(_)));
    gated.ended(4).await;
    assert_eq!(gated.payloads(), ["0", "0", "1", "2"]);
    worker.stop().await;
}
