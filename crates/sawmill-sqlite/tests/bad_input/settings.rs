//! Worker settings that are invalid, that the engine does not support, or that contradict other workers.

use std::time::Duration;

use sawmill::{Context, Delivery, ErrorKind};

use crate::{Store, refused};

async fn nothing(_: Context) {}

#[tokio::test]
async fn settings_that_make_no_sense_are_refused() {
    let Store { mill, folder: _folder } = Store::new().await;
    let worker = || mill.worker("jobs");
    let start = worker().concurrency(0).start(nothing).await;
    refused(start, ErrorKind::Invalid, &["needs at least one slot"]);
    let start = worker().max_in_flight(0).start(nothing).await;
    refused(start, ErrorKind::Invalid, &["must be allowed to claim one message"]);
    for ttl in [Duration::ZERO, Duration::from_millis(99), Duration::from_secs(3601), Duration::MAX] {
        let start = worker().ttl(ttl).start(nothing).await;
        let said = [&*format!("a TTL of {ttl:?}"), "choose one from 100ms to 3600s"];
        refused(start, ErrorKind::Invalid, &said);
    }
    let start = worker().poll(Duration::ZERO).start(nothing).await;
    refused(start, ErrorKind::Invalid, &["next to no pause", "or longer"]);
    let start = mill.worker_for(["jobs", "jobs"]).start(nothing).await;
    refused(start, ErrorKind::Invalid, &["named twice", "name each one once"]);
    let start = mill.worker_for(Vec::<String>::new()).start(nothing).await;
    refused(start, ErrorKind::Invalid, &["at least one topic"]);
}

#[tokio::test]
async fn settings_at_their_limits_work() {
    let Store { mill, folder: _folder } = Store::new().await;
    mill.push_many("jobs", ["a", "b", "c"]).await.unwrap();
    let generous = mill.worker("jobs").group("generous").concurrency(usize::MAX).max_in_flight(usize::MAX);
    let patient = mill.worker("jobs").group("patient").ttl(Duration::from_secs(3600)).poll(Duration::MAX);
    let narrow =
        mill.worker("jobs").group("narrow").concurrency(1).max_in_flight(1).ttl(Duration::from_millis(100));
    for builder in [generous, patient, narrow] {
        let worker = builder.start(nothing).await.unwrap();
        worker.drained().await;
        assert_eq!(worker.stop().await.done, 3);
    }
}

#[tokio::test]
async fn exactly_once_is_refused_by_an_engine_that_cannot() {
    let mill = sawmill::Sawmill::open("memory:").await.unwrap();
    mill.create_topic("jobs").await.unwrap();
    let start = mill.worker("jobs").delivery(Delivery::ExactlyOnce).start(nothing).await;
    let said = ["cannot deliver exactly once", "engines that can: SQLite", "at-least-once", "at-most-once"];
    refused(start, ErrorKind::Unsupported, &said);
    // The refusal has created nothing: the group may still have any delivery.
    mill.worker("jobs").delivery(Delivery::AtMostOnce).start(nothing).await.unwrap().stop().await;
}

#[tokio::test]
async fn workers_of_one_group_must_agree() {
    let Store { mill, folder: _folder } = Store::new().await;
    let first = mill.worker("jobs").start(nothing).await.unwrap();
    let said = [
        "group default of topic jobs",
        "at-least-once, not ordered",
        "choose another group",
        "stop its workers",
    ];
    let start = mill.worker("jobs").ordered().start(nothing).await;
    refused(start, ErrorKind::Invalid, &[&said[..], &["at-least-once, ordered"]].concat());
    let start = mill.worker("jobs").delivery(Delivery::AtMostOnce).start(nothing).await;
    refused(start, ErrorKind::Invalid, &[&said[..], &["at-most-once, not ordered"]].concat());
    // Another group may have its own settings, and so may this one once its workers are gone.
    mill.worker("jobs").group("other").ordered().start(nothing).await.unwrap().stop().await;
    first.stop().await;
    mill.worker("jobs").ordered().start(nothing).await.unwrap().stop().await;
}
