//! Status questions of operators, on both engines: where a message is, what waits, which groups exist and
//! which workers run.

use std::time::Duration;

use sawmill::admin::{DeadLetterSelection, MessageState, ReplayFrom};
use sawmill::{Context, Delivery, OnFailure, Outcome, Push, RetryPolicy, Sawmill};

use sawmill::engine::model::shard_of;

use super::both::both;
use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Subject, engines, group_is, key_per_shard, soon, topic};

async fn message_state(mill: &Sawmill, id: sawmill::MessageId) -> MessageState {
    let mut groups = mill.admin().show(id).await.unwrap().unwrap().groups;
    assert_eq!(groups.len(), 1, "{groups:?}");
    groups.remove(0).1
}

/// Returns a policy whose first retry comes after an hour, which is never within a test.
fn slow_retries(retries: u32) -> RetryPolicy {
    let hour = Duration::from_secs(3600);
    RetryPolicy::retries(retries).immediate(0).backoff(hour, hour)
}

pub async fn q17_a_message_is_followed_from_its_push_to_its_end(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 2).await;
        let id = mill.push("orders", Push::new("a").key("k")).await.unwrap();
        let later = mill.push("orders", Push::new("b").after(Duration::from_secs(3600))).await.unwrap();
        let found = mill.admin().show(id).await.unwrap().unwrap();
        assert_eq!((found.topic.name.base(), found.message.payload.as_ref()), ("orders", &b"a"[..]));
        assert!(found.groups.is_empty(), "there is no group yet");

        let gated = GatedHandler::closed();
        let builder = mill.worker("orders").ttl(LONG_TTL).poll(POLL);
        let worker = builder.start(gated.seat("one")).await.unwrap();
        gated.started(1).await;
        let me = worker.state().id.unwrap();
        assert_eq!(message_state(&mill, id).await, MessageState::Claimed { worker: Some(me), failed: 0 });
        assert_eq!(message_state(&mill, later).await, MessageState::Scheduled);
        mill.admin().pause("orders", "default").await.unwrap();
        gated.release_all();
        soon("it is done", worker.drained()).await;
        worker.stop().await;
        assert_eq!(message_state(&mill, id).await, MessageState::Done);
        let waits = mill.push("orders", Push::new("c").key("k")).await.unwrap();
        assert_eq!(message_state(&mill, waits).await, MessageState::Waiting);
        assert_eq!(message_state(&mill, id).await, MessageState::Done);

        for id in [waits, later] {
            mill.cancel("orders", id).await.unwrap();
            assert_eq!(message_state(&mill, id).await, MessageState::Cancelled);
        }
        mill.admin().resume("orders", "default").await.unwrap();
        let worker =
            mill.worker("orders").ttl(LONG_TTL).poll(POLL).start(|_: Context| async {}).await.unwrap();
        group_is(&mill, "orders", "default", "it is skipped", |status| status.cancelled == 1).await;
        worker.stop().await;
        assert_eq!(message_state(&mill, waits).await, MessageState::Cancelled);
        assert!(mill.admin().show(sawmill::MessageId::from_u128(5)).await.unwrap().is_none());
    }
}

pub async fn q17_a_failed_message_is_followed_through_its_retries_its_death_and_its_resending(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 2).await;
        let id = mill.push("orders", Push::new("a").key("k")).await.unwrap();
        let quick = RetryPolicy::retries(2).immediate(0);
        let quick = quick.backoff(Duration::from_millis(1), Duration::from_millis(1));
        let start = async |policy, outcome: fn(&Context) -> Outcome| {
            let builder = mill.worker("orders").ttl(LONG_TTL).poll(POLL).retry(policy);
            builder.start(GatedHandler::open().seat_that("one", outcome)).await.unwrap()
        };
        let worker = start(slow_retries(5), |_| Outcome::retry("no paper")).await;
        group_is(&mill, "orders", "default", "it failed", |status| status.retrying == 1).await;
        worker.stop().await;
        let MessageState::Retrying { failed, due, failures, worker } = message_state(&mill, id).await else {
            panic!()
        };
        assert_eq!((failed, failures.len(), worker), (1, 1, None));
        assert_eq!(failures[0].error, "no paper");
        assert!(due.is_some());

        // Three appended copies: two failed retries and the dead letter.
        let second = mill.push("orders", Push::new("b").key("k")).await.unwrap();
        let worker = start(quick, |context| Outcome::retry(format!("jam {}", context.attempt()))).await;
        group_is(&mill, "orders", "default", "it is dead", |status| status.dead == 1).await;
        worker.stop().await;
        let MessageState::Dead { reason, failed, failures } = message_state(&mill, second).await else {
            panic!()
        };
        assert_eq!((failed, failures.len()), (3, 3));
        assert!(reason.contains("jam 3"), "{reason}");

        let dead = mill.admin().dead_letters("orders", "default").await.unwrap();
        dead.retry(DeadLetterSelection::Ids(vec![second])).await.unwrap();
        assert!(matches!(message_state(&mill, second).await, MessageState::Retrying { failed: 0, .. }));
        let worker = start(slow_retries(5), |_| Outcome::Done).await;
        group_is(&mill, "orders", "default", "it is done", |status| status.done == 1).await;
        worker.stop().await;
        assert_eq!(message_state(&mill, second).await, MessageState::Done);
        assert!(matches!(message_state(&mill, id).await, MessageState::Retrying { failed: 1, .. }));
        mill.cancel("orders", id).await.unwrap();
        assert_eq!(message_state(&mill, id).await, MessageState::Cancelled);
    }
}

pub async fn q17_what_was_skipped_or_dropped_is_not_called_done(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 1).await;
        let builder = mill.worker("orders").ttl(LONG_TTL).poll(POLL).retry(RetryPolicy::none());
        let builder = builder.on_failure(OnFailure::Log);
        let worker = builder.start(|_: Context| async { Outcome::retry("no") }).await.unwrap();
        let id = mill.push("orders", "a").await.unwrap();
        group_is(&mill, "orders", "default", "it is dropped", |status| status.dropped == 1).await;
        worker.stop().await;
        assert_eq!(message_state(&mill, id).await, MessageState::Past);
        let skipped = mill.push("orders", "b").await.unwrap();
        mill.admin().replay("orders", "default", ReplayFrom::Now).await.unwrap();
        assert_eq!(message_state(&mill, skipped).await, MessageState::Past);
        mill.admin().replay("orders", "default", ReplayFrom::Start).await.unwrap();
        assert_eq!(message_state(&mill, skipped).await, MessageState::Waiting);
    }
}

pub async fn q17_a_dead_letter_is_found_when_its_message_is_gone(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "orders", 1).await;
        let id = mill.push("orders", "a").await.unwrap();
        let builder = mill.worker("orders").ttl(LONG_TTL).poll(POLL).delivery(Delivery::AtMostOnce);
        let worker = builder.start(|_: Context| async { Outcome::retry("no") }).await.unwrap();
        group_is(&mill, "orders", "default", "it is dead", |status| status.dead == 1).await;
        worker.stop().await;
        store.clock.move_on(Duration::from_secs(3 * 86_400));
        assert_eq!(mill.admin().trim("orders").await.unwrap(), 1, "{}", store.engine);
        let found = mill.admin().show(id).await.unwrap().unwrap();
        assert_eq!(found.message.origin(), id);
        assert!(matches!(&found.groups[..], [(_, MessageState::Dead { .. })]), "{:?}", found.groups);
    }
}

pub async fn what_waits_is_seen_and_stays(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 3).await;
        let mut ids = Vec::new();
        for (number, key) in key_per_shard(3, shard_of).iter().cycle().take(9).enumerate() {
            ids.push(mill.push("orders", Push::new(number.to_string()).key(key.clone())).await.unwrap());
        }
        mill.push("orders", Push::new("later").after(Duration::from_secs(3600))).await.unwrap();
        mill.cancel("orders", ids[0]).await.unwrap();
        let peek = async |limit| -> Vec<_> {
            let messages = mill.admin().peek("orders", "default", limit).await.unwrap();
            messages.into_iter().map(|message| message.id).collect()
        };
        assert_eq!(peek(100).await, ids[1..], "not what was cancelled, and not what is not due");
        assert_eq!(peek(4).await.len(), 4);
        assert_eq!(peek(0).await.len(), 0);
        assert_eq!(peek(100).await, ids[1..]);
        let worker = mill.worker("orders").start(|_: Context| async {}).await.unwrap();
        soon("all is done", worker.drained()).await;
        worker.stop().await;
        assert!(peek(100).await.is_empty());
        assert_eq!(
            mill.admin().peek("orders", "other", 100).await.unwrap().len(),
            8,
            "a group that is to come"
        );
    }
}

pub async fn groups_and_workers_are_listed_with_what_they_hold(on: Subject) {
    for (mill, _place) in engines(on).await {
        topic(&mill, "orders", 2).await;
        topic(&mill, "mails", 2).await;
        assert!(mill.admin().groups("orders").await.unwrap().is_empty());
        mill.admin().pause("orders", "waiting").await.unwrap();
        let gated = GatedHandler::closed();
        let builder =
            mill.worker_for(["orders", "mails"]).group("press").name("one").concurrency(3).ttl(LONG_TTL);
        let worker = builder.start(gated.seat("one")).await.unwrap();
        let other = mill.worker("mails").group("other").start(|_: Context| async {}).await.unwrap();
        mill.push_many("orders", ["a", "b", "c"]).await.unwrap();
        gated.started(3).await;
        let names = |groups: Vec<sawmill::engine::model::GroupName>| -> Vec<String> {
            groups.iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(mill.admin().groups("orders").await.unwrap()), ["press", "waiting"]);
        assert_eq!(names(mill.admin().groups("mails").await.unwrap()), ["other", "press"]);
        let members = mill.admin().all_workers().await.unwrap();
        let seen: Vec<_> = members.iter().map(|m| (m.group.to_string(), m.concurrency, m.claimed)).collect();
        assert_eq!(seen[1], ("press".to_owned(), 3, 3), "{seen:?}");
        assert_eq!((seen[0].0.as_str(), seen[0].2, seen.len()), ("other", 0, 2));
        assert_eq!(members[1].topics, ["mails", "orders"]);
        assert_eq!(members[1].ttl, LONG_TTL);
        assert!(members[1].last_heartbeat.is_some());
        assert_eq!(mill.admin().workers("press").await.unwrap()[0].id, members[1].id);
        gated.release_all();
        soon("all is done", worker.drained()).await;
        worker.stop().await;
        other.stop().await;
        assert!(mill.admin().all_workers().await.unwrap().is_empty());
    }
}
