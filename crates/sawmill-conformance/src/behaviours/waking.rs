//! Wake-ups: at once by notifications, otherwise by polling, with growing intervals while there is nothing to
//! do.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::Timestamp;
use sawmill::engine::runtime::{Clock, Env, Moment, Spawn, SystemClock, SystemRng};

use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Subject, eventually, numbered, soon, topic};

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

struct TestSpawn;

impl Spawn for TestSpawn {
    fn spawn(&self, task: Task) {
        Env::system().spawn(task);
    }
}

/// A clock that stands still: every sleep is endless.
struct StoppedClock;

impl Clock for StoppedClock {
    fn now(&self) -> Moment {
        Moment::default()
    }
    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }
    fn sleep(&self, _: Duration) -> Task {
        Box::pin(std::future::pending())
    }
}

/// A clock that records the durations of sleeps.
#[derive(Clone, Default)]
struct RecordingClock(Arc<Mutex<Vec<Duration>>>);

impl Clock for RecordingClock {
    fn now(&self) -> Moment {
        SystemClock.now()
    }
    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }
    fn sleep(&self, duration: Duration) -> Task {
        self.0.lock().unwrap().push(duration);
        SystemClock.sleep(duration)
    }
}

pub async fn f11_a_push_wakes_a_waiting_worker(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = place.mill().await;
    topic(&mill, "orders", 4).await;
    // No timer will ever wake this worker.
    let still = faulty.mill_in(Env::new(StoppedClock, SystemRng, TestSpawn));
    let gated = GatedHandler::open();
    let worker = still.worker("orders").concurrency(2).ttl(LONG_TTL).start(gated.seat("one")).await.unwrap();
    soon("it has nothing to do", worker.drained()).await;
    for count in 1..=5 {
        mill.push("orders", "0").await.unwrap();
        gated.ended(count).await;
    }
    worker.abort().await;
}

pub async fn f11_polling_is_the_fallback_when_every_hint_is_lost(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = place.mill().await;
    topic(&mill, "orders", 4).await;
    faulty.is_deaf();
    let gated = GatedHandler::open();
    let deaf = faulty.mill();
    let worker =
        deaf.worker("orders").concurrency(2).ttl(LONG_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    soon("it has nothing to do", worker.drained()).await;
    for count in 1..=5 {
        mill.push("orders", "0").await.unwrap();
        gated.ended(count).await;
    }
    worker.stop().await;
}

pub async fn f13_a_full_block_is_followed_by_the_next_one_and_a_drained_shard_is_left_alone(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 1).await;
    mill.push_many("orders", numbered(0..50)).await.unwrap();
    faulty.is_deaf();
    // Neither a timer nor a notification makes this worker read again: it does so because its blocks were
    // full.
    let still = faulty.mill_in(Env::new(StoppedClock, SystemRng, TestSpawn));
    let gated = GatedHandler::open();
    let builder = still.worker("orders").concurrency(2).max_in_flight(5).ttl(LONG_TTL).poll(POLL);
    let worker = builder.start(gated.seat("one")).await.unwrap();
    gated.ended(50).await;
    assert_eq!(gated.numbers(), (0..50).collect::<Vec<_>>());
    assert!(faulty.reads(&topic).len() >= 10, "in blocks of five at most");

    // Now the shard is drained. The worker becomes idle and stays so, although there is a new message: a
    // worker of another group finds it, and polls several times.
    eventually("it is idle", async || worker.state().claimed == 0).await;
    let (other, told) = (place.faulty(), GatedHandler::open());
    let attentive = other.mill().worker("orders").group("other").ttl(LONG_TTL).poll(POLL);
    let attentive = attentive.start(told.seat("two")).await.unwrap();
    told.ended(50).await;
    other.looks_again(&topic).await;
    let reads = faulty.reads(&topic).len();
    mill.push("orders", "50").await.unwrap();
    told.ended(51).await;
    other.looks_again(&topic).await;
    assert_eq!((faulty.reads(&topic).len(), gated.count()), (reads, 50));
    attentive.stop().await;
    // It would have found the message, had it read.
    tokio::select! {
        () = worker.drained() => {}
        () = gated.ended(51) => {}
    }
    assert_eq!((faulty.reads(&topic).len() > reads, gated.count()), (true, 51));
    worker.abort().await;
}

pub async fn q18_idle_waiting_backs_off_with_jitter_and_resets_on_work(on: Subject) {
    let place = on.place();
    let faulty = place.faulty();
    let mill = place.mill().await;
    let topic = topic(&mill, "orders", 1).await;
    faulty.is_deaf();
    let (gated, noting) = (GatedHandler::open(), RecordingClock::default());
    let idle = faulty.mill_in(Env::new(noting.clone(), SystemRng, TestSpawn));
    let poll = Duration::from_millis(1280);
    let worker =
        idle.worker("orders").concurrency(1).ttl(LONG_TTL).poll(poll).start(gated.seat("one")).await.unwrap();
    // The test examines the requested sleeps, since the actual ones depend on the machine. Between two reads
    // the worker first sleeps 40 ms, give or take a quarter, then longer and longer; all its other sleeps are
    // longer than that.
    let asked = |from: usize| noting.0.lock().unwrap()[from..].to_vec();
    let is_short = |wait: &Duration| (poll * 3 / 128..=poll * 5 / 128).contains(wait);
    let is_long = |wait: &Duration| (poll * 3 / 16..=poll * 5 / 8).contains(wait);

    // While nothing comes, reads of the log become rarer.
    eventually("it has backed off", async || asked(0).iter().any(is_long)).await;
    let idle = asked(0);
    let backed_off = idle.iter().position(is_long).unwrap();
    assert!(idle[..backed_off].iter().any(is_short), "{idle:?}");
    assert!(faulty.reads(&topic).len() >= 4, "it looked after each wait: {idle:?}");
    eventually("it waits on", async || asked(backed_off).len() >= 4).await;
    let (noted, before) = (asked(0).len(), faulty.reads(&topic).len());
    assert!(!asked(backed_off)[..noted - backed_off].iter().any(is_short), "it stays so: {:?}", asked(0));

    // Work resets that.
    mill.push("orders", "0").await.unwrap();
    gated.ended(1).await;
    eventually("it looks often again", async || {
        asked(noted).iter().any(is_short) && faulty.reads(&topic).len() >= before + 4
    })
    .await;
    worker.stop().await;

    // The waits differ, so that many workers do not poll in step.
    let short: Vec<Duration> = asked(0).into_iter().filter(|wait| *wait < poll / 2).collect();
    let odd = short.iter().filter(|wait| wait.as_nanos() % 1_000_000 != 0).count();
    assert!(2 * odd > short.len(), "{short:?}");
}
