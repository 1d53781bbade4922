//! The requirements of a time-ordered queue on Cassandra, behaviour by behaviour.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{eventually, namespace, server_for, with_keyspace};
use futures_util::future::{join_all, try_join_all};
use sawmill::admin::GroupStatus;
use sawmill::{Context, Message, MessageId, Push, Sawmill, Timestamp, TopicSpec};
use sawmill_cassandra::{Cassandra, CassandraEngine};
use sawmill_conformance::behaviours::support::group_is;
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Env;
use sawmill_engine::storage::{
    Block, Commit, EntryKey, Ledger, Log, Namespace, Position, ReadRequest, Record, Span, Write,
};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::unprepared::Statement;

async fn open(url: &str, namespace: &Namespace) -> Sawmill {
    Sawmill::options().engine(CassandraEngine).namespace(namespace.as_str()).open(url).await.unwrap()
}

async fn store(url: &str, namespace: &Namespace) -> Cassandra {
    Cassandra::open(&url.parse().unwrap(), namespace).await.unwrap()
}

/// A session of the driver, without the engine.
async fn driver(url: &str) -> Session {
    let (_, place) = url.split_once("//").unwrap();
    // The server writes traces with a delay.
    let (often, pause) = (std::num::NonZeroU32::new(500).unwrap(), Duration::from_millis(20));
    SessionBuilder::new()
        .known_node(place.split_once('/').unwrap().0)
        .tracing_info_fetch_attempts(often)
        .tracing_info_fetch_interval(pause)
        .build()
        .await
        .unwrap()
}

fn message(text: impl Into<String>) -> Message {
    let env = Env::system();
    let random = u128::from(env.rng().next_u64()) << 64 | u128::from(env.rng().next_u64());
    Message {
        id: MessageId::from_u128(random),
        key: None,
        payload: text.into().into(),
        headers: Default::default(),
        due: None,
        created: env.wall(),
    }
}

fn spec(name: &str, shards: u16) -> TopicSpec {
    TopicSpec { shards, ..TopicSpec::new(name.parse().unwrap()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_producers_are_parallel_and_uncoordinated() {
    let Some(url) = server_for("c1") else { return };
    let namespace = namespace();
    let mill = open(&url, &namespace).await;
    mill.create_topic("orders").await.unwrap();
    let run: Arc<Mutex<HashMap<MessageId, u32>>> = Arc::default();
    let noted = run.clone();
    let handler = move |context: Context| {
        *noted.lock().unwrap().entry(context.message().id).or_default() += 1;
        async {}
    };
    let worker = mill.worker("orders").concurrency(8).start(handler).await.unwrap();
    let mills = join_all((0..8).map(|_| open(&url, &namespace))).await;
    let pushes = mills.iter().enumerate().map(|(number, mill)| async move {
        let mut ids = Vec::new();
        for call in 0..25 {
            ids.extend(mill.push_many("orders", (0..10).map(|i| format!("{number}-{call}-{i}"))).await?);
        }
        Ok::<_, sawmill::Error>(ids)
    });
    let ids: Vec<MessageId> = try_join_all(pushes).await.unwrap().into_iter().flatten().collect();
    assert_eq!(ids.len(), 2000);
    group_is(&mill, "orders", "default", "all are run", |status| status.done >= 2000).await;
    worker.stop().await;
    let run = run.lock().unwrap();
    assert!(ids.iter().all(|id| run.get(id) == Some(&1)), "each is run once");
}

/// Runs messages, retries, delays and several groups, and checks that no read of the log has met a tombstone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c2_nothing_is_deleted_and_every_row_expires() {
    let Some(url) = server_for("c2") else { return };
    let keyspace = format!("sawmill_c2_{:08x}", Env::system().rng().next_u64() as u32);
    let url = with_keyspace(&url, &keyspace);
    let namespace = namespace();
    let mill = open(&url, &namespace).await;
    // Finished messages need not be kept.
    let retention = Duration::from_millis(1);
    mill.create_topic_with(&TopicSpec { retention, ..spec("orders", 4) }).await.unwrap();
    let mut workers = Vec::new();
    for group in ["one", "two"] {
        let handler = |context: Context| async move {
            match context.payload().starts_with(b"fails") && context.attempt() == 1 {
                true => Err::<(), _>("not yet"),
                false => Ok(()),
            }
        };
        workers.push(mill.worker("orders").group(group).concurrency(4).start(handler).await.unwrap());
    }
    mill.push_many("orders", (0..500).map(|n| format!("now {n}"))).await.unwrap();
    mill.push_many("orders", (0..20).map(|n| format!("fails {n}"))).await.unwrap();
    let later = (0..100).map(|n| Push::new(format!("later {n}")).after(Duration::from_millis(300 + n)));
    mill.push_many("orders", later).await.unwrap();
    for group in ["one", "two"] {
        let all = |status: &GroupStatus| status.done == 620 && status.retrying == 0;
        group_is(&mill, "orders", group, "all is done", all).await;
    }
    for worker in workers {
        worker.stop().await;
    }
    // All messages are done by all groups and old enough, yet nothing is deleted.
    mill.admin().trim("orders").await.unwrap();
    let log = store(&url, &namespace).await;
    let topic = log.topic(&"orders".parse().unwrap()).await.unwrap().unwrap();
    let ends = log.positions(&topic, Timestamp::LATEST).await.unwrap();
    let ends: Vec<_> = ends.into_iter().map(|end| vec![end]).collect();
    let dropped = log.trim(&topic, &ends, Timestamp::LATEST).await.unwrap();
    assert_eq!(dropped.iter().sum::<u64>(), 0, "they expire by themselves");
    let session = driver(&url).await;
    let rows = session.query_unpaged(format!("SELECT at, TTL(body) FROM {keyspace}.log"), ()).await.unwrap();
    let rows = rows.into_rows_result().unwrap();
    let rows: Vec<(i64, Option<i32>)> = rows.rows().unwrap().map(Result::unwrap).collect();
    assert!(
        rows.len() > 100 && rows.iter().all(|(_, ttl)| ttl.is_some_and(|ttl| ttl > 9 * 86_400)),
        "{rows:?}"
    );
    let met = "SELECT table_name, count, max FROM system_views.tombstones_per_read WHERE keyspace_name = ? ALLOW FILTERING";
    let met = session.query_unpaged(met, (&keyspace,)).await.unwrap().into_rows_result().unwrap();
    let met: Vec<(String, i64, f64)> = met.rows().unwrap().map(Result::unwrap).collect();
    let (_, reads, most) = met.iter().find(|(table, ..)| table == "log").unwrap();
    eprintln!(
        "{} rows, {reads} reads of the log, {most} or less the most tombstones that one has met",
        rows.len()
    );
    // The server counts one tombstone and none alike; a trace distinguishes them.
    assert!(*reads > 50 && *most <= 1.0, "{met:?}");
    let mut traced = Statement::new(format!("SELECT at FROM {keyspace}.log"));
    traced.set_tracing(true);
    let trace = session.query_unpaged(traced, ()).await.unwrap().tracing_id().unwrap();
    // The server writes the steps of a trace after it has answered, one by one.
    let mut counted = Vec::new();
    eventually("the trace counts tombstones", async || {
        let trace = session.get_tracing_info(&trace).await.unwrap();
        let steps = trace.events.into_iter().filter_map(|event| event.activity);
        counted = steps.filter(|step| step.contains("tombstone")).collect();
        !counted.is_empty()
    })
    .await;
    assert!(counted.iter().all(|step| step.contains(" 0 tombstone")), "{counted:?}");
    session.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c2_what_nobody_reads_in_time_expires_and_the_queue_goes_on() {
    const KEPT: Duration = Duration::from_secs(5);
    let Some(url) = server_for("c2_expiry") else { return };
    let namespace = namespace();
    let log = store(&format!("{url}&settle=5s&keep={}s", KEPT.as_secs()), &namespace).await;
    let retention = Duration::from_secs(1);
    let topic = log.create_topic(&TopicSpec { retention, ..spec("orders", 1) }).await.unwrap();
    let env = Env::system();
    let append = async |text: &str| {
        log.append(&topic, env.wall(), vec![Record::once(0, message(text))]).await.unwrap();
    };
    let mut after = Position::default();
    let mut read = async || {
        let want = ReadRequest { shard: 0, after: after.clone(), limit: 10 };
        let block = log.read(&topic, &[want]).await.unwrap().remove(0);
        after = block.end;
        block
            .messages
            .iter()
            .map(|message| String::from_utf8_lossy(&message.payload).into_owned())
            .collect::<Vec<_>>()
    };
    // On a busy machine a message may expire before it is read.
    let holds = |text: &str, came: Vec<String>, took: Duration| {
        assert!(came == [text] || took < KEPT, "test timed out: {text:?} is read in time; it took {took:?}");
        assert_eq!(came, [text]);
    };
    let began = env.now();
    append("read").await;
    holds("read", read().await, env.now().since(began));
    append("not read").await;
    env.sleep(Duration::from_secs(8)).await;
    assert_eq!(read().await, [""; 0], "it has expired");
    let began = env.now();
    append("new").await;
    holds("new", read().await, env.now().since(began));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c6_c11_a_lock_is_conditional_and_renewing_never_takes_anothers() {
    let Some(url) = server_for("c6_c11") else { return };
    let namespace = namespace();
    let (one, two) = (store(&url, &namespace).await, store(&url, &namespace).await);
    let key = EntryKey::raw("locks/0");
    let write = |expect, value: Option<&'static str>| Write {
        key: key.clone(),
        expect,
        value: value.map(Into::into),
    };
    let Commit::Done(first) = one.commit(write(None, Some("one"))).await.unwrap() else {
        panic!("a free lock can be taken")
    };
    assert_eq!(two.commit(write(None, Some("two"))).await.unwrap(), Commit::Conflict);
    let Commit::Done(renewed) = one.commit(write(Some(first), Some("one"))).await.unwrap() else {
        panic!("the holder can renew its lock")
    };
    // The second store has seen the first version, and takes the lock only if it was not renewed.
    assert_eq!(two.commit(write(Some(first), Some("two"))).await.unwrap(), Commit::Conflict);
    let Commit::Done(taken) = two.commit(write(Some(renewed), Some("two"))).await.unwrap() else {
        panic!("a lock that was not renewed can be taken")
    };
    // A renewal that comes too late is refused.
    assert_eq!(one.commit(write(Some(renewed), Some("one"))).await.unwrap(), Commit::Conflict);
    assert_eq!(&one.get(&key).await.unwrap().unwrap().value[..], b"two");
    assert!(matches!(two.commit(write(Some(taken), None)).await.unwrap(), Commit::Done(_)));
    assert_eq!(one.commit(write(Some(taken), Some("one"))).await.unwrap(), Commit::Conflict);
    assert_eq!(one.get(&key).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c10_initialising_again_keeps_the_state() {
    let Some(url) = server_for("c10") else { return };
    let keyspace = format!("sawmill_c10_{:08x}", Env::system().rng().next_u64() as u32);
    let url = with_keyspace(&url, &keyspace);
    let namespace = namespace();
    // Several processes create the keyspace at once, and then each creates the topic.
    let mills = join_all((0..4).map(|_| open(&url, &namespace))).await;
    let made = try_join_all(mills.iter().map(|mill| mill.create_topic("orders"))).await.unwrap();
    assert!(made.windows(2).all(|pair| pair[0] == pair[1]), "{made:?}");
    let run: Arc<Mutex<Vec<String>>> = Arc::default();
    for round in 0..3 {
        let mill = open(&url, &namespace).await;
        assert_eq!(mill.create_topic("orders").await.unwrap(), made[0]);
        mill.push("orders", format!("round {round}")).await.unwrap();
        let noted = run.clone();
        let handler = move |context: Context| {
            noted.lock().unwrap().push(String::from_utf8_lossy(context.payload()).into_owned());
            async {}
        };
        let worker = mill.worker("orders").start(handler).await.unwrap();
        group_is(&mill, "orders", "default", "it is done", |status| status.done == round + 1).await;
        worker.stop().await;
    }
    assert_eq!(*run.lock().unwrap(), ["round 0", "round 1", "round 2"], "nothing is run again");
    driver(&url).await.query_unpaged(format!("DROP KEYSPACE {keyspace}"), ()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c12_shard_count_and_time_granularity_belong_to_the_topic() {
    let Some(url) = server_for("c12") else { return };
    let namespace = namespace();
    let fine = store(&format!("{url}&bucket=1s"), &namespace).await;
    let topic = fine.create_topic(&spec("fine", 2)).await.unwrap();
    // A store that is opened later uses the settings with which the topic was created.
    let coarse = store(&format!("{url}&bucket=1h"), &namespace).await;
    let other = coarse.create_topic(&spec("coarse", 5)).await.unwrap();
    assert_eq!(coarse.create_topic(&spec("fine", 2)).await.unwrap(), topic);
    let env = Env::system();
    for (handle, n) in [(&fine, 0), (&coarse, 1), (&fine, 2), (&coarse, 3)] {
        for topic in [&topic, &other] {
            let records = (0..topic.shards).map(|shard| Record::once(shard, message(format!("{n}"))));
            handle.append(topic, env.wall(), records.collect()).await.unwrap();
        }
        env.sleep(Duration::from_millis(700)).await;
    }
    for (topic, shards) in [(&topic, 2), (&other, 5)] {
        for handle in [&fine, &coarse] {
            for shard in 0..shards {
                let (mut texts, mut after) = (Vec::new(), Position::default());
                while texts.len() < 4 {
                    let want = ReadRequest { shard, after: after.clone(), limit: 10 };
                    let block = handle.read(topic, &[want]).await.unwrap().remove(0);
                    assert!(!block.messages.is_empty(), "{texts:?}");
                    texts.extend(block.messages.iter().map(|message| message.payload.clone()));
                    after = block.end;
                }
                assert_eq!(texts, ["0", "1", "2", "3"]);
            }
        }
    }
    let keyspace = url.rsplit_once('/').unwrap().1.split('?').next().unwrap().to_owned();
    let session = driver(&url).await;
    let mut buckets = BTreeMap::new();
    for topic in [&topic, &other] {
        let listed = format!("SELECT bucket FROM {keyspace}.buckets WHERE topic = ? AND kind = 0");
        let listed = session.query_unpaged(listed, (&topic.uid,)).await.unwrap().into_rows_result().unwrap();
        let mut listed: Vec<(i64,)> = listed.rows().unwrap().map(Result::unwrap).collect();
        listed.dedup();
        buckets.insert(topic.name.to_string(), listed.len());
    }
    assert!(buckets["fine"] >= 3 && buckets["coarse"] <= 2, "{buckets:?}");
}

/// A long order spans several partitions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_order_is_read_through_every_handle() {
    const MANY: usize = 1030;
    let Some(url) = server_for("a_long_order_is_read_through_every_handle") else { return };
    let namespace = namespace();
    let log = store(&url, &namespace).await;
    let topic = log.create_topic(&spec("orders", 1)).await.unwrap();
    let env = Env::system();
    let (mut after, mut spans) = (Position::default(), Vec::new());
    for n in 0..MANY {
        log.append(&topic, env.wall(), vec![Record::once(0, message(n.to_string()))]).await.unwrap();
        let want = ReadRequest { shard: 0, after: after.clone(), limit: 10 };
        let block = log.read(&topic, &[want]).await.unwrap().remove(0);
        assert_eq!(block.messages.len(), 1, "what is acknowledged is read");
        after = block.end;
        spans.push(block.span);
    }
    let fresh = store(&url, &namespace).await;
    let (mut after, mut texts) = (Position::default(), Vec::new());
    while texts.len() < MANY {
        let want = ReadRequest { shard: 0, after: after.clone(), limit: 100 };
        let block = fresh.read(&topic, &[want]).await.unwrap().remove(0);
        assert!(!block.messages.is_empty(), "{} of {MANY}", texts.len());
        texts.extend(block.messages.into_iter().map(|message| message.payload));
        after = block.end;
    }
    assert!(texts.iter().enumerate().all(|(n, text)| *text == n.to_string()), "in their order");
    for n in [0, 500, 998, 999, 1000, MANY - 1] {
        let again = fresh.reread(&topic, 0, &spans[n]).await.unwrap();
        assert_eq!(again[0].payload, n.to_string());
    }
    let backlog = fresh.backlog(&topic, &[(0, Position::default()), (0, after)]).await.unwrap();
    assert_eq!(backlog.ready, [MANY as u64, 0]);
}

/// Appends and reads messages one by one, so that each has a segment of its own.
async fn one_by_one(log: &Cassandra, topic: &Topic, numbers: Range<usize>) -> (Position, Vec<Span>) {
    let mut after = log.positions(topic, Timestamp::LATEST).await.unwrap().remove(0);
    let mut spans = Vec::new();
    for n in numbers {
        append(log, topic, Record::once(0, message(n.to_string()))).await;
        let block = read_after(log, topic, &after).await;
        assert_eq!(texts(&block), [n.to_string()], "what is acknowledged is read");
        after = block.end;
        spans.push(block.span);
    }
    (after, spans)
}

async fn append(log: &Cassandra, topic: &Topic, record: Record) {
    log.append(topic, Env::system().wall(), vec![record]).await.unwrap();
}

async fn read_after(log: &Cassandra, topic: &Topic, after: &Position) -> Block {
    let want = ReadRequest { shard: 0, after: after.clone(), limit: 10 };
    log.read(topic, &[want]).await.unwrap().remove(0)
}

fn texts(block: &Block) -> Vec<String> {
    block.messages.iter().map(|message| String::from_utf8_lossy(&message.payload).into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_was_left_far_behind_reads_on_at_once() {
    const MANY: usize = 1100;
    let Some(url) = server_for("a_handle_that_was_left_far_behind_reads_on_at_once") else { return };
    let namespace = namespace();
    let log = store(&url, &namespace).await;
    let topic = log.create_topic(&spec("orders", 1)).await.unwrap();
    let (reads, rereads, counts) =
        (store(&url, &namespace).await, store(&url, &namespace).await, store(&url, &namespace).await);
    one_by_one(&log, &topic, 0..1).await;
    for left in [&reads, &rereads, &counts] {
        assert_eq!(texts(&read_after(left, &topic, &Position::default()).await), ["0"]);
    }
    let (after, spans) = one_by_one(&log, &topic, 1..MANY).await;
    append(&log, &topic, Record::once(0, message("new"))).await;
    // The first read returns it, without an empty block before.
    assert_eq!(texts(&read_after(&reads, &topic, &after).await), ["new"]);
    let again = rereads.reread(&topic, 0, &spans[MANY - 2]).await.unwrap();
    assert_eq!(again[0].payload, (MANY - 1).to_string());
    assert_eq!(counts.backlog(&topic, &[(0, after)]).await.unwrap().ready, [1]);
    // A reader that starts at the beginning does not stop where a chapter ends.
    let whole: Vec<String> = (0..MANY).map(|n| n.to_string()).chain(["new".to_owned()]).collect();
    assert_eq!(all(&url, &namespace, &topic).await, whole);
}

/// The rest of the chapter in which the handle was has expired.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handle_that_missed_what_has_expired_reads_on() {
    const MANY: usize = 1010;
    let Some(url) = server_for("a_handle_that_missed_what_has_expired_reads_on") else { return };
    let namespace = namespace();
    let log = store(&format!("{url}&settle=8s"), &namespace).await;
    let topic = log.create_topic(&spec("orders", 1)).await.unwrap();
    let (ahead, behind) = (store(&url, &namespace).await, store(&url, &namespace).await);
    let (first, _) = one_by_one(&log, &topic, 0..1).await;
    for left in [&ahead, &behind] {
        assert_eq!(texts(&read_after(left, &topic, &Position::default()).await), ["0"]);
    }
    one_by_one(&log, &topic, 1..MANY).await;
    Env::system().sleep(Duration::from_millis(8500)).await;
    let (after, _) = one_by_one(&log, &topic, MANY..MANY + 1).await;
    let expire = format!(
        "DELETE FROM {}.segments WHERE topic = ? AND shard = 0 AND chapter = 0 AND n >= 2",
        keyspace_of(&url)
    );
    driver(&url).await.query_unpaged(expire, (&topic.uid,)).await.unwrap();
    append(&log, &topic, Record::once(0, message("new"))).await;
    assert_eq!(
        texts(&read_after(&ahead, &topic, &after).await),
        ["new"],
        "the handle that reads on where others are"
    );
    // Read on where this handle was. The first segment of the next chapter has the number 1000.
    let (mut came, mut place) = (Vec::new(), first);
    eventually("what is new is read", async || {
        let block = read_after(&behind, &topic, &place).await;
        came.extend(texts(&block));
        place = block.end.clone();
        came.contains(&"new".to_owned())
    })
    .await;
    let expected = (999..=MANY).map(|n| n.to_string()).chain(["new".to_owned()]);
    assert_eq!(came, expected.collect::<Vec<_>>(), "what has expired is gone, and nothing comes twice");
}

fn keyspace_of(url: &str) -> String {
    url.rsplit_once('/').unwrap().1.split('?').next().unwrap().to_owned()
}

/// Reads the texts of all messages in a shard, from its beginning.
async fn all(url: &str, namespace: &Namespace, topic: &Topic) -> Vec<String> {
    let log = store(url, namespace).await;
    let (mut after, mut said) = (Position::default(), Vec::new());
    loop {
        let block = read_after(&log, topic, &after).await;
        if block.messages.is_empty() && !block.more {
            return said;
        }
        said.extend(texts(&block));
        after = block.end.clone();
    }
}

/// What happened between a push of unknown outcome and its repetition.
#[derive(Debug, Clone, Copy)]
struct Between {
    is_written: bool,
    is_read: bool,
    /// Others have read on until the window was past it.
    is_passed: bool,
}

async fn repeat_late(url: &str, between: Between) {
    let (keyspace, session, env) = (keyspace_of(url), driver(url).await, Env::system());
    let url = format!("{url}&settle=8s");
    let namespace = namespace();
    let log = store(&url, &namespace).await;
    let topic = log.create_topic(&spec("orders", 1)).await.unwrap();
    let once = Record::repeatable(&topic, message("once"));
    append(&log, &topic, once.clone()).await;
    // Remove the acknowledgement.
    let sures = format!("DELETE FROM {keyspace}.sures WHERE topic = ? AND id = ?");
    let id = once.message.id.as_u128().to_be_bytes().to_vec();
    session.query_unpaged(sures, (&topic.uid, id)).await.unwrap();
    if !between.is_written {
        let buckets = format!("SELECT bucket FROM {keyspace}.buckets WHERE topic = ? AND kind = 0");
        let buckets =
            session.query_unpaged(buckets, (&topic.uid,)).await.unwrap().into_rows_result().unwrap();
        for (bucket,) in buckets.rows::<(i64,)>().unwrap().map(Result::unwrap) {
            let rows = format!(
                "DELETE FROM {keyspace}.log WHERE topic = ? AND bucket = ? AND shard = 0 AND kind = 0"
            );
            session.query_unpaged(rows, (&topic.uid, bucket)).await.unwrap();
        }
    }
    let mut expected = vec!["once"];
    if between.is_read {
        assert_eq!(all(&url, &namespace, &topic).await, ["once"], "{between:?}");
    }
    env.sleep(Duration::from_millis(8500)).await;
    if between.is_passed {
        append(&log, &topic, Record::once(0, message("later"))).await;
        all(&url, &namespace, &topic).await;
        env.sleep(Duration::from_millis(8500)).await;
        append(&log, &topic, Record::once(0, message("last"))).await;
        all(&url, &namespace, &topic).await;
        expected.extend(["later", "last"]);
    }
    for _ in 0..2 {
        append(&log, &topic, once.clone()).await;
    }
    append(&store(&url, &namespace).await, &topic, once).await;
    let mut came = all(&url, &namespace, &topic).await;
    came.sort();
    expected.sort_unstable();
    assert_eq!(came, expected, "{between:?}");
    let backlog = log.backlog(&topic, &[(0, Position::default())]).await.unwrap();
    assert_eq!(backlog.ready, [came.len() as u64], "{between:?}");
}

/// One message remains, whether or not the first push was written, and whether readers have read it or passed
/// it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_of_unknown_outcome_that_is_repeated_late_adds_one_message() {
    let test = "a_push_of_unknown_outcome_that_is_repeated_late_adds_one_message";
    let Some(url) = server_for(test) else { return };
    let between = |is_written, is_read, is_passed| Between { is_written, is_read, is_passed };
    let cases = [
        between(true, false, false),
        between(true, true, false),
        between(true, true, true),
        between(false, false, false),
        between(false, false, true),
    ];
    join_all(cases.map(|case| repeat_late(&url, case))).await;
}

/// More messages than one promotion moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_does_all_that_is_due() {
    const MANY: u64 = 1300;
    let Some(url) = server_for("a_drain_does_all_that_is_due") else { return };
    let mill = open(&url, &namespace()).await;
    mill.create_topic_with(&spec("orders", 1)).await.unwrap();
    let later = (0..MANY).map(|n| Push::new(n.to_string()).after(Duration::from_millis(1500)));
    mill.push_many("orders", later).await.unwrap();
    Env::system().sleep(Duration::from_secs(2)).await;
    let worker = mill.worker("orders").concurrency(16).start(async |_: Context| ()).await.unwrap();
    worker.drained().await;
    worker.stop().await;
    assert_eq!(mill.admin().status("orders", "default").await.unwrap().done, MANY);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_level_of_consistency_can_be_worked_with() {
    let Some(url) = server_for("every_level_of_consistency_can_be_worked_with") else { return };
    for settings in [
        "consistency=ALL",
        "consistency=LOCAL_QUORUM",
        "serial=LOCAL_SERIAL",
        "consistency=LOCAL_QUORUM&serial=LOCAL_SERIAL&datacenter=datacenter1",
        "datacenter=datacenter1",
    ] {
        let mill = open(&format!("{url}&{settings}"), &namespace()).await;
        mill.create_topic_with(&spec("orders", 2)).await.unwrap();
        mill.push("orders", "now").await.unwrap();
        mill.push("orders", Push::new("later").after(Duration::from_millis(50))).await.unwrap();
        let worker = mill.worker("orders").start(async |_: Context| ()).await.unwrap();
        group_is(&mill, "orders", "default", settings, |status| status.done == 2).await;
        worker.stop().await;
    }
}
