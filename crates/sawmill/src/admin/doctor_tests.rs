//! Tests of the doctor: it finds each planted problem, and nothing in a healthy store.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use sawmill_engine::model::{NewClaim, Push, RetryPolicy, Rules, ShardState, TopicSpec};
use sawmill_engine::runtime::{Clock, Env, Moment, SystemClock};
use sawmill_engine::storage::{Commit, Entry, Ledger, Memory, Notifications, ReadRequest, Write};
use tokio::sync::Semaphore;

use super::*;
use crate::Sawmill;
use crate::handler::{Context, Outcome};
use crate::testing::TestMill;

const PATIENCE: Duration = Duration::from_secs(2);
const TTL: Duration = Duration::from_secs(1);

/// A clock that is wrong.
struct Ahead(Duration);

impl Clock for Ahead {
    fn now(&self) -> Moment {
        SystemClock.now()
    }
    fn wall(&self) -> Timestamp {
        SystemClock.wall() + self.0
    }
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration)
    }
}

/// A TTL longer than the doctor waits, so that it takes these workers to be alive.
const LONG_TTL: Duration = Duration::from_secs(60);

/// Runs the doctor while the kit's time passes, for the workers too.
async fn diagnose(kit: &TestMill, mill: &Sawmill, patience: Duration) -> Vec<Finding> {
    let (send, mut receive) = tokio::sync::oneshot::channel();
    let checked = mill.clone();
    kit.store().env().spawn(async move {
        let _ = send.send(checked.admin().doctor(patience).await);
    });
    kit.advance(patience).await;
    receive.try_recv().unwrap().unwrap()
}

async fn mill_with_topic() -> Sawmill {
    let mill = Sawmill::open("memory:").await.unwrap();
    mill.create_topic("orders").await.unwrap();
    mill
}

fn checks(findings: &[Finding]) -> Vec<&'static str> {
    findings.iter().map(|finding| finding.check).collect()
}

#[tokio::test]
async fn a_healthy_store_has_nothing_to_report() {
    let mill = TestMill::new();
    mill.create_topic("orders").await.unwrap();
    assert_eq!(diagnose(&mill, &mill, PATIENCE).await, []);
    mill.push_many("orders", ["a", "b"]).await.unwrap();
    let busy = |_: Context| std::future::pending::<()>();
    let worker = mill.wait_for(mill.worker("orders").ttl(TTL).concurrency(2).start(busy)).await.unwrap();
    mill.advance(TTL).await;
    assert_eq!(worker.state().busy, 2);
    assert_eq!(diagnose(&mill, &mill, PATIENCE).await, [], "a worker that runs handlers");
    mill.wait_for(worker.abort()).await;
    assert_eq!(diagnose(&mill, &mill, PATIENCE).await, [], "a claim that was given back is not stuck");
}

/// Pushes a message and claims it for a worker that does not exist.
async fn plant_a_claim(mill: &Sawmill, owner: &str) {
    let topic = mill.store().find_topic("orders").await.unwrap();
    mill.push("orders", Push::new("x").key("k")).await.unwrap();
    let shard = mill.store().log().shard_of(b"k", topic.shards);
    let want = ReadRequest { shard, after: Default::default(), limit: 9 };
    let block = mill.store().log().read(&topic, &[want]).await.unwrap().remove(0);
    let mut state = ShardState::default();
    let new = NewClaim { span: block.span, end: block.end, count: 1 };
    state.claim_block(&WorkerId::new(owner), Rules::default(), &new).unwrap();
    let key = EntryKey::shard(&topic, &"default".parse().unwrap(), shard);
    let expect = mill.store().ledger().get(&key).await.unwrap().map(|entry| entry.version);
    let write = Write { key, expect, value: Some(state.encode()) };
    assert!(matches!(mill.store().ledger().commit(write).await.unwrap(), Commit::Done(_)));
}

#[tokio::test]
async fn what_a_dead_worker_holds_and_nobody_takes_is_stuck() {
    let mill = mill_with_topic().await;
    mill.worker("orders").ttl(TTL).pull().await.unwrap().worker().stop().await;
    plant_a_claim(&mill, "ghost-1").await;
    let findings = mill.admin().doctor(PATIENCE).await.unwrap();
    assert_eq!(checks(&findings), ["stuck-claim"], "{findings:?}");
    assert!(findings[0].what.contains("ghost-1") && findings[0].what.starts_with("1 message"));
    assert_eq!(findings[0].topic.as_deref(), Some("orders"));
}

#[tokio::test]
async fn what_a_dead_worker_holds_is_not_stuck_while_others_may_take_it_over() {
    const TTL: Duration = Duration::from_secs(4);
    let mill = TestMill::new();
    mill.create_topic("orders").await.unwrap();
    let first = mill.wait_for(mill.worker("orders").ttl(TTL).pull()).await.unwrap();
    mill.wait_for(first.worker().stop()).await;
    let topic = mill.store().find_topic("orders").await.unwrap();
    let (beat, ttl_ms) = (1, TTL.as_millis() as u64);
    let ghost = Member { beat, slots: 1, ttl_ms, topics: vec![topic.uid.clone()], ..Member::default() };
    let key = EntryKey::member(&"default".parse().unwrap(), "ghost-1");
    let write = Write { key, expect: None, value: Some(ghost.encode()) };
    assert!(matches!(mill.store().ledger().commit(write).await.unwrap(), Commit::Done(_)));
    plant_a_claim(&mill, "ghost-1").await;
    // At the second observation the new worker has seen the dead one for less than a TTL, and may not take
    // over yet.
    let (send, mut receive) = tokio::sync::oneshot::channel();
    let there = mill.mill().clone();
    mill.store().env().spawn(async move {
        there.store().env().sleep(TTL / 2).await;
        let _ = send.send(there.worker("orders").ttl(TTL).start(|_: Context| async {}).await);
    });
    assert_eq!(diagnose(&mill, &mill, TTL + TAKEOVER).await, []);
    let worker = receive.try_recv().unwrap().unwrap();
    mill.wait_for(worker.stop()).await;
    assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, 1, "it was taken over");
}

/// A ledger from which a worker leaves when the members are listed for the second time.
struct Leaving {
    memory: Arc<Memory>,
    lists: AtomicUsize,
    leaver: Mutex<Option<BoxFuture<'static, ()>>>,
}

#[async_trait::async_trait]
impl Ledger for Leaving {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        self.memory.get(key).await
    }
    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let is_second = *prefix == EntryKey::all_members() && self.lists.fetch_add(1, SeqCst) == 1;
        let leaver = self.leaver.lock().unwrap().take_if(|_| is_second);
        if let Some(leaver) = leaver {
            leaver.await;
        }
        self.memory.list(prefix).await
    }
    async fn commit(&self, write: Write) -> Result<Commit> {
        self.memory.commit(write).await
    }
    fn entry_notifications(&self) -> Notifications {
        self.memory.entry_notifications()
    }
}

#[tokio::test]
async fn who_leaves_in_good_order_while_it_is_looked_at_leaves_nothing_stuck() {
    let memory = Arc::new(Memory::new());
    let there = Sawmill::from_parts(memory.clone(), memory.clone(), Env::system());
    there.create_topic("orders").await.unwrap();
    there.push("orders", "x").await.unwrap();
    let (begun, may_end) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (begins, ends) = (begun.clone(), may_end.clone());
    let handler = move |_: Context| {
        begins.add_permits(1);
        let ends = ends.clone();
        async move { ends.acquire().await.unwrap().forget() }
    };
    let worker = there.worker("orders").ttl(TTL).start(handler).await.unwrap();
    begun.acquire().await.unwrap().forget();
    let leaver = async move {
        may_end.add_permits(1);
        worker.stop().await;
    };
    let leaver = Mutex::new(Some(leaver.boxed()));
    let ledger = Arc::new(Leaving { memory: memory.clone(), lists: AtomicUsize::new(0), leaver });
    let here = Sawmill::from_parts(memory, ledger.clone(), Env::system());
    assert_eq!(here.admin().doctor(PATIENCE).await.unwrap(), []);
    assert!(ledger.lists.load(SeqCst) > 2, "the members were listed a third time");
}

#[test]
fn the_same_said_twice_in_other_words_is_said_once() {
    let at = |seconds: u64| Timestamp::from_millis(seconds * 1000);
    let of = |place: &str, seconds| Finding::of_clock(place, at(seconds), (at(0), at(0))).unwrap();
    let (once, again) = (of("the server", 59), of("the server", 61));
    assert_ne!(once.what, again.what, "the texts differ");
    assert!(once.repeats(&again) && !once.repeats(&of("another", 59)));
    let held = |what: &str| Finding::new("held-transaction", what, "end it");
    assert!(held("by one").repeats(&held("by one")) && !held("by one").repeats(&held("by another")));
    assert!(!held("by one").repeats(&Finding::new("rights", "by one", "end it")));
}

#[tokio::test]
async fn a_worker_whose_clock_is_wrong_is_named() {
    let memory = Arc::new(Memory::new());
    let skewed = Env::system().with_clock(Ahead(Duration::from_secs(3600)));
    let there = Sawmill::from_parts(memory.clone(), memory.clone(), skewed);
    let here = Sawmill::from_parts(memory.clone(), memory, Env::system());
    here.create_topic("orders").await.unwrap();
    let worker = there.worker("orders").name("late").ttl(TTL).start(|_: Context| async {}).await.unwrap();
    let findings = here.admin().doctor(PATIENCE).await.unwrap();
    assert_eq!(checks(&findings), ["clock-skew"], "{findings:?}");
    assert!(findings[0].what.contains("worker late") && findings[0].what.contains("ahead"), "{findings:?}");
    worker.stop().await;
}

#[tokio::test]
async fn a_message_that_fails_again_and_again_blocks_its_key() {
    let mill = mill_with_topic().await;
    mill.push_many("orders", [Push::new("bad").key("k"), Push::new("behind it").key("k")]).await.unwrap();
    let policy = RetryPolicy::retries(1000).immediate(5).backoff(TTL * 60, TTL * 60);
    let fails = |_: Context| async { Outcome::retry("no") };
    let worker = mill.worker("orders").ordered().ttl(LONG_TTL).retry(policy).start(fails).await.unwrap();
    let mut findings = Vec::new();
    while findings.is_empty() {
        findings = mill.admin().doctor(PATIENCE).await.unwrap();
    }
    assert_eq!(checks(&findings), ["blocked-key"], "{findings:?}");
    assert!(findings[0].what.contains("\"k\"") && findings[0].what_to_do.contains("cancel"));
    worker.abort().await;
}

#[tokio::test]
async fn a_key_that_most_messages_have_is_hot_where_order_is_kept() {
    let mill = mill_with_topic().await;
    let key = |n: usize| if n.is_multiple_of(3) { format!("k{n}") } else { "shop 1".to_owned() };
    mill.push_many("orders", (0..400).map(|n| Push::new("x").key(key(n)))).await.unwrap();
    let busy = |_: Context| std::future::pending::<()>();
    let unordered =
        mill.worker("orders").group("any").ttl(LONG_TTL).concurrency(2).start(busy).await.unwrap();
    assert_eq!(mill.admin().doctor(PATIENCE).await.unwrap(), []);
    let ordered = mill.worker("orders").ordered().ttl(LONG_TTL).concurrency(2).start(busy).await.unwrap();
    let findings = mill.admin().doctor(PATIENCE).await.unwrap();
    assert_eq!(checks(&findings), ["hot-key"], "{findings:?}");
    assert!(findings[0].what.contains("\"shop 1\""), "{findings:?}");
    unordered.abort().await;
    ordered.abort().await;
}

#[test]
fn the_clock_of_a_store_may_be_a_little_off() {
    let at = |seconds: u64| Timestamp::from_millis(1_000_000 + seconds * 1000);
    let of = |clock| Finding::of_clock("the server", clock, (at(10), at(11)));
    assert!([8, 10, 11, 13].into_iter().all(|seconds| of(at(seconds)).is_none()));
    assert!(of(at(14)).unwrap().what.contains("3 s ahead of"));
    assert!(of(at(0)).unwrap().what.contains("10 s behind"));
}

#[tokio::test]
async fn a_group_that_nobody_works_holds_back_the_trim() {
    let mill = Sawmill::open("memory:").await.unwrap();
    let spec = TopicSpec { retention: Duration::ZERO, ..TopicSpec::new("orders".parse().unwrap()) };
    mill.create_topic_with(&spec).await.unwrap();
    mill.worker("orders").ttl(TTL).pull().await.unwrap().worker().stop().await;
    mill.push("orders", "x").await.unwrap();
    mill.store().env().sleep(Duration::from_millis(5)).await;
    let findings = mill.admin().doctor(PATIENCE).await.unwrap();
    assert_eq!(checks(&findings), ["held-back-trim"], "{findings:?}");
    assert!(findings[0].what.contains("nobody works"), "{findings:?}");

    // A paused group holds it back too, even with a worker.
    mill.admin().pause("orders", "default").await.unwrap();
    let ready = mill.worker("orders").ttl(TTL).pull().await.unwrap();
    let findings = mill.admin().doctor(PATIENCE).await.unwrap();
    assert_eq!(checks(&findings), ["held-back-trim"], "{findings:?}");
    assert!(findings[0].what_to_do.contains("resume"), "{findings:?}");
    ready.worker().stop().await;
}
