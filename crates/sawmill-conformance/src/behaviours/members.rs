//! Members: workers join, send heartbeats and leave, alone or in a crowd. Silent ones are removed, and
//! removed ones join again.

use std::collections::BTreeSet;

use sawmill::engine::model::Member;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Commit, Entry, EntryKey, Write};
use tokio::task::JoinSet;

use super::gated_handler::GatedHandler;
use super::support::{
    LONG_TTL, POLL, Peek, SHORT_TTL, SILENT_TTL, Subject, eventually, numbered, orders_done, soon, topic,
};

pub async fn g1_workers_beat_and_only_who_is_silent_for_the_limit_is_removed(on: Subject) {
    // The live workers have a longer TTL than the silent one, so they are not declared dead on a busy
    // machine.
    let (place, env, ttl) = (on.place(), Env::system(), 3 * SILENT_TTL);
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 2).await;
    let peek = Peek::new(&place, &topic, "default");
    let gated = GatedHandler::open();
    let mut ids = BTreeSet::new();
    let mut workers = Vec::new();
    for name in ["one", "two"] {
        let builder = place.mill().await.worker("orders").name(name).concurrency(3).ttl(ttl).poll(POLL);
        let worker = builder.start(gated.seat(name)).await.unwrap();
        ids.insert(worker.state().id.unwrap().to_string());
        workers.push(worker);
    }
    assert_eq!(peek.member_ids().await.into_iter().collect::<BTreeSet<_>>(), ids);
    let before = peek.members().await;
    let member = Member::decode(&before[0].key, &before[0].value).unwrap();
    assert_eq!(member.slots, 3);
    assert!(member.topics.contains(&topic.uid));

    let (joined, silent) = (env.now(), peek.join_silently("silent").await);
    eventually("the silent one is removed", async || !peek.member_ids().await.contains(&silent.to_string()))
        .await;
    assert!(env.now().since(joined) >= SILENT_TTL, "not before its time");

    // The live workers are still there, each with a higher heartbeat.
    let beat = |entry: &Entry| Member::decode(&entry.key, &entry.value).unwrap().beat;
    let mut after = Vec::new();
    eventually("all have beaten", async || {
        after = peek.members().await;
        before.iter().zip(&after).all(|(before, after)| beat(after) > beat(before))
    })
    .await;
    assert_eq!(after.iter().map(|entry| entry.key.last().to_owned()).collect::<BTreeSet<_>>(), ids);
    for (before, after) in before.iter().zip(&after) {
        assert!(after.version > before.version, "{after:?}");
    }
    for worker in workers {
        assert_eq!(worker.stop().await.rejoined, 0);
    }
}

pub async fn q3_workers_register_at_start_and_unregister_at_stop(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 2).await;
    let peek = Peek::new(&place, &topic, "default");
    assert!(peek.members().await.is_empty());
    let gated = GatedHandler::open();
    let start = async |name: &str| {
        let builder = mill.worker("orders").name(name).ttl(LONG_TTL).poll(POLL);
        builder.start(gated.seat(name)).await.unwrap()
    };
    let (one, two) = (start("one").await, start("two").await);
    let ids = [one.state().id.unwrap().to_string(), two.state().id.unwrap().to_string()];
    assert!(ids[0].starts_with("one-") && ids[1].starts_with("two-"), "{ids:?}");
    assert_eq!(peek.member_ids().await, ids);
    one.stop().await;
    assert_eq!(peek.member_ids().await, ids[1..]);
    two.abort().await;
    assert!(peek.members().await.is_empty(), "also when it is made to stop at once");

    let again = start("one").await;
    assert_ne!(again.state().id.unwrap().as_str(), ids[0], "a new id at each start");
    again.stop().await;
}

pub async fn g8_a_graceful_stop_finishes_what_runs_and_then_leaves(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    mill.push_many("orders", numbered(0..10)).await.unwrap();
    let gated = GatedHandler::closed();
    let worker =
        mill.worker("orders").concurrency(3).ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    gated.started(3).await;

    let me = worker.state().id;
    let (said, mut heard) = tokio::sync::oneshot::channel();
    Env::system().spawn(async move {
        let _ = said.send(worker.stop().await);
    });
    let runs = gated.runs();
    soon("the handlers hear of it", runs[0].context.stopping()).await;
    // It waits for running handlers. Until then it stays a member and keeps its claims. Finished messages are
    // already on record, so it had the chance to leave.
    gated.release(2);
    gated.ended(2).await;
    orders_done(&mill, 2).await;
    assert!(heard.try_recv().is_err());
    assert_eq!(peek.members().await.len(), 1);
    assert!(peek.claims().await.iter().any(|claim| claim.owner == me && claim.open() > 0));
    assert!(runs.iter().all(|run| !run.context.is_cancelled()));
    gated.release(1);
    let counts = soon("it stops", heard).await.unwrap();
    assert_eq!((counts.started, counts.done), (3, 3));
    assert!(peek.members().await.is_empty());
    assert!(peek.claims().await.iter().all(|claim| claim.owner.is_none()), "all is given back");

    // The next worker takes up the rest at once, without waiting for a TTL.
    let next = GatedHandler::open();
    let worker = mill.worker("orders").ttl(LONG_TTL).start(next.seat("two")).await.unwrap();
    next.ended(7).await;
    let mut all = [gated.numbers(), next.numbers()].concat();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    worker.stop().await;
}

pub async fn g14_a_worker_that_finds_itself_removed_registers_again(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    let gated = GatedHandler::closed();
    let worker = mill
        .worker("orders")
        .concurrency(2)
        .ttl(SHORT_TTL)
        .poll(POLL)
        .start(gated.seat("one"))
        .await
        .unwrap();
    mill.push("orders", "0").await.unwrap();
    gated.started(1).await;
    let old = worker.state().id.unwrap();

    // Another worker removes it while its handler runs. A heartbeat may come between the read and the delete.
    eventually("it is removed", async || {
        let entry = peek.members().await.remove(0);
        let write = Write { key: entry.key, expect: Some(entry.version), value: None };
        matches!(peek.store.ledger.commit(write).await.unwrap(), Commit::Done(_))
    })
    .await;
    eventually("it joins again", async || {
        worker.state().id.is_some_and(|id| id != old) && worker.counts().rejoined == 1
    })
    .await;
    let new = worker.state().id.unwrap();
    assert_eq!(peek.member_ids().await, [new.to_string()]);
    assert!(peek.store.ledger.get(&EntryKey::member(&peek.group, old.as_str())).await.unwrap().is_none());

    // The claim of its previous incarnation is lost: the handler is told, and its outcome does not count.
    let first = gated.runs().remove(0);
    soon("the first run is cancelled", first.context.cancelled()).await;
    gated.started(2).await;
    let second = gated.runs().remove(1);
    assert_eq!((second.context.id(), second.context.attempt()), (first.context.id(), 2));
    assert!(second.context.token() > first.context.token());
    let claims = peek.claims().await;
    assert_eq!((claims.len(), &claims[0].owner), (1, &Some(new)));
    gated.release(1);
    gated.ended(1).await;
    assert_eq!(peek.shard(0).await.1.tally.done, 0, "the first run ended, and it is not done");
    gated.release_all();
    eventually("the second run counts", async || peek.shard(0).await.1.tally.done == 1).await;
    assert!(peek.claims().await.is_empty());
    assert_eq!(worker.stop().await.done, 1);
}

const WORKERS: usize = 10;
const MESSAGES: usize = 1000;

pub async fn q7_ten_workers_that_start_or_stop_together_settle_without_a_storm(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 16).await;
    let peek = Peek::new(&place, &topic, "default");
    mill.push_many("orders", numbered(0..MESSAGES)).await.unwrap();
    let (gated, stores) = (GatedHandler::open(), (0..WORKERS).map(|_| place.faulty()).collect::<Vec<_>>());

    let mut starting = JoinSet::new();
    for (number, faulty) in stores.iter().enumerate() {
        let builder = faulty.mill().worker("orders").concurrency(2).ttl(LONG_TTL).poll(POLL);
        let seat = gated.seat(&number.to_string());
        starting.spawn(async move { builder.start(seat).await.unwrap() });
    }
    let workers = soon("all start", starting.join_all()).await;
    gated.ended(MESSAGES).await;
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
        stopping.spawn(async move { worker.stop().await });
    }
    let counts = soon("all stop", stopping.join_all()).await;
    assert!(peek.members().await.is_empty());
    assert!(peek.claims().await.is_empty());
    assert_eq!(gated.numbers(), (0..MESSAGES).collect::<Vec<_>>(), "each is run once");
    orders_done(&mill, MESSAGES as u64).await;

    // The cost is a few writes for each worker and shard, far fewer than one for each message and worker.
    let conflicts: u64 = counts.iter().map(|counts| counts.conflicts).sum();
    let commits: usize = stores.iter().map(|faulty| faulty.commits()).sum();
    assert!(commits <= MESSAGES, "{commits} commits, {conflicts} conflicts");
    assert!(conflicts <= MESSAGES as u64 / 2, "{commits} commits, {conflicts} conflicts");
}
