//! Flow control: priority, pausing and limits decide which message starts next. Tested in memory and on a
//! real engine.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sawmill::engine::runtime::{Clock, Env, Moment, SystemClock, SystemRng};
use sawmill::{Context, ErrorKind, Limit, Push, Sawmill, Timestamp, Worker, WorkerBuilder};

use super::both::TokioSpawn;
use super::faulty_store::FaultyStore;
use super::gated_handler::GatedHandler;
use super::place::Seams;
use super::support::{
    LONG_TTL, POLL, Peek, Place, Subject, eventually, group_has_done, numbered, orders_done, soon, topic,
};

/// A store for several workers, and the guard that keeps it alive.
enum SharedStore {
    Memory(Seams),
    Real(Place),
}

impl SharedStore {
    /// Makes one on each engine.
    async fn each(on: Subject) -> [(&'static str, SharedStore); 2] {
        [("memory", SharedStore::Memory(Seams::memory())), (on.engine, SharedStore::Real(on.place()))]
    }

    /// Opens the store, as a separate process would where that is possible.
    async fn mill(&self) -> Sawmill {
        match self {
            SharedStore::Memory(_) => self.faulty().mill(),
            SharedStore::Real(place) => place.mill().await,
        }
    }

    /// The same, for a worker whose refreshes the test must observe.
    fn faulty(&self) -> FaultyStore {
        match self {
            SharedStore::Memory(seams) => FaultyStore::new(seams.clone()),
            SharedStore::Real(place) => place.faulty(),
        }
    }
}

/// Returns a worker of the topic `orders` with a limit.
fn limited(mill: &Sawmill, limit: Limit, name: &str) -> WorkerBuilder {
    mill.worker("orders").name(name).concurrency(8).ttl(LONG_TTL).poll(POLL).limit(limit)
}

pub async fn q10_a_topic_with_priority_goes_before_what_is_in_hand_of_another(on: Subject) {
    for (engine, store) in SharedStore::each(on).await {
        let mill = store.mill().await;
        let first_topic = topic(&mill, "urgent", 2).await;
        topic(&mill, "bulk", 2).await;
        mill.push_many("bulk", (0..3000).map(|i| Push::new(format!("bulk {i}")))).await.unwrap();
        let gated = GatedHandler::closed();
        let faulty = store.faulty();
        let builder = faulty.mill().worker_for(["urgent", "bulk"]).concurrency(2).ttl(LONG_TTL).poll(POLL);
        let worker = builder.start(gated.seat("one")).await.unwrap();
        // The worker learns that handlers are quick, and claims much of the backlog.
        gated.started(2).await;
        gated.release(500);
        eventually("it has plenty in hand", async || worker.state().claimed > 50).await;
        gated.ended(500).await;
        for round in 0..3 {
            let urgent = format!("urgent {round}");
            let before = gated.count();
            mill.push("urgent", urgent.clone()).await.unwrap();
            eventually("it is claimed", async || {
                mill.admin().status("urgent", "default").await.unwrap().claimed == 1
            })
            .await;
            // The ledger has it a moment before the worker learns of it.
            faulty.looks_again(&first_topic).await;
            // Running handlers are not interrupted; the message is next, before all others that are claimed.
            while !gated.payloads().contains(&urgent) {
                let ended = gated.count() - 2;
                gated.release(1);
                gated.ended(ended + 1).await;
                assert!(gated.count() < before + 20, "{engine}: it does not start");
                tokio::task::yield_now().await;
            }
            // It must end before the next push, so that the ledger's count refers to that one.
            let ended = gated.count() - 2;
            gated.release(2);
            gated.ended(ended + 2).await;
            group_has_done(&mill, "urgent", "default", round + 1).await;
        }
        gated.release_all();
        gated.ended(3003).await;
        worker.stop().await;
    }
}

pub async fn q22_a_paused_group_starts_nothing_and_goes_on_when_it_is_resumed(on: Subject) {
    for (engine, store) in SharedStore::each(on).await {
        let (mill, faulty) = (store.mill().await, store.faulty());
        let orders = topic(&mill, "orders", 2).await;
        topic(&mill, "others", 1).await;
        mill.push_many("orders", numbered(0..40)).await.unwrap();
        let gated = GatedHandler::closed();
        let builder = faulty.mill().worker_for(["orders", "others"]).concurrency(4).ttl(LONG_TTL).poll(POLL);
        let worker = builder.start(gated.seat("one")).await.unwrap();
        gated.started(4).await;
        mill.admin().pause("orders", "default").await.unwrap();
        assert!(mill.admin().status("orders", "default").await.unwrap().paused, "{engine}");
        assert!(!mill.admin().status("others", "default").await.unwrap().paused, "{engine}");
        faulty.looks_again(&orders).await;
        let before = gated.count();
        // Running handlers end normally; no message takes their place.
        gated.release_all();
        gated.ended(before).await;
        // The remaining messages must wait, and other topics continue.
        worker.drained().await;
        assert_eq!(gated.count(), before, "{engine}");
        mill.push("others", "1000").await.unwrap();
        gated.ended(before + 1).await;
        // Another worker that joins starts nothing either.
        let late = GatedHandler::open();
        let other = store.mill().await.worker("orders").ttl(LONG_TTL).poll(POLL);
        let other = other.start(late.seat("late")).await.unwrap();
        other.drained().await;
        assert_eq!((gated.count(), late.count()), (before + 1, 0), "{engine}");
        // A worker that stops gives back its claims.
        worker.stop().await;
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().done as usize, before, "{engine}");
        mill.admin().resume("orders", "default").await.unwrap();
        assert!(!mill.admin().status("orders", "default").await.unwrap().paused);
        late.ended(40 - before).await;
        other.stop().await;
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, 40, "{engine}");
    }
}

pub async fn q22_pausing_moves_no_claim(on: Subject) {
    let place = on.place();
    let (mill, faulty) = (place.mill().await, place.faulty());
    let orders = topic(&mill, "orders", 1).await;
    mill.push_many("orders", (0..20).map(|i| Push::new(i.to_string()).key("k"))).await.unwrap();
    let gated = GatedHandler::closed();
    let worker = faulty.mill().worker("orders").ordered().concurrency(2).ttl(LONG_TTL).poll(POLL);
    let worker = worker.start(gated.seat("one")).await.unwrap();
    gated.started(1).await;
    eventually("some wait in line", async || worker.state().claimed > 1).await;
    mill.admin().pause("orders", "default").await.unwrap();
    faulty.looks_again(&orders).await;
    gated.release_all();
    gated.ended(1).await;
    faulty.looks_again(&orders).await;
    let peek = Peek::new(&place, &orders, "default");
    let id = worker.state().id;
    let owners: Vec<_> = peek.claims().await.into_iter().map(|claim| claim.owner).collect();
    assert!(!owners.is_empty() && owners.iter().all(|owner| *owner == id), "{owners:?}");
    assert_eq!(gated.count(), 1);
    mill.admin().resume("orders", "default").await.unwrap();
    gated.ended(20).await;
    assert_eq!(gated.payloads(), (0..20).map(|i| i.to_string()).collect::<Vec<_>>());
    worker.stop().await;
}

pub async fn a_group_may_be_paused_before_it_exists_and_a_topic_may_not(on: Subject) {
    for (engine, store) in SharedStore::each(on).await {
        let mill = store.mill().await;
        let error = mill.admin().pause("orders", "default").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{engine}");
        topic(&mill, "orders", 1).await;
        assert!(mill.admin().pause("orders", "not a name").await.is_err());
        mill.admin().resume("orders", "default").await.unwrap();
        mill.admin().pause("orders", "default").await.unwrap();
        mill.admin().pause("orders", "default").await.unwrap();
        mill.push("orders", "0").await.unwrap();
        let (paused, free) = (GatedHandler::open(), GatedHandler::open());
        let worker = mill.worker("orders").ttl(LONG_TTL).poll(POLL);
        let one = worker.clone().start(paused.seat("one")).await.unwrap();
        let two = worker.group("free").start(free.seat("two")).await.unwrap();
        free.ended(1).await;
        one.drained().await;
        assert_eq!(paused.count(), 0, "{engine}: groups share nothing");
        mill.admin().resume("orders", "default").await.unwrap();
        paused.ended(1).await;
        // Deleting the topic deletes the setting.
        one.stop().await;
        two.stop().await;
        mill.admin().pause("orders", "default").await.unwrap();
        mill.admin().delete_topic("orders").await.unwrap();
        topic(&mill, "orders", 1).await;
        assert!(!mill.admin().status("orders", "default").await.unwrap().paused, "{engine}");
    }
}

/// Records how many handlers run at once.
#[derive(Clone, Default)]
struct Gauge(Arc<Mutex<(usize, usize)>>);

impl Gauge {
    fn enter(&self) {
        let mut gauge = self.0.lock().unwrap();
        gauge.0 += 1;
        gauge.1 = gauge.1.max(gauge.0);
    }

    fn leave(&self) {
        self.0.lock().unwrap().0 -= 1;
    }

    fn most(&self) -> usize {
        self.0.lock().unwrap().1
    }
}

pub async fn two_workers_never_run_more_than_the_limit_of_their_group(on: Subject) {
    for (engine, store) in SharedStore::each(on).await {
        let mill = store.mill().await;
        topic(&mill, "orders", 4).await;
        mill.push_many("orders", numbered(0..300)).await.unwrap();
        let gauge = Gauge::default();
        let mut workers: Vec<Worker> = Vec::new();
        for name in ["one", "two", "three"] {
            let gauge = gauge.clone();
            let handler = move |_: Context| {
                let gauge = gauge.clone();
                gauge.enter();
                async move {
                    Env::system().sleep(Duration::from_millis(10)).await;
                    gauge.leave();
                }
            };
            let worker =
                store.mill().await.worker("orders").name(name).concurrency(8).ttl(LONG_TTL).poll(POLL);
            workers.push(worker.limit(Limit::running(3)).start(handler).await.unwrap());
            // The second worker joins while the first is working, and the first leaves again.
            eventually("it works", async || workers[0].counts().started > 10).await;
        }
        workers.remove(0).stop().await;
        // How long workers take to learn of one another depends on the engine, so there is work until then.
        let mut pushed = 300;
        eventually("each has its share", async || {
            mill.push_many("orders", numbered(0..10)).await.unwrap();
            pushed += 10;
            workers.iter().all(|worker| worker.counts().done > 0)
        })
        .await;
        orders_done(&mill, pushed).await;
        assert_eq!(gauge.most(), 3, "{engine}");
        for worker in workers {
            worker.stop().await;
        }
    }
}

pub async fn a_worker_that_joins_waits_for_what_runs_beyond_its_share(on: Subject) {
    for (engine, store) in SharedStore::each(on).await {
        let (mill, tap_one, tap_two) = (store.mill().await, store.faulty(), store.faulty());
        let orders = topic(&mill, "orders", 4).await;
        mill.push_many("orders", numbered(0..20)).await.unwrap();
        let gated = GatedHandler::closed();
        let both_look = async || {
            tap_one.looks_again(&orders).await;
            tap_two.looks_again(&orders).await;
        };
        let one = limited(&tap_one.mill(), Limit::running(2), "b").start(gated.seat("b")).await.unwrap();
        gated.started(2).await;
        let two = limited(&tap_two.mill(), Limit::running(2), "a").start(gated.seat("a")).await.unwrap();
        both_look().await;
        assert_eq!((gated.count(), two.state().claimed), (2, 0), "{engine}: both run at the first one's");
        gated.release(1);
        gated.started(3).await;
        both_look().await;
        assert_eq!((gated.count(), one.state().busy, two.state().busy), (3, 1, 1), "{engine}");
        // A worker that leaves frees its share.
        let last = gated.runs_of("b").pop().unwrap();
        let (stopped, ()) = futures_join(one.stop(), async {
            soon("it is to stop", last.context.stopping()).await;
            gated.release_all();
        })
        .await;
        assert!(stopped.started >= 2);
        gated.ended(20).await;
        assert_eq!(gated.numbers(), (0..20).collect::<Vec<_>>(), "{engine}");
        two.stop().await;
    }
}

async fn futures_join<A, B>(a: impl Future<Output = A>, b: impl Future<Output = B>) -> (A, B) {
    tokio::join!(a, b)
}

pub async fn what_others_are_to_run_is_given_back(on: Subject) {
    for ordered in [false, true] {
        for (engine, store) in SharedStore::each(on).await {
            let mill = store.mill().await;
            let orders = topic(&mill, "orders", 4).await;
            mill.push_many("orders", numbered(0..50)).await.unwrap();
            let gated = GatedHandler::closed();
            let builder = |mill: Sawmill, name: &str| {
                let builder = mill.worker("orders").name(name).concurrency(4).ttl(LONG_TTL).poll(POLL);
                let builder = if ordered { builder.ordered() } else { builder };
                builder.limit(Limit::running(1))
            };
            let mut workers = Vec::new();
            let stores = [store.faulty(), store.faulty(), store.faulty()];
            for (faulty, name) in stores.iter().zip(["c", "b", "a"]) {
                workers.push(builder(faulty.mill(), name).start(gated.seat(name)).await.unwrap());
                gated.started(1).await;
            }
            for faulty in &stores {
                faulty.looks_again(&orders).await;
            }
            assert_eq!(gated.count(), 1, "{engine}");
            gated.release_all();
            gated.ended(50).await;
            assert_eq!(gated.numbers(), (0..50).collect::<Vec<_>>(), "{engine}");
            assert!(!gated.runs_of("a").is_empty(), "{engine}: the first of them has it all in the end");
            for worker in workers {
                worker.drained().await;
                worker.stop().await;
            }
        }
    }
}

/// A clock that remembers its last answer. A handler is called right after its worker chose to start it, so
/// there it reads as that time.
#[derive(Clone, Default)]
struct RememberingClock(Arc<Mutex<Moment>>);

impl RememberingClock {
    fn last(&self) -> Moment {
        *self.0.lock().unwrap()
    }
}

impl Clock for RememberingClock {
    fn now(&self) -> Moment {
        let now = SystemClock.now();
        *self.0.lock().unwrap() = now;
        now
    }
    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration)
    }
}

pub async fn a_rate_holds_for_all_workers_of_a_group_together(on: Subject) {
    for (engine, store) in SharedStore::each(on).await {
        let mill = store.mill().await;
        topic(&mill, "orders", 4).await;
        mill.push_many("orders", numbered(0..60)).await.unwrap();
        let starts: Arc<Mutex<Vec<Moment>>> = Arc::default();
        let mut workers = Vec::new();
        for name in ["one", "two"] {
            // The handler uses the time at which its worker chose to start it. Its own clock may be later, so
            // that many starts appear at once.
            let (clock, starts) = (RememberingClock::default(), starts.clone());
            let mill = store.faulty().mill_in(Env::new(clock.clone(), SystemRng, TokioSpawn));
            let handler = move |_: Context| {
                starts.lock().unwrap().push(clock.last());
                async {}
            };
            workers.push(limited(&mill, Limit::per_second(40), name).start(handler).await.unwrap());
        }
        orders_done(&mill, 60).await;
        // In any second, at most the rate plus the reserve of two workers; on a busy machine it may be less.
        let starts = starts.lock().unwrap().clone();
        let second = Duration::from_secs(1);
        for start in &starts {
            let count = starts.iter().filter(|at| (*start..*start + second).contains(*at)).count();
            assert!(count <= 40 + 8, "{engine}: {count} in a second");
        }
        for worker in workers {
            worker.stop().await;
        }
    }
}

pub async fn a_rate_of_each_key_holds_up_that_key_alone(on: Subject) {
    for (engine, store) in SharedStore::each(on).await {
        let mill = store.mill().await;
        topic(&mill, "orders", 2).await;
        let busy = (0..3).map(|i| Push::new(format!("busy {i}")).key("busy"));
        let rest = (0..20).map(|i| Push::new(format!("rest {i}")).key(format!("key {i}")));
        mill.push_many("orders", busy.chain(rest)).await.unwrap();
        let (clock, starts) = (RememberingClock::default(), Arc::<Mutex<Vec<(Moment, String)>>>::default());
        let paced = store.faulty().mill_in(Env::new(clock.clone(), SystemRng, TokioSpawn));
        let worker = paced.worker("orders").ordered().concurrency(4).ttl(LONG_TTL).poll(POLL);
        let per_key = Limit::rate(1, Duration::from_millis(1500));
        let noted = starts.clone();
        let handler = move |context: Context| {
            let payload = String::from_utf8_lossy(context.payload()).into_owned();
            noted.lock().unwrap().push((clock.last(), payload));
            async {}
        };
        let worker = worker.limit_per_key(per_key).start(handler).await.unwrap();
        orders_done(&mill, 23).await;
        let starts = starts.lock().unwrap().clone();
        let of_key: Vec<_> = starts.iter().filter(|(_, payload)| payload.starts_with("busy")).collect();
        let payloads: Vec<_> = of_key.iter().map(|(_, payload)| &payload[..]).collect();
        assert_eq!(payloads, ["busy 0", "busy 1", "busy 2"]);
        for pair in of_key.windows(2) {
            let pause = pair[1].0.since(pair[0].0);
            assert!(pause >= Duration::from_millis(1400), "{engine}: {pause:?}");
        }
        // On a busy machine, all of them may take longer than the key has to wait.
        let last = &starts.last().unwrap().1;
        assert!(last == "busy 2", "test timed out: {engine}: the others start meanwhile; {last} came last");
        worker.stop().await;
    }
}

pub async fn limits_that_make_no_sense_are_refused_with_advice(_: Subject) {
    let mill = Sawmill::open("memory:").await.unwrap();
    topic(&mill, "orders", 1).await;
    let worker = || mill.worker("orders").ttl(LONG_TTL);
    for (worker, advice) in [
        (worker().limit(Limit::running(0)), "pause"),
        (worker().limit(Limit::per_second(0)), "pause"),
        (worker().limit(Limit::rate(1, Duration::ZERO)), "makes no sense"),
        (worker().limit_per_key(Limit::per_second(1)), ".ordered()"),
        (worker().ordered().limit_per_key(Limit::running(2)), "rate per key"),
    ] {
        let error = worker.start(|_: Context| async {}).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(advice), "{error}");
    }
}
