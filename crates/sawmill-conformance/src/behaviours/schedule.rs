//! Schedules: each tick is pushed once and on time, and missed ticks are handled as the schedule says.

use std::collections::BTreeSet;
use std::time::Duration;

use sawmill::engine::runtime::{Clock, Env};
use sawmill::{ErrorKind, Missed, Push, Sawmill, Schedule, Worker};

use super::both::both;
use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Subject, eventually, topic};

const DAY: Duration = Duration::from_secs(86_400);

async fn worker(mill: &Sawmill, group: &str, gated: &GatedHandler) -> Worker {
    let builder = mill.worker("reports").group(group).concurrency(2).ttl(LONG_TTL).poll(POLL);
    builder.start(gated.seat(group)).await.unwrap()
}

fn daily(name: &str) -> Schedule {
    Schedule::cron(name, "0 3 * * *", "Europe/Berlin").unwrap().message(name.to_owned())
}

pub async fn every_second_there_is_a_message(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "reports", 2).await;
        let gated = GatedHandler::open();
        let worker = worker(&mill, "default", &gated).await;
        let began = Env::system().wall();
        let message = Push::new("tick").key("k").header("lang", "en");
        let schedule = Schedule::every("often", Duration::from_secs(1)).unwrap().message(message);
        mill.schedule("reports", schedule.missed(Missed::All)).await.unwrap();
        gated.ended(3).await;
        assert!(mill.unschedule("reports", "often").await.unwrap());
        for run in gated.runs() {
            let tick = run.context.tick().unwrap();
            assert!(tick > began && run.at >= tick && tick.as_millis() % 1000 == 0, "{tick} at {}", run.at);
            assert_eq!((run.payload(), run.key()), ("tick".to_owned(), "k".to_owned()));
            assert_eq!(run.context.headers().iter().count(), 1);
        }
        let ticks: BTreeSet<_> = gated.runs().iter().map(|run| run.context.tick()).collect();
        assert_eq!(ticks.len(), gated.runs().len(), "{}: each once", store.engine);
        worker.stop().await;
    }
}

pub async fn what_was_missed_is_pushed_as_the_schedule_says(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        let reports = topic(&mill, "reports", 2).await;
        let missed = [("once", Missed::Once), ("all", Missed::All), ("skip", Missed::Skip)];
        for (name, missed) in missed {
            mill.schedule("reports", daily(name).missed(missed)).await.unwrap();
        }
        let began = mill.schedules("reports").await.unwrap()[0].last;
        let ticks = std::iter::successors(daily("x").next(began), |last| daily("x").next(*last));
        let ticks: Vec<_> = ticks.take(4).collect();
        // No worker runs for three days and an hour.
        store.clock.move_on(ticks[2].since(store.clock.wall()) + Duration::from_secs(3600));
        let gated = GatedHandler::open();
        // Two groups: whichever maintains the topic, each tick is pushed once.
        let workers = [worker(&mill, "default", &gated).await, worker(&store.mill(), "two", &gated).await];
        gated.ended(8).await;
        for worker in &workers {
            worker.drained().await;
        }
        let mut run: Vec<_> =
            gated.runs_of("two").iter().map(|run| (run.payload(), run.context.tick().unwrap())).collect();
        run.sort();
        let mut expected: Vec<_> = ticks[..3].iter().map(|tick| ("all".to_owned(), *tick)).collect();
        expected.push(("once".to_owned(), ticks[2]));
        assert_eq!(run, expected, "{}", store.engine);
        assert_eq!(gated.count(), 8);
        // The next day is not missed.
        store.clock.move_on(ticks[3].since(store.clock.wall()));
        gated.ended(14).await;
        store.maintained_again(&reports).await;
        for worker in &workers {
            worker.drained().await;
        }
        let last: Vec<_> = gated.runs_of("two").iter().skip(4).map(|run| run.context.tick()).collect();
        assert_eq!(last, [Some(ticks[3]); 3], "{}", store.engine);
        for worker in workers {
            worker.stop().await;
        }
    }
}

pub async fn a_tick_whose_note_was_not_written_is_not_pushed_twice(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "reports", 4).await;
        mill.schedule("reports", daily("one")).await.unwrap();
        store.clock.move_on(DAY);
        store.refuse_commits(Some("schedules/"));
        let gated = GatedHandler::open();
        let before = store.appends();
        let worker = worker(&mill, "default", &gated).await;
        gated.ended(1).await;
        eventually("it is pushed again", async || store.appends() > before + 2).await;
        let last = mill.schedules("reports").await.unwrap()[0].last;
        store.refuse_commits(None);
        eventually("it is noted", async || mill.schedules("reports").await.unwrap()[0].last > last).await;
        // From here on nothing is pushed again; earlier pushes are handled now.
        worker.drained().await;
        assert_eq!(gated.count(), 1, "{}", store.engine);
        worker.stop().await;
    }
}

pub async fn adding_a_schedule_again_changes_it_and_it_goes_on_from_where_it_was(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "reports", 1).await;
        mill.schedule("reports", daily("one")).await.unwrap();
        let added = mill.schedules("reports").await.unwrap();
        assert_eq!((added.len(), added[0].schedule.name()), (1, "one"));
        assert_eq!(added[0].schedule.timing(), "0 3 * * * in Europe/Berlin");
        assert!(added[0].next().unwrap() > added[0].last);
        store.clock.move_on(DAY);
        mill.schedule("reports", daily("one").message("else")).await.unwrap();
        assert_eq!(mill.schedules("reports").await.unwrap()[0].last, added[0].last, "{}", store.engine);
        // With other times there is nothing to catch up with.
        let hourly = Schedule::cron("one", "0 * * * *", "UTC").unwrap().message("else");
        mill.schedule("reports", hourly).await.unwrap();
        let last = mill.schedules("reports").await.unwrap()[0].last;
        assert!(last >= added[0].last + DAY, "{}", store.engine);
        assert!(mill.unschedule("reports", "one").await.unwrap());
        assert!(!mill.unschedule("reports", "one").await.unwrap());
        assert!(!mill.unschedule("reports", "two").await.unwrap());
        assert!(mill.schedules("reports").await.unwrap().is_empty());
        // Removed and added anew: the time in between does not count.
        store.clock.move_on(DAY);
        mill.schedule("reports", daily("one")).await.unwrap();
        assert!(mill.schedules("reports").await.unwrap()[0].last >= last + DAY);
        let gated = GatedHandler::open();
        let again = mill.schedules("reports").await.unwrap()[0].last;
        let worker = worker(&mill, "default", &gated).await;
        store.clock.move_on(DAY);
        gated.ended(1).await;
        worker.drained().await;
        let ticks: Vec<_> = gated.runs().iter().map(|run| run.context.tick()).collect();
        assert!(matches!(ticks[..], [Some(tick)] if tick > again), "{}: {ticks:?}", store.engine);
        worker.stop().await;
        mill.admin().delete_topic("reports").await.unwrap();
        assert_eq!(store.keys("schedules/").await, [""; 0], "{}", store.engine);
    }
}

pub async fn what_could_not_be_pushed_is_not_scheduled(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        let error = mill.schedule("reports", daily("one")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        topic(&mill, "reports", 1).await;
        for (message, said) in [
            (Push::new("x").header("sawmill-x", "1"), "the library's own"),
            (Push::new("x").after(DAY), "due time"),
            (Push::new("x").unique("a"), "unique"),
            (Push::new(vec![0; 65 << 10]), "64 KiB"),
        ] {
            let error = mill.schedule("reports", daily("one").message(message)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(said), "{error}");
        }
        assert!(mill.schedules("reports").await.unwrap().is_empty());
    }
}
