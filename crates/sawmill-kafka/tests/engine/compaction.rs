//! The ledger on a broker that compacts its topic as early as it may, during writes: no decision is forgotten
//! or changed, and unneeded records are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use sawmill_engine::runtime::{Clock, SystemClock};
use sawmill_engine::storage::{Commit, Entry, EntryKey, Ledger, Namespace, Version, Write};
use sawmill_kafka::Kafka;
use sawmill_servers::{KafkaExtras, Server};
use tokio::task::block_in_place;

const TOPIC: &str = "claims";
const COUNTERS: usize = 5;

fn config(server: &Server) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", format!("127.0.0.1:{}", server.port()));
    config
}

/// Starts a broker that cleans at once, with a coordination topic of small segments that may be cleaned soon.
async fn eager(test: &str) -> Option<Server> {
    let properties = "log.cleaner.backoff.ms=200\nlog.retention.check.interval.ms=500\n".to_owned();
    let started = Server::kafka(&KafkaExtras { properties, ..KafkaExtras::default() });
    let server = started.map_err(|why| sawmill_conformance::skipped(test, &why)).ok()?;
    let admin: AdminClient<DefaultClientContext> = config(&server).create().unwrap();
    let topic = NewTopic::new(TOPIC, 1, TopicReplication::Fixed(1))
        .set("cleanup.policy", "compact")
        .set("message.timestamp.type", "LogAppendTime")
        .set("min.compaction.lag.ms", "20000")
        .set("max.compaction.lag.ms", "21000")
        .set("min.cleanable.dirty.ratio", "0.001")
        .set("delete.retention.ms", "3600000")
        .set("segment.ms", "1000");
    let made = admin.create_topics([&topic], &AdminOptions::new()).await.unwrap();
    made[0].as_ref().unwrap();
    Some(server)
}

async fn open(server: &Server) -> Kafka {
    let url = format!("{}?coordination={TOPIC}", server.url()).parse().unwrap();
    Kafka::open(&url, &Namespace::default()).await.unwrap()
}

/// Returns the number of records with a value before this offset, and the topic's end.
fn values(server: &Server, before: i64) -> (usize, i64) {
    let consumer: BaseConsumer = config(server).set("group.id", "stranger").create().unwrap();
    let began = SystemClock.now();
    let go_on = |error: Option<&KafkaError>| {
        let waited = SystemClock.now().since(began);
        assert!(
            waited < Duration::from_secs(60),
            "test timed out: the topic is read; the last error: {error:?}"
        );
    };
    let end = loop {
        match consumer.fetch_watermarks(TOPIC, 0, Duration::from_secs(10)) {
            Ok((_, end)) => break end,
            Err(error) => go_on(Some(&error)),
        }
    };
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(TOPIC, 0, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let (mut count, mut at) = (0, 0);
    while at + 1 < end.min(before) {
        match consumer.poll(Duration::from_secs(5)) {
            Some(Ok(record)) => {
                at = record.offset();
                let lives = record.payload().is_some_and(|payload| !payload.is_empty());
                count += usize::from(lives && at < before);
            }
            Some(Err(error)) => go_on(Some(&error)),
            None => go_on(None),
        }
    }
    (count, end)
}

fn counter(number: usize) -> EntryKey {
    EntryKey::raw(format!("counters/{number}"))
}

fn number(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, |entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap())
}

/// The outcome of a bid.
enum Bid {
    /// The counter's new value and version.
    Won(u64, Version),
    Lost,
    /// The broker was too slow. The bid may have won, or may still win.
    Unanswered,
}

/// Adds one, unless another writer is first.
async fn add(ledger: &Kafka, key: &EntryKey) -> Bid {
    let entry = ledger.get(key).await.unwrap();
    let next = number(entry.as_ref()) + 1;
    let expect = entry.map(|entry| entry.version);
    let write = Write { key: key.clone(), expect, value: Some(next.to_string().into()) };
    match ledger.commit(write).await.unwrap() {
        Commit::Done(version) => Bid::Won(next, version),
        Commit::Conflict => Bid::Lost,
        Commit::Unknown => Bid::Unanswered,
    }
}

/// Commits, and retries while the outcome is unknown. Also returns whether an earlier try was unanswered and
/// may have succeeded.
async fn settle(ledger: &Kafka, write: Write) -> (Commit, bool) {
    for tries in 0..4 {
        match ledger.commit(write.clone()).await.unwrap() {
            Commit::Unknown => {}
            answer => return (answer, tries > 0),
        }
    }
    panic!("test timed out: the broker answers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k5_a_broker_that_compacts_all_the_time_changes_nothing_that_was_decided() {
    let test = "k5_a_broker_that_compacts_all_the_time_changes_nothing_that_was_decided";
    let Some(server) = eager(test).await else { return };
    let writers = [open(&server).await, open(&server).await, open(&server).await];
    let mut counts: BTreeMap<usize, (u64, Version)> = BTreeMap::new();
    // Counters that may be ahead, because a bid was not answered.
    let mut unsure: BTreeSet<usize> = BTreeSet::new();
    let (mut rounds, mut end, mut first, mut conflicts) = (0, 0, 0, 0);
    let began = SystemClock.now();
    // Runs until the broker has compacted most values of the first rounds.
    loop {
        for key in 0..COUNTERS {
            // Three bid for the same version, and one wins.
            let name = counter(key);
            let bids = [add(&writers[0], &name), add(&writers[1], &name), add(&writers[2], &name)];
            let [a, b, c] = bids;
            let (a, b, c) = futures_util::future::join3(a, b, c).await;
            let (mut won, mut unanswered) = (Vec::new(), false);
            for bid in [a, b, c] {
                match bid {
                    Bid::Won(count, version) => won.push((count, version)),
                    Bid::Lost => conflicts += 1,
                    Bid::Unanswered => unanswered = true,
                }
            }
            // One may have read after another's bid was done.
            won.sort_by_key(|(_, version)| *version);
            for (count, version) in won {
                let (before, old) = counts.get(&key).copied().unwrap_or((0, Version(0)));
                assert!(
                    count > before && version > old,
                    "{name}: {before} at {old:?}, then {count} at {version:?}"
                );
                counts.insert(key, (count, version));
                // A bid of an earlier round was for this version, or for an earlier one.
                unsure.remove(&key);
            }
            if unanswered {
                unsure.insert(key);
            }
        }
        // Entries that come and go, as those of members do.
        let gone = EntryKey::raw(format!("members/{rounds}"));
        let made = Write { key: gone.clone(), expect: None, value: Some("here".into()) };
        let version = match settle(&writers[0], made).await {
            (Commit::Done(version), _) => version,
            (Commit::Conflict, true) => writers[0].get(&gone).await.unwrap().unwrap().version,
            other => panic!("nobody else has it: {other:?}"),
        };
        let removed = Write { key: gone.clone(), expect: Some(version), value: None };
        match settle(&writers[1], removed).await {
            (Commit::Done(_), _) => {}
            (Commit::Conflict, true) => assert_eq!(writers[1].get(&gone).await.unwrap(), None),
            other => panic!("nobody else removes it: {other:?}"),
        }
        rounds += 1;
        if rounds == 10 {
            (first, end) = block_in_place(|| values(&server, i64::MAX));
        }
        if rounds > 10 && rounds % 20 == 0 && block_in_place(|| values(&server, end)).0 * 4 < first {
            break;
        }
        assert!(
            SystemClock.now().since(began) < Duration::from_secs(90),
            "test timed out: the broker compacts"
        );
        SystemClock.sleep(Duration::from_millis(50)).await;
    }
    let (left, _) = block_in_place(|| values(&server, end));
    eprintln!("{test}: {rounds} rounds, {conflicts} conflicts; of the first {first} values {left} are left");
    assert!(conflicts > 0, "nobody contended");

    // A late reader, which sees only what compaction has left, sees the same as the others.
    let late = open(&server).await;
    for (key, (count, version)) in &counts {
        let there = late.get(&counter(*key)).await.unwrap().unwrap();
        let seen = (number(Some(&there)), there.version);
        if unsure.contains(key) {
            assert!(seen >= (*count, *version), "{seen:?} comes after {count} at {version:?}");
        } else {
            assert_eq!(seen, (*count, *version));
            assert_eq!(Some(there), writers[0].get(&counter(*key)).await.unwrap());
        }
        let stale =
            Write { key: counter(*key), expect: Some(Version(version.0 - 1)), value: Some("0".into()) };
        assert_eq!(settle(&late, stale).await.0, Commit::Conflict, "an old version is refused");
    }
    assert_eq!(late.list(&EntryKey::raw("members/")).await.unwrap(), [], "what was deleted stays so");
    let again = Write { key: EntryKey::raw("members/0"), expect: None, value: Some("again".into()) };
    assert_eq!(settle(&late, again).await.0, Commit::Conflict, "and its name is not used again");
}
