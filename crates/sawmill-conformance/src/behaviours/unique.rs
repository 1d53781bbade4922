//! Unique messages: no duplicate while the first is live or within a time span, whoever pushes and whatever
//! fails in between.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use sawmill::admin::{DeadLetterSelection, GroupStatus};
use sawmill::{Context, ErrorKind, OnFailure, Outcome, Push, RetryPolicy, Sawmill, Worker};

use super::both::both;
use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Subject, eventually, group_is, topic};

async fn worker(mill: &Sawmill, group: &str, gated: &GatedHandler) -> Worker {
    let builder = mill.worker("jobs").group(group).concurrency(2).ttl(LONG_TTL).poll(POLL);
    builder.start(gated.seat(group)).await.unwrap()
}

/// Waits until this many are dead and nothing else is in progress.
async fn dead(mill: &Sawmill, count: u64) {
    let all_dead =
        |status: &GroupStatus| (status.dead, status.waiting + status.claimed + status.retrying) == (count, 0);
    group_is(mill, "jobs", "default", "all are dead", all_dead).await;
}

pub async fn while_one_waits_a_second_is_not_added(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "jobs", 4).await;
        let first = mill.push("jobs", Push::new("1").unique("a")).await.unwrap();
        assert_eq!(mill.push("jobs", Push::new("2").unique("a").key("k")).await.unwrap(), first);
        assert_eq!(store.mill().push("jobs", Push::new("3").unique("a")).await.unwrap(), first);
        let plain = mill.push("jobs", Push::new("4")).await.unwrap();
        let many = [("5", "b"), ("6", "a"), ("7", "b"), ("8", "c")]
            .map(|(payload, name)| Push::new(payload).unique(name));
        let ids = mill.push_many("jobs", many.into_iter().chain([Push::new("9")])).await.unwrap();
        assert_eq!((ids[1], ids[0] == ids[2]), (first, true), "{}", store.engine);
        let producer = mill.producer("jobs").await.unwrap();
        let again = ["a", "b", "d", "d"].map(|name| producer.push(Push::new("10").unique(name)));
        let again: Vec<_> = join_all(again).await.into_iter().map(Result::unwrap).collect();
        assert_eq!((again[0], again[1], again[2]), (first, ids[0], again[3]));
        let all: BTreeSet<_> = ids.iter().chain(&again).chain([&first, &plain]).collect();
        assert_eq!(all.len(), 6);

        let gated = GatedHandler::open();
        let worker = worker(&mill, "default", &gated).await;
        gated.ended(6).await;
        worker.drained().await;
        let run: BTreeSet<_> = gated.runs().iter().map(|run| run.context.id()).collect();
        assert_eq!((gated.count(), run.iter().collect()), (6, all), "{}", store.engine);
        assert!(gated.payloads().contains(&"1".to_owned()), "the first one's payload");
        assert!(gated.runs().iter().all(|run| run.context.headers().is_empty()));
        assert_eq!(worker.stop().await.done, 6);
    }
}

pub async fn a_message_is_live_until_every_group_has_settled_it(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "jobs", 2).await;
        let (one, two) = (GatedHandler::open(), GatedHandler::closed());
        let workers = [worker(&mill, "one", &one).await, worker(&mill, "two", &two).await];
        let push = async || mill.push("jobs", Push::new("x").unique("a")).await.unwrap();
        let first = push().await;
        one.ended(1).await;
        two.started(1).await;
        group_is(&mill, "jobs", "one", "it is done in one group", |status| status.done == 1).await;
        assert_eq!(push().await, first, "{}", store.engine);
        two.release_all();
        group_is(&mill, "jobs", "two", "it is done in both", |status| status.done == 1).await;
        let second = push().await;
        assert_ne!(second, first, "{}", store.engine);
        one.ended(2).await;
        two.ended(2).await;
        for worker in workers {
            worker.stop().await;
        }
    }
}

pub async fn a_retry_is_live_and_a_dead_letter_is_not_and_stays_so_when_it_is_resent(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "jobs", 2).await;
        let gated = GatedHandler::open();
        let policy =
            RetryPolicy::retries(1).immediate(0).backoff(Duration::from_secs(2), Duration::from_secs(2));
        let says = |context: &Context| match context.payload().as_ref() {
            b"good" => Outcome::Done,
            _ => Outcome::retry("no"),
        };
        let builder = mill.worker("jobs").concurrency(1).ttl(LONG_TTL).poll(POLL).retry(policy);
        let worker = builder.start(gated.seat_that("one", says)).await.unwrap();
        let first = mill.push("jobs", Push::new("bad").unique("a")).await.unwrap();
        gated.ended(1).await;
        let failed = |status: &GroupStatus| status.retrying == 1 || status.dead == 1;
        group_is(&mill, "jobs", "default", "it waits on its lane, or is tried again", failed).await;
        let again = mill.push("jobs", Push::new("good").unique("a")).await.unwrap();
        if gated.count() == 1 {
            assert_eq!(again, first, "{}", store.engine);
        }
        dead(&mill, 1).await;
        let second = mill.push("jobs", Push::new("bad").unique("a")).await.unwrap();
        assert_ne!(second, first, "{}", store.engine);
        // The resent message is settled again, and does not release the name of the second one.
        dead(&mill, 2).await;
        let third = mill.push("jobs", Push::new("good").unique("a").after(Duration::from_secs(600)));
        let third = third.await.unwrap();
        let letters = mill.admin().dead_letters("jobs", "default").await.unwrap();
        let runs = gated.count();
        letters.retry(DeadLetterSelection::Ids(vec![first])).await.unwrap();
        gated.ended(runs + 2).await;
        dead(&mill, 2).await;
        assert_eq!(mill.push("jobs", Push::new("good").unique("a")).await.unwrap(), third);
        worker.stop().await;
    }
}

pub async fn what_a_group_only_logs_is_not_live_any_more(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "jobs", 2).await;
        let gated = GatedHandler::open();
        let builder = mill.worker("jobs").concurrency(1).ttl(LONG_TTL).poll(POLL).on_failure(OnFailure::Log);
        let worker = builder.start(gated.seat_that("one", |_| Outcome::dead("no"))).await.unwrap();
        let first = mill.push("jobs", Push::new("1").unique("a")).await.unwrap();
        group_is(&mill, "jobs", "default", "it is dropped", |status| status.dropped == 1).await;
        assert_ne!(mill.push("jobs", Push::new("2").unique("a")).await.unwrap(), first, "{}", store.engine);
        worker.stop().await;
    }
}

pub async fn for_a_time_there_is_no_second_one_though_the_first_is_done(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "jobs", 2).await;
        let gated = GatedHandler::open();
        let worker = worker(&mill, "default", &gated).await;
        let hour = Duration::from_secs(3600);
        let push = async || mill.push("jobs", Push::new("x").unique_for("a", hour)).await.unwrap();
        let first = push().await;
        group_is(&mill, "jobs", "default", "it is done", |status| status.done == 1).await;
        assert_eq!(push().await, first, "{}", store.engine);
        store.clock.move_on(hour);
        let second = push().await;
        assert_ne!(second, first, "{}", store.engine);
        assert_eq!(push().await, second);
        gated.ended(2).await;
        worker.stop().await;
        assert_eq!(gated.count(), 2);
    }
}

pub async fn whatever_becomes_of_a_push_the_name_is_not_lost_and_there_is_one_message(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "jobs", 2).await;
        // The first pusher dies after it has reserved the name, before and after its append.
        for (name, appended) in [("before", false), ("after", true)] {
            store.next_append_fails(ErrorKind::Unknown, appended);
            let failed = mill.push("jobs", Push::new("1").unique(name)).await.unwrap_err();
            assert_eq!(failed.kind(), ErrorKind::Unknown);
            let first = mill.push("jobs", Push::new("2").unique(name)).await.unwrap();
            assert_eq!(mill.push("jobs", Push::new("3").unique(name)).await.unwrap(), first);
        }
        // The message is in the log, and the ledger cannot be updated.
        store.refuse_commits(Some("uniques/"));
        assert!(mill.push("jobs", Push::new("1").unique("neither")).await.is_err());
        store.refuse_commits(None);
        assert_eq!(mill.admin().status("jobs", "default").await.unwrap().waiting, 2, "{}", store.engine);
        let gated = GatedHandler::open();
        let worker = worker(&mill, "default", &gated).await;
        gated.ended(2).await;
        worker.drained().await;
        let mut payloads = gated.payloads();
        payloads.sort_unstable();
        assert_eq!(payloads, ["1", "2"], "{}", store.engine);
        mill.push("jobs", Push::new("4").unique("before")).await.unwrap();
        gated.ended(3).await;
        worker.stop().await;
    }
}

pub async fn of_many_who_push_at_the_same_time_one_adds_it(on: Subject) {
    for store in both(on) {
        topic(&store.mill(), "jobs", 4).await;
        let mills: Vec<Sawmill> = (0..8).map(|_| store.mill()).collect();
        let pushes = mills.iter().flat_map(|mill| {
            ["a", "b", "a"].map(|name| async move {
                (name, mill.push("jobs", Push::new(name).unique(name)).await.unwrap())
            })
        });
        let ids: BTreeSet<_> = join_all(pushes).await.into_iter().collect();
        assert_eq!(ids.len(), 2, "{}: {ids:?}", store.engine);
        assert_eq!(mills[0].admin().status("jobs", "default").await.unwrap().waiting, 2, "{}", store.engine);
    }
}

pub async fn a_worker_that_cannot_give_a_name_back_does_not_count_the_message_as_settled(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "jobs", 1).await;
        let gated = GatedHandler::open();
        let worker = worker(&mill, "default", &gated).await;
        let hour = Duration::from_secs(3600);
        let first = mill.push("jobs", Push::new("1").unique("a").after(hour)).await;
        store.refuse_commits(Some("uniques/"));
        store.clock.move_on(hour);
        gated.ended(1).await;
        let refused = store.refusals();
        eventually("it tries again and again", async || store.refusals() > refused + 3).await;
        let status = mill.admin().status("jobs", "default").await.unwrap();
        assert_eq!((status.done, status.claimed), (0, 1), "{}", store.engine);
        store.refuse_commits(None);
        group_is(&mill, "jobs", "default", "it is done", |status| status.done == 1).await;
        assert_ne!(mill.push("jobs", Push::new("2").unique("a")).await.unwrap(), first.unwrap());
        worker.stop().await;
    }
}

pub async fn names_have_a_limit_and_go_with_their_topic(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "jobs", 1).await;
        for name in [String::new(), "x".repeat(201)] {
            let error = mill.push("jobs", Push::new("1").unique(name)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("from 1 to 200"), "{error}");
        }
        let old = mill.push("jobs", Push::new("1").unique("x".repeat(200))).await.unwrap();
        assert_eq!(store.keys("uniques/").await.len(), 1);
        mill.admin().delete_topic("jobs").await.unwrap();
        assert_eq!(store.keys("uniques/").await, [""; 0], "{}", store.engine);
        topic(&mill, "jobs", 1).await;
        assert_ne!(mill.push("jobs", Push::new("1").unique("x".repeat(200))).await.unwrap(), old);
    }
}
