//! Trimming: old messages that every group has passed are dropped, and nothing else, unless the topic says
//! so.

use std::time::Duration;

use sawmill::engine::model::Topic;
use sawmill::engine::runtime::Clock;
use sawmill::engine::storage::{Log, Position};
use sawmill::{Outcome, Push, Sawmill, TopicSpec, Worker};

use super::both::{Store, both};
use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Subject, group_has_done, group_is, numbered};

const HOUR: Duration = Duration::from_secs(3600);

async fn topic(mill: &Sawmill, drops_unread: bool) -> Topic {
    let name = "orders".parse().unwrap();
    let spec = TopicSpec { shards: 2, retention: HOUR, drops_unread, ..TopicSpec::new(name) };
    mill.create_topic_with(&spec).await.unwrap()
}

async fn worker(mill: &Sawmill, group: &str, gated: &GatedHandler) -> Worker {
    let builder = mill.worker("orders").group(group).concurrency(4).ttl(LONG_TTL).poll(POLL);
    builder.start(gated.seat(group)).await.unwrap()
}

async fn done(mill: &Sawmill, group: &str, count: u64) {
    group_has_done(mill, "orders", group, count).await;
}

/// Trims, and asserts that only trimmable messages went. PostgreSQL empties a table when all of it may go, so
/// part of it is kept.
async fn trim(store: &Store, mill: &Sawmill, may_go: u64, what: &str) -> u64 {
    let dropped = mill.admin().trim("orders").await.unwrap();
    match store.engine {
        engine if engine.starts_with("postgres") => {
            assert!(dropped == 0 || dropped == may_go, "{dropped} of {may_go} went: {what}")
        }
        engine => assert_eq!(dropped, may_go, "{engine}: {what}"),
    }
    dropped
}

/// Returns how many messages each shard has.
async fn left(store: &Store, topic: &Topic) -> Vec<u64> {
    let whole: Vec<(u16, Position)> = (0..topic.shards).map(|shard| (shard, Position::default())).collect();
    store.backlog(topic, &whole).await.unwrap().ready
}

pub async fn what_every_group_is_past_goes_when_it_is_old(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, false).await;
        let (one, two) = (GatedHandler::open(), GatedHandler::closed());
        let fast = worker(&mill, "one", &one).await;
        let slow = worker(&mill, "two", &two).await;
        mill.push_many("orders", numbered(0..100)).await.unwrap();
        done(&mill, "one", 100).await;
        two.started(4).await;
        assert_eq!(mill.admin().trim("orders").await.unwrap(), 0, "{}: nothing is old", store.engine);
        store.clock.move_on(HOUR + HOUR);
        assert_eq!(
            mill.admin().trim("orders").await.unwrap(),
            0,
            "{}: one group is not past them",
            store.engine
        );
        mill.push_many("orders", numbered(100..110)).await.unwrap();
        two.release_all();
        done(&mill, "two", 110).await;
        trim(&store, &mill, 100, "the old ones").await;
        assert_eq!(mill.admin().trim("orders").await.unwrap(), 0);
        assert_eq!(mill.admin().status("orders", "two").await.unwrap().done, 110);
        fast.stop().await;
        slow.stop().await;
        assert_eq!(two.numbers(), (0..110).collect::<Vec<_>>());
        assert!(mill.admin().trim("nothing").await.is_err());
    }
}

pub async fn the_lanes_are_trimmed_too_and_dead_letters_stay(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, false).await;
        let gated = GatedHandler::open();
        let builder = mill.worker("orders").concurrency(4).ttl(LONG_TTL).poll(POLL);
        let worker = builder.start(gated.seat_that("one", |_| Outcome::dead("no"))).await.unwrap();
        mill.push("orders", "0").await.unwrap();
        group_is(&mill, "orders", "default", "it is dead", |status| status.dead == 1).await;
        // It may be in the lane already while its claim is still open.
        worker.stop().await;
        store.clock.move_on(HOUR + HOUR);
        assert_eq!(mill.admin().trim("orders").await.unwrap(), 1, "{}", store.engine);
        let letters = mill.admin().dead_letters("orders", "default").await.unwrap();
        assert_eq!(letters.list(10).await.unwrap().len(), 1, "{}", store.engine);
        letters.drop(sawmill::admin::DeadLetterSelection::All).await.unwrap();
        assert_eq!(mill.admin().trim("orders").await.unwrap(), 1, "{}: the letter", store.engine);
    }
}

pub async fn a_topic_may_drop_what_is_old_and_unread(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, true).await;
        let gated = GatedHandler::open();
        let first = worker(&mill, "default", &gated).await;
        mill.push_many("orders", numbered(0..10)).await.unwrap();
        done(&mill, "default", 10).await;
        first.stop().await;
        mill.push_many("orders", numbered(10..40)).await.unwrap();
        store.clock.move_on(HOUR / 2);
        mill.push_many("orders", numbered(40..50)).await.unwrap();
        assert_eq!(mill.admin().trim("orders").await.unwrap(), 0, "{}: nothing is old", store.engine);
        store.clock.move_on(HOUR / 2 + Duration::from_secs(60));
        let status = mill.admin().status("orders", "default").await.unwrap();
        assert_eq!(status.waiting, 40);
        assert!(status.lag(store.clock.wall()) > HOUR);
        let dropped = trim(&store, &mill, 40, "read or not").await > 0;
        let first_left = if dropped { 40 } else { 10 };
        let waiting = 50 - first_left;
        let status = mill.admin().status("orders", "default").await.unwrap();
        assert_eq!((status.waiting, status.done), (waiting, 10), "{}", store.engine);
        assert_eq!(status.lag(store.clock.wall()) < HOUR, dropped);
        let second = worker(&mill, "default", &gated).await;
        done(&mill, "default", 10 + waiting).await;
        second.stop().await;
        let expected: Vec<usize> = (0..10).chain(first_left as usize..50).collect();
        assert_eq!(gated.numbers(), expected, "{}", store.engine);
    }
}

/// The messages left when a group joins stay available to it, though no one needed them before.
pub async fn what_a_new_group_has_not_read_stays(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        let topic = topic(&mill, false).await;
        let keys = store.key_per_shard(2);
        let push = async |shard: usize, number: usize| {
            mill.push("orders", Push::new(number.to_string()).key(keys[shard].clone())).await.unwrap();
        };
        let (one, two) = (GatedHandler::closed(), GatedHandler::open());
        let first = worker(&mill, "one", &one).await;
        push(0, 0).await;
        for number in 1..6 {
            push(1, number).await;
        }
        one.release(6);
        done(&mill, "one", 6).await;
        push(0, 6).await;
        one.started(7).await;
        store.clock.move_on(HOUR + HOUR);
        // No group needs anything of one shard, and one needs messages of the other.
        mill.admin().trim("orders").await.unwrap();
        let before = left(&store, &topic).await;
        store.hide_shard(Some(1));
        let second = worker(&mill, "two", &two).await;
        done(&mill, "two", before[0]).await;
        second.stop().await;
        store.hide_shard(None);
        one.release_all();
        done(&mill, "one", 7).await;
        first.stop().await;
        mill.admin().trim("orders").await.unwrap();
        assert_eq!(left(&store, &topic).await[1], before[1], "{}: the new group needs them", store.engine);
        let second = worker(&mill, "two", &two).await;
        done(&mill, "two", before.iter().sum()).await;
        second.stop().await;
        mill.admin().trim("orders").await.unwrap();
        assert_eq!(left(&store, &topic).await, [0, 0], "{}: nobody needs them", store.engine);
    }
}
