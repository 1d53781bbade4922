//! Pushing through a producer: many concurrent single pushes, few appends.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use sawmill::engine::runtime::Env;
use sawmill::{ErrorKind, MessageId, Push};

use super::both::both;
use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Subject, eventually, topic};

pub async fn g15_concurrent_single_pushes_share_appends_and_each_caller_keeps_its_order(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "orders", 4).await;
        let producer = mill.producer("orders").await.unwrap();
        let before = store.appends();
        let callers = (0..20).map(|caller| {
            let producer = producer.clone();
            async move {
                let mut ids = Vec::new();
                for number in 0..50 {
                    let push = Push::new(number.to_string()).key(format!("caller {caller}"));
                    ids.push(producer.push(push).await.unwrap());
                }
                (format!("caller {caller}"), ids)
            }
        });
        let pushed: BTreeMap<String, Vec<MessageId>> = join_all(callers).await.into_iter().collect();
        let appends = store.appends() - before;
        assert!(appends <= 200, "{}: 1000 pushes took {appends} appends", store.engine);

        let gated = GatedHandler::open();
        let worker = mill.worker("orders").ordered().concurrency(4).ttl(LONG_TTL).poll(POLL);
        let worker = worker.start(gated.seat("one")).await.unwrap();
        gated.ended(1000).await;
        worker.drained().await;
        worker.stop().await;
        let mut run: BTreeMap<String, Vec<MessageId>> = BTreeMap::new();
        for done in gated.runs() {
            run.entry(done.key()).or_default().push(done.context.id());
        }
        assert_eq!(run, pushed, "{}: all of them, once, each caller's in order", store.engine);
    }
}

pub async fn g15_when_nothing_is_under_way_a_push_is_appended_by_itself(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "orders", 4).await;
        let producer = mill.producer("orders").await.unwrap();
        for number in 0..3 {
            producer.push(number.to_string()).await.unwrap();
        }
        assert_eq!(store.appends(), 3, "{}", store.engine);
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().waiting, 3);
    }
}

pub async fn g15_a_bad_message_fails_alone_and_an_error_of_the_store_is_everybodys(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "orders", 2).await;
        let producer = mill.producer("orders").await.unwrap();
        let bad = Push::new("bad").header("sawmill-x", "1");
        let pushes = [Push::new("a"), bad, Push::new("b")].map(|push| producer.push(push));
        let answers = join_all(pushes).await;
        let kinds: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(|e| e.kind())).collect();
        assert_eq!(kinds, [None, Some(ErrorKind::Invalid), None], "{}", store.engine);

        store.next_append_fails(ErrorKind::Unavailable, false);
        let answers = join_all(["c", "d"].map(|payload| producer.push(payload))).await;
        for answer in answers {
            let error = answer.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{}: {error}", store.engine);
        }
        producer.push("e").await.unwrap();
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().waiting, 3);
    }
}

pub async fn g15_what_is_queued_is_pushed_although_nobody_waits_for_it(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        topic(&mill, "orders", 2).await;
        let producer = mill.producer("orders").await.unwrap();
        for number in 0..10 {
            let push = producer.push(number.to_string());
            let waited = Env::system().within(Duration::ZERO, push).await;
            assert!(waited.is_none() || waited.is_some_and(|pushed| pushed.is_ok()));
        }
        drop(producer);
        eventually("all ten are there", async || {
            mill.admin().status("orders", "default").await.unwrap().waiting == 10
        })
        .await;
    }
}

pub async fn g15_a_producer_finds_its_topic_again_or_says_that_there_is_none(on: Subject) {
    for store in both(on) {
        let mill = store.mill();
        let missing = mill.producer("orders").await.err().unwrap();
        assert_eq!(missing.kind(), ErrorKind::NotFound, "{}", store.engine);
        topic(&mill, "orders", 8).await;
        let producer = mill.producer("orders").await.unwrap();
        producer.push("old").await.unwrap();
        // Another process deletes the topic and creates it anew, with fewer shards.
        let other = store.mill();
        other.admin().delete_topic("orders").await.unwrap();
        topic(&other, "orders", 1).await;
        join_all((0..10).map(|number| producer.push(number.to_string()))).await.into_iter().for_each(
            |pushed| {
                pushed.unwrap();
            },
        );
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().waiting, 10);
        other.admin().delete_topic("orders").await.unwrap();
        assert_eq!(producer.push("x").await.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
