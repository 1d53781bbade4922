//! The ledger on a broker that compacts its topic as soon as it may, while it is written to: nothing that was decided is
//! forgotten or decided otherwise, and what nobody needs goes.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message as _;
use rdkafka::{Offset, TopicPartitionList};
use sawmill::clock::{Clock, SystemClock};
use sawmill::engine::Namespace;
use sawmill::ledger::{Commit, Entry, EntryKey, Ledger, Version, Write};
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

/// A broker that cleans at once, and a coordination topic with small segments that it may clean soon.
async fn eager(test: &str) -> Option<Server> {
    let properties = "log.cleaner.backoff.ms=200\nlog.retention.check.interval.ms=500\n".to_owned();
    let started = Server::kafka(&KafkaExtras { properties, ..KafkaExtras::default() });
    let server = started.map_err(|why| {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        sawmill_conformance::skipped(test, &why);
    });
    let server = server.ok()?;
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

/// How many records with a value lie before this offset, and where the topic ends.
fn values(server: &Server, before: i64) -> (usize, i64) {
    let consumer: BaseConsumer = config(server).set("group.id", "stranger").create().unwrap();
    let (_, end) = consumer.fetch_watermarks(TOPIC, 0, Duration::from_secs(10)).unwrap();
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(TOPIC, 0, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let (mut count, mut at) = (0, 0);
    while at + 1 < end.min(before) {
        let Some(record) = consumer.poll(Duration::from_secs(5)) else { break };
        let record = record.unwrap();
        at = record.offset();
        let lives = record.payload().is_some_and(|payload| !payload.is_empty());
        count += usize::from(lives && at < before);
    }
    (count, end)
}

fn counter(number: usize) -> EntryKey {
    EntryKey::raw(format!("counters/{number}"))
}

fn number(entry: Option<&Entry>) -> u64 {
    entry.map_or(0, |entry| std::str::from_utf8(&entry.value).unwrap().parse().unwrap())
}

/// Adds one, if nobody else does so meanwhile. Says what the counter is then, and its version.
async fn add(ledger: &Kafka, key: &EntryKey) -> Option<(u64, Version)> {
    let entry = ledger.get(key).await.unwrap();
    let next = number(entry.as_ref()) + 1;
    let expect = entry.map(|entry| entry.version);
    let write = Write { key: key.clone(), expect, value: Some(next.to_string().into()) };
    match ledger.commit(write).await.unwrap() {
        Commit::Done(version) => Some((next, version)),
        Commit::Conflict => None,
        Commit::Unknown => panic!("the broker is there and answers"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn k5_a_broker_that_compacts_all_the_time_changes_nothing_that_was_decided() {
    let test = "k5_a_broker_that_compacts_all_the_time_changes_nothing_that_was_decided";
    let Some(server) = eager(test).await else { return };
    let writers = [open(&server).await, open(&server).await, open(&server).await];
    let mut counts: BTreeMap<usize, (u64, Version)> = BTreeMap::new();
    let (mut rounds, mut end, mut first, mut conflicts) = (0, 0, 0, 0);
    let began = SystemClock.now();
    // What is left of the first rounds, when the broker may have compacted them.
    loop {
        for key in 0..COUNTERS {
            // Three bid for the same version, and one wins.
            let name = counter(key);
            let bids = [add(&writers[0], &name), add(&writers[1], &name), add(&writers[2], &name)];
            let [a, b, c] = bids;
            let (a, b, c) = futures_util::future::join3(a, b, c).await;
            let mut won: Vec<_> = [a, b, c].into_iter().flatten().collect();
            // One may have looked after another was done.
            won.sort_by_key(|(_, version)| *version);
            conflicts += 3 - won.len();
            for (count, version) in won {
                let (before, old) = counts.get(&key).copied().unwrap_or((0, Version(0)));
                assert!(
                    count > before && version > old,
                    "{name}: {before} at {old:?}, then {count} at {version:?}"
                );
                counts.insert(key, (count, version));
            }
        }
        // Entries that come and go, as members do.
        let gone = EntryKey::raw(format!("members/{rounds}"));
        let made = Write { key: gone.clone(), expect: None, value: Some("here".into()) };
        let Commit::Done(version) = writers[0].commit(made).await.unwrap() else {
            panic!("nobody else has it")
        };
        let removed = Write { key: gone, expect: Some(version), value: None };
        assert!(matches!(writers[1].commit(removed).await.unwrap(), Commit::Done(_)));
        rounds += 1;
        if rounds == 10 {
            (first, end) = block_in_place(|| values(&server, i64::MAX));
        }
        if rounds > 10 && rounds % 20 == 0 && block_in_place(|| values(&server, end)).0 * 4 < first {
            break;
        }
        assert!(
            SystemClock.now().since(began) < Duration::from_secs(90),
            "this did not happen: the broker compacts"
        );
        SystemClock.sleep(Duration::from_millis(50)).await;
    }
    let (left, _) = block_in_place(|| values(&server, end));
    eprintln!("{test}: {rounds} rounds, {conflicts} conflicts; of the first {first} values {left} are left");
    assert!(conflicts > 0, "nobody contended");

    // Who comes later, and sees only what compaction has left, sees the same as those who were there all the time.
    let late = open(&server).await;
    for (key, (count, version)) in &counts {
        let there = late.get(&counter(*key)).await.unwrap().unwrap();
        assert_eq!((number(Some(&there)), there.version), (*count, *version));
        assert_eq!(Some(there), writers[0].get(&counter(*key)).await.unwrap());
        let stale =
            Write { key: counter(*key), expect: Some(Version(version.0 - 1)), value: Some("0".into()) };
        assert_eq!(late.commit(stale).await.unwrap(), Commit::Conflict, "an old version is refused");
    }
    assert_eq!(late.list(&EntryKey::raw("members/")).await.unwrap(), [], "what was deleted stays so");
    let again = Write { key: EntryKey::raw("members/0"), expect: None, value: Some("again".into()) };
    assert_eq!(late.commit(again).await.unwrap(), Commit::Conflict, "and its name is not used again");
}
