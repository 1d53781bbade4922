//! Slots: how many messages a worker takes, what it reports of itself, and that messages of one key wait for
//! one another.

use sawmill::Push;
use sawmill::worker::WaitingOn;

use super::faulty_store::history;
use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Peek, Subject, eventually, numbered, soon, topic};

pub async fn f3_a_worker_with_busy_slots_claims_what_the_free_ones_can_take(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = faulty.mill();
    let topic = topic(&mill, "orders", 1).await;
    let peek = Peek::new(&place, &topic, "default");
    let gated = GatedHandler::closed();
    let worker =
        mill.worker("orders").concurrency(4).ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    mill.push("orders", "0").await.unwrap();
    gated.started(1).await;
    mill.push_many("orders", numbered(1..100)).await.unwrap();
    gated.started(4).await;
    // It has every occasion to take more.
    for _ in 0..3 {
        let reads = faulty.reads(&topic).len();
        mill.push("orders", "more").await.unwrap();
        eventually("its slots are busy", async || worker.state().busy == 4).await;
        assert!(faulty.reads(&topic).len() <= reads + 1, "it does not even look");
    }
    let claimed: Vec<u64> = history(&[&faulty], &peek.key(0)).iter().map(|state| state.claimed()).collect();
    assert!(claimed.is_sorted(), "nothing was finished meanwhile: {claimed:?}");
    assert_eq!(claimed.last(), Some(&4), "{claimed:?}");
    assert_eq!(peek.shard(0).await.1.claimed(), 4);
    assert_eq!((gated.count(), worker.state().claimed), (4, 4));
    gated.release_all();
    gated.ended(103).await;
    worker.stop().await;
}

pub async fn f3_a_log_that_has_nothing_at_hand_yet_is_not_taken_for_an_empty_one(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = faulty.mill();
    topic(&mill, "orders", 2).await;
    mill.push_many("orders", numbered(0..5)).await.unwrap();
    let gated = GatedHandler::open();
    faulty.is_slow(4);
    let worker = mill.worker("orders").ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    soon("all is done", worker.drained()).await;
    assert_eq!(gated.count(), 5);
    worker.stop().await;
}

pub async fn f4_a_worker_says_what_it_waits_for_and_how_its_slots_are(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    topic(&mill, "orders", 1).await;
    let gated = GatedHandler::closed();
    let worker =
        mill.worker("orders").concurrency(2).ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    let state = worker.state();
    assert_eq!((state.concurrency, state.busy, state.claimed), (2, 0, 0));
    assert_eq!(state.waiting_on, WaitingOn::Messages);
    assert_eq!(state.waiting_on.to_string(), "waiting-on-messages");

    mill.push("orders", "0").await.unwrap();
    gated.started(1).await;
    let state = worker.state();
    assert_eq!((state.concurrency, state.busy, state.waiting_on), (2, 1, WaitingOn::Messages));

    mill.push("orders", "1").await.unwrap();
    gated.started(2).await;
    let state = worker.state();
    assert_eq!((state.concurrency, state.busy, state.claimed), (2, 2, 2));
    assert_eq!(state.waiting_on, WaitingOn::Slots);
    assert_ne!(state.waiting_on.to_string(), "waiting-on-messages");

    gated.release(1);
    eventually("a slot is free", async || worker.state().waiting_on == WaitingOn::Messages).await;
    assert_eq!(worker.state().busy, 1);
    gated.release(1);
    eventually("both are free", async || worker.state().busy == 0 && worker.state().claimed == 0).await;
    worker.stop().await;
}

pub async fn f10_messages_of_one_key_never_run_at_the_same_time_in_a_worker(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    topic(&mill, "orders", 2).await;
    let of = |key: &'static str| (0..10).map(move |i| Push::new(format!("{key}{i}")).key(key));
    mill.push_many("orders", of("a").chain(of("b"))).await.unwrap();
    let gated = GatedHandler::closed();
    let worker =
        mill.worker("orders").concurrency(4).ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    // Four slots and twenty claimed messages, but only two keys.
    eventually("all are in hand", async || worker.state().claimed == 20).await;
    for done in 0..20 {
        let wanted = 2.min(20 - done);
        eventually("one of each key runs", async || worker.state().busy >= wanted).await;
        assert!(worker.state().busy <= 2);
        gated.release(1);
        gated.ended(done + 1).await;
    }
    let runs = gated.runs();
    for key in ["a", "b"] {
        let of_key: Vec<_> = runs.iter().enumerate().filter(|(_, run)| run.key() == key).collect();
        let payloads: Vec<String> = of_key.iter().map(|(_, run)| run.payload()).collect();
        assert_eq!(payloads, (0..10).map(|i| format!("{key}{i}")).collect::<Vec<_>>());
        for pair in of_key.windows(2) {
            let (first, (next, _)) = (pair[0].1, pair[1]);
            assert!(first.ended_after.unwrap() <= next, "{} ran into the next one", first.payload());
        }
    }
    worker.stop().await;
}

pub async fn q9_messages_are_fetched_one_by_one_or_in_batches(on: Subject) {
    for (most, largest) in [(Some(1), 1), (Some(3), 3), (None, 8)] {
        let place = on.place();
        let faulty = place.faulty();
        let mill = faulty.mill();
        let topic = topic(&mill, "orders", 1).await;
        mill.push_many("orders", numbered(0..32)).await.unwrap();
        let gated = GatedHandler::closed();
        let mut builder = mill.worker("orders").concurrency(16).ttl(LONG_TTL).poll(POLL);
        if let Some(most) = most {
            builder = builder.max_in_flight(most);
        }
        let worker = builder.start(gated.seat("one")).await.unwrap();
        gated.started(most.unwrap_or(16)).await;
        gated.release_all();
        gated.ended(32).await;
        worker.stop().await;
        let states = history(&[&faulty], &Peek::new(&place, &topic, "default").key(0));
        let blocks: Vec<u32> =
            states.iter().flat_map(|state| &state.claims).map(|claim| claim.count).collect();
        match most {
            Some(_) => assert!(blocks.iter().all(|block| *block <= largest), "{blocks:?}"),
            None => assert!(blocks.iter().any(|block| *block >= largest), "{blocks:?}"),
        }
        let claimed = states.iter().map(|state| state.claimed() as usize).max();
        assert!(claimed <= most.or(Some(usize::MAX)), "{claimed:?} at once");
        assert_eq!(gated.numbers(), (0..32).collect::<Vec<_>>());
    }
}
