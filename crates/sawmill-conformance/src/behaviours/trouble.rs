//! Faults: the coordinator is lost, the store is down, a worker dies, everything is restarted.

use futures_util::FutureExt;
use sawmill::engine::runtime::Env;
use sawmill::{Delivery, Push};

use super::gated_handler::GatedHandler;
use super::support::{
    POLL, Peek, Place, SHORT_TTL, Subject, counted, eventually, numbered, orders_done, soon, topic,
};

pub async fn q5_without_its_coordinator_a_worker_starts_nothing_and_goes_on_when_it_is_back(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = place.mill().await;
    topic(&mill, "orders", 1).await;
    let gated = GatedHandler::closed();
    let worker = faulty
        .mill()
        .worker("orders")
        .concurrency(2)
        .ttl(SHORT_TTL)
        .poll(POLL)
        .start(gated.seat("one"))
        .await
        .unwrap();
    let me = worker.state().id;
    mill.push_many("orders", ["0", "1", "2"].map(|payload| Push::new(payload).key("k"))).await.unwrap();
    gated.started(1).await;
    eventually("two more are in hand", async || worker.state().claimed == 3).await;

    // Only the ledger is down; the log still answers. After a TTL, which takes its time, others may have
    // declared it dead.
    faulty.ledger_is_down(true);
    Env::system().sleep(SHORT_TTL).await;
    gated.release(1);
    gated.ended(1).await;
    mill.push("orders", "3").await.unwrap();
    eventually("the worker knows", async || worker.counts().done == 1).await;
    let refused = faulty.refused();
    eventually("it keeps trying", async || faulty.refused() > refused + 3).await;
    assert_eq!(gated.payloads(), ["0"], "a slot is free, there are messages in hand, and none is started");

    faulty.ledger_is_down(false);
    gated.release_all();
    gated.ended(4).await;
    orders_done(&mill, 4).await;
    assert_eq!(gated.numbers(), [0, 1, 2, 3], "nobody took over, so that nothing is run twice");
    assert_eq!(worker.state().id, me);
    worker.stop().await;
}

pub async fn q14_when_the_store_is_down_the_worker_stays_alive_and_waits(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = place.mill().await;
    topic(&mill, "orders", 2).await;
    let gated = GatedHandler::closed();
    let worker = faulty
        .mill()
        .worker("orders")
        .concurrency(2)
        .ttl(SHORT_TTL)
        .poll(POLL)
        .start(gated.seat("one"))
        .await
        .unwrap();
    mill.push("orders", "0").await.unwrap();
    gated.started(1).await;

    faulty.is_down(true);
    gated.release_all();
    gated.ended(1).await;
    mill.push("orders", "1").await.unwrap();
    Env::system().sleep(SHORT_TTL).await;
    let refused = faulty.refused();
    eventually("it keeps trying", async || faulty.refused() > refused + 3).await;
    assert_eq!((worker.ended().now_or_never(), gated.count()), (None, 1));
    assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, 0);

    faulty.is_down(false);
    gated.ended(2).await;
    orders_done(&mill, 2).await;
    assert_eq!(gated.numbers(), [0, 1], "what ended meanwhile is reported, not run again");
    worker.stop().await;
}

pub async fn g10_at_most_once_a_death_loses_what_was_claimed_and_no_more(on: Subject) {
    for most in [1, 4] {
        let place = on.place();
        let faulty = place.faulty();
        let mill = place.mill().await;
        topic(&mill, "orders", 2).await;
        let ids = mill.push_many("orders", numbered(0..12)).await.unwrap();
        let once = |mill: &sawmill::Sawmill| {
            mill.worker("orders").delivery(Delivery::AtMostOnce).concurrency(8).ttl(SHORT_TTL).poll(POLL)
        };
        let (doomed, gated) = (GatedHandler::closed(), GatedHandler::open());
        let dying = once(&faulty.mill()).max_in_flight(most).start(doomed.seat("dying")).await.unwrap();
        doomed.started(most).await;
        faulty.is_down(true);
        assert_eq!(dying.state().claimed, most, "how much may be lost is a setting");

        let worker = once(&mill).start(gated.seat("living")).await.unwrap();
        let dead = mill.admin().dead_letters("orders", "default").await.unwrap();
        counted("dead letters", most, async || dead.list(100).await.unwrap().len()).await;
        gated.ended(12 - most).await;
        worker.drained().await;
        let mut all = [doomed.numbers(), gated.numbers()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..12).collect::<Vec<_>>(), "nothing was started twice");
        let mut lost = Vec::new();
        for letter in dead.list(100).await.unwrap() {
            assert!(letter.reason().contains("lost"), "{}", letter.reason());
            lost.push(letter.id());
        }
        lost.sort_unstable();
        let mut held: Vec<_> = doomed.runs().iter().map(|run| run.context.id()).collect();
        held.sort_unstable();
        assert_eq!(lost, held);
        assert!(lost.iter().all(|id| ids.contains(id)));
        let status = mill.admin().status("orders", "default").await.unwrap();
        assert_eq!((status.done, status.dead), (12 - most as u64, most as u64), "{status:?}");
        worker.stop().await;
    }
}

/// Runs the work in a simulated process that is killed at its end, without a clean shutdown.
fn run_process(place: &Place, work: impl AsyncFnOnce(&Place)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work(place));
}

pub fn q8_progress_survives_restarts_of_everything(on: Subject) {
    let place = on.place();
    let (first, second, third) = (GatedHandler::closed(), GatedHandler::open(), GatedHandler::open());
    run_process(&place, async |place| {
        let mill = place.mill().await;
        let topic = topic(&mill, "orders", 1).await;
        let peek = Peek::new(place, &topic, "default");
        mill.push_many("orders", numbered(0..20)).await.unwrap();
        let builder = mill.worker("orders").concurrency(8).ttl(SHORT_TTL).poll(POLL);
        let _worker = builder.start(first.seat("one")).await.unwrap();
        first.started(8).await;
        first.release(6);
        first.ended(6).await;
        counted("done on record", 6, async || peek.shard(0).await.1.tally.done as usize).await;
    });
    let done: Vec<_> =
        first.runs().iter().filter(|run| run.ended_after.is_some()).map(|run| run.payload()).collect();
    assert_eq!(done.len(), 6);

    run_process(&place, async |place| {
        let mill = place.mill().await;
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, 6);
        let builder = mill.worker("orders").concurrency(8).ttl(SHORT_TTL).poll(POLL);
        let worker = builder.start(second.seat("two")).await.unwrap();
        second.ended(14).await;
        orders_done(&mill, 20).await;
        soon("nothing is left", worker.drained()).await;
    });
    let again: Vec<_> = second.payloads().into_iter().filter(|payload| done.contains(payload)).collect();
    assert_eq!((again.len(), second.count()), (0, 14), "{again:?} were done before");

    run_process(&place, async |place| {
        let mill = place.mill().await;
        let worker =
            mill.worker("orders").ttl(SHORT_TTL).poll(POLL).start(third.seat("three")).await.unwrap();
        soon("nothing is left", worker.drained()).await;
        worker.stop().await;
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, 20);
    });
    assert_eq!(third.count(), 0);
}
