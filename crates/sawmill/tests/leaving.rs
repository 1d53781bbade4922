//! Tests of the end of workers: what they leave behind when they stop, abort or die, on the in-memory engine.

use std::sync::Arc;
use std::time::Duration;

use sawmill::handler::{Handler, IntoHandler};
use sawmill::testing::TestMill;
use sawmill::{Context, Delivery, Outcome, Push, Sawmill};
use sawmill_engine::model::{Member, Topic};
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{EntryKey, Ledger, Log, Memory, Write};
use tokio::sync::Notify;

fn mill() -> (Memory, Sawmill) {
    let memory = Memory::new();
    let mill = Sawmill::from_parts(Arc::new(memory.clone()), Arc::new(memory.clone()), Env::system());
    (memory, mill)
}

/// Returns a handler that notifies when it is started, and never ends.
fn never_ending() -> (Arc<Notify>, impl Handler) {
    let started = Arc::new(Notify::new());
    let notify = started.clone();
    let handler = move |_: Context| {
        notify.notify_one();
        std::future::pending::<()>()
    };
    (started, handler.into_handler())
}

/// Writes the entry of a worker that died with no other worker left to notice.
async fn leave_a_dead_member(memory: &Memory, topic: &Topic, group: &str, ttl_ms: u64) -> EntryKey {
    let member = Member { beat: 7, topics: vec![topic.uid.clone()], slots: 1, ttl_ms, ..Member::default() };
    let key = EntryKey::member(&group.parse().expect("a name"), "dead-0");
    let write = Write { key: key.clone(), expect: None, value: Some(member.encode()) };
    memory.commit(write).await.expect("the entry is written");
    key
}

#[tokio::test]
async fn nothing_starts_after_an_abort_and_only_what_ran_is_lost() {
    let (_, mill) = mill();
    mill.create_topic("t").await.unwrap();
    mill.push_many("t", vec!["x"; 200]).await.unwrap();
    let (started, handler) = never_ending();
    let worker = mill.worker("t").concurrency(1).delivery(Delivery::AtMostOnce).start(handler).await.unwrap();
    started.notified().await;
    let counts = worker.abort().await;
    assert_eq!((counts.started, counts.dead), (1, 1));
    let status = mill.admin().status("t", "default").await.unwrap();
    assert_eq!((status.dead, status.waiting + status.claimed), (1, 199));
}

#[tokio::test]
async fn a_handler_that_stops_the_worker_is_the_last_to_start() {
    let (_, mill) = mill();
    mill.create_topic("t").await.unwrap();
    mill.push_many("t", vec!["x"; 200]).await.unwrap();
    let stop = |_: Context| async { Outcome::stop("the database is down") };
    let worker = mill.worker("t").concurrency(1).start(stop).await.unwrap();
    let counts = worker.ended().await;
    assert_eq!((counts.started, counts.stopped_because.as_deref()), (1, Some("the database is down")));
    let status = mill.admin().status("t", "default").await.unwrap();
    assert_eq!(status.waiting + status.claimed, 200, "its message is untouched");
}

#[tokio::test]
async fn stopping_can_have_a_deadline() {
    let (_, mill) = mill();
    mill.create_topic("t").await.unwrap();
    mill.push("t", "x").await.unwrap();
    let (started, handler) = never_ending();
    let worker = mill.worker("t").start(handler).await.unwrap();
    started.notified().await;
    // The deadline itself is under test, so this time has to pass.
    assert!(Env::system().within(Duration::from_millis(50), worker.stop()).await.is_none());
    worker.abort().await;
    assert_eq!(mill.admin().status("t", "default").await.unwrap().done, 0);
}

#[tokio::test]
async fn a_group_whose_workers_all_died_can_begin_anew_with_other_rules() {
    let (memory, mill) = mill();
    let topic = mill.create_topic("t").await.unwrap();
    mill.worker("t").start(|_: Context| async {}).await.unwrap().stop().await;
    let dead = leave_a_dead_member(&memory, &topic, "default", 200).await;
    let worker =
        mill.worker("t").ordered().ttl(Duration::from_millis(500)).start(|_: Context| async {}).await;
    worker.unwrap().stop().await;
    assert!(memory.get(&dead).await.unwrap().is_none());
}

#[tokio::test]
async fn a_group_that_is_at_work_keeps_its_rules() {
    // With the kit's clock no heartbeat comes too late.
    let mill = TestMill::new();
    mill.topic("t").await;
    let ttl = Duration::from_secs(1);
    let builder = || mill.worker("t").ttl(ttl);
    let worker = mill.wait_for(builder().start(|_: Context| async {})).await.unwrap();
    let other = mill.wait_for(builder().ordered().start(|_: Context| async {})).await;
    let error = other.err().unwrap().to_string();
    assert!(error.contains("at work with at-least-once, not ordered"), "{error}");
    mill.wait_for(worker.stop()).await;
}

#[tokio::test]
async fn a_dead_worker_of_another_group_does_not_keep_the_duty() {
    let (memory, mill) = mill();
    let topic = mill.create_topic("t").await.unwrap();
    leave_a_dead_member(&memory, &topic, "gone", 200).await;
    let value = r#"{"group":"gone","worker":"dead-0"}"#;
    memory
        .commit(Write { key: EntryKey::duty(&topic), expect: None, value: Some(value.into()) })
        .await
        .unwrap();
    mill.push("t", Push::new("later").after(Duration::from_millis(10))).await.unwrap();
    let ttl = Duration::from_millis(800);
    let worker = mill.worker("t").ttl(ttl).start(|_: Context| async {}).await.unwrap();
    let done = async {
        while mill.admin().status("t", "default").await.unwrap().done == 0 {
            Env::system().sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(
        Env::system().within(Duration::from_secs(20), done).await.is_some(),
        "test timed out: a living worker promotes the message"
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_deleted_topic_leaves_nothing_and_its_workers_end() {
    let (memory, mill) = mill();
    mill.create_topic("t").await.unwrap();
    mill.push("t", "x").await.unwrap();
    let worker = mill.worker("t").start(|_: Context| async {}).await.unwrap();
    worker.drained().await;
    mill.admin().delete_topic("t").await.unwrap();
    let counts = worker.ended().await;
    assert!(counts.stopped_because.unwrap().contains("does not exist"));
    assert!(mill.admin().topics().await.unwrap().is_empty() && memory.topics().await.unwrap().is_empty());
    // The new topic of the same name is independent of the old one.
    mill.create_topic("t").await.unwrap();
    mill.push("t", "y").await.unwrap();
    assert_eq!(mill.admin().status("t", "default").await.unwrap().waiting, 1);
}

#[tokio::test]
async fn a_worker_starts_no_more_than_it_may_and_leaves_the_rest_to_others() {
    let (_, mill) = mill();
    mill.create_topic("t").await.unwrap();
    mill.push_many("t", vec!["x"; 50]).await.unwrap();
    let fails_at_first = |run: Context| async move { if run.attempt() == 1 { Err("no") } else { Ok(()) } };
    for ordered in [false, true] {
        let group = if ordered { "ordered" } else { "default" };
        let mut builder = mill.worker("t").group(group).concurrency(8).max_messages(5);
        if ordered {
            builder = builder.ordered();
        }
        let worker = builder.start(fails_at_first).await.unwrap();
        let counts = worker.ended().await;
        assert_eq!(counts.started, 5, "{counts:?}");
        assert!(counts.stopped_because.is_none(), "{counts:?}");
        let status = mill.admin().status("t", group).await.unwrap();
        assert_eq!(status.done, counts.done);
        assert_eq!(status.waiting + status.claimed + status.retrying, 50 - counts.done, "{status:?}");
    }
    let all = mill.worker("t").max_messages(200).start(async || ()).await.unwrap();
    all.drained().await;
    assert_eq!(mill.admin().status("t", "default").await.unwrap().done, 50);
    all.stop().await;
    let none = mill.worker("t").max_messages(0).start(async || ()).await;
    assert!(none.is_err_and(|error| error.to_string().contains("start")));
}
