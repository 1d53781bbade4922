//! A Kafka client without Sawmill writes to Sawmill's topics and reads them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::server_for;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders, OwnedMessage};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use sawmill::{Context, Push, Sawmill};
use sawmill_conformance::waits::timeout_message;
use sawmill_engine::runtime::{Clock, Env, SystemClock};
use sawmill_kafka::KafkaEngine;
use tokio::task::block_in_place;

fn config(url: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", url.strip_prefix("kafka://").unwrap());
    config
}

/// Returns an unused topic name, and a store in which Kafka's name is the same.
async fn place(url: &str) -> (Sawmill, String) {
    let topic = format!("foreign-{:016x}", Env::system().rng().next_u64());
    let coordination = format!("{url}?coordination={topic}-claims");
    (Sawmill::options().engine(KafkaEngine).open(&coordination).await.unwrap(), topic)
}

async fn make(url: &str, topic: &str, partitions: i32, policy: &str) {
    let admin: AdminClient<DefaultClientContext> = config(url).create().unwrap();
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1)).set("cleanup.policy", policy);
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
    admin.create_topics([&new], &options).await.unwrap()[0].as_ref().unwrap();
    shown(&admin, topic, partitions).await;
}

/// Waits until the broker shows the topic with this many partitions, which may be a moment after creating it.
async fn shown(admin: &AdminClient<DefaultClientContext>, topic: &str, partitions: i32) {
    let began = SystemClock.now();
    let wanted = usize::try_from(partitions).unwrap();
    loop {
        let seen = admin.inner().fetch_metadata(Some(topic), Duration::from_secs(5));
        if seen.is_ok_and(|seen| seen.topics().iter().all(|topic| topic.partitions().len() == wanted)) {
            return;
        }
        assert!(
            SystemClock.now().since(began) < Duration::from_secs(60),
            "test timed out: the topic is shown"
        );
        SystemClock.sleep(Duration::from_millis(50)).await;
    }
}

/// Deletes a topic, and creates it again as soon as the broker allows it.
async fn remake(url: &str, topic: &str, partitions: i32) {
    let admin: AdminClient<DefaultClientContext> = config(url).create().unwrap();
    let options = AdminOptions::new().operation_timeout(Some(Duration::from_secs(30)));
    admin.delete_topics(&[topic], &options).await.unwrap()[0].as_ref().unwrap();
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let began = SystemClock.now();
    while admin.create_topics([&new], &options).await.unwrap()[0].is_err() {
        assert!(
            SystemClock.now().since(began) < Duration::from_secs(60),
            "test timed out: the topic is deleted"
        );
        SystemClock.sleep(Duration::from_millis(100)).await;
    }
    shown(&admin, topic, partitions).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_other_producers_keep_the_order_of_their_keys() {
    const KEYS: usize = 9;
    const EACH: usize = 60;
    let Some(url) = server_for("messages_of_other_producers_keep_the_order_of_their_keys") else { return };
    let (mill, topic) = place(&url).await;
    make(&url, &topic, 4, "delete").await;
    block_in_place(|| {
        let producer: BaseProducer = config(&url).set("compression.type", "gzip").create().unwrap();
        for n in 0..EACH {
            for key in 0..KEYS {
                let headers = OwnedHeaders::new().insert(Header { key: "lang", value: Some("en") });
                let (key, payload) = (format!("key {key}"), n.to_string());
                producer.send(BaseRecord::to(&topic).key(&key).payload(&payload).headers(headers)).unwrap();
            }
            producer.poll(Duration::ZERO);
        }
        producer.flush(Duration::from_secs(60)).expect("test timed out: all is sent");
    });
    let seen: Arc<Mutex<HashMap<Vec<u8>, Vec<usize>>>> = Arc::default();
    let mut workers = Vec::new();
    for _ in 0..2 {
        let seen = seen.clone();
        let handler = move |context: Context| {
            let message = context.message();
            assert_eq!(message.headers.text("lang"), Some("en"));
            let number = std::str::from_utf8(&message.payload).unwrap().parse().unwrap();
            seen.lock().unwrap().entry(message.key.clone().unwrap().to_vec()).or_default().push(number);
            async { Ok::<(), sawmill::Error>(()) }
        };
        workers.push(mill.worker(&topic).ordered().concurrency(4).start(handler).await.unwrap());
    }
    let began = SystemClock.now();
    let came = || seen.lock().unwrap().values().map(Vec::len).sum::<usize>();
    while came() < KEYS * EACH {
        if SystemClock.now().since(began) > Duration::from_secs(60) {
            let missing = async || (KEYS * EACH).saturating_sub(came());
            panic!("{}", timeout_message("all messages come", &mill, &topic, "default", missing).await);
        }
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    for worker in workers {
        worker.stop().await;
    }
    let expected: Vec<usize> = (0..EACH).collect();
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), KEYS);
    assert!(seen.values().all(|numbers| *numbers == expected), "each key in its order, once: {seen:?}");
}

/// Returns the next record, however long the broker takes to show it.
fn next_record(consumer: &BaseConsumer) -> OwnedMessage {
    let (began, mut last) = (SystemClock.now(), None);
    while SystemClock.now().since(began) < Duration::from_secs(60) {
        match consumer.poll(Duration::from_secs(1)) {
            Some(Ok(record)) => return record.detach(),
            Some(Err(error)) => last = Some(error),
            None => {}
        }
    }
    panic!("test timed out: a record is shown; the last error: {last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_messages_can_be_read_by_others() {
    let Some(url) = server_for("our_messages_can_be_read_by_others") else { return };
    let (mill, topic) = place(&url).await;
    mill.create_topic(&topic).await.unwrap();
    mill.push(&topic, Push::new("hello").key("foobar").header("lang", "en")).await.unwrap();
    let read = block_in_place(|| {
        let consumer: BaseConsumer = config(&url).set("group.id", "stranger").create().unwrap();
        let mut from = TopicPartitionList::new();
        for partition in 0..16 {
            from.add_partition_offset(&topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&from).unwrap();
        let message = next_record(&consumer);
        let headers = message.headers().unwrap();
        let lang = headers.iter().find(|header| header.key == "lang").unwrap().value.unwrap().to_vec();
        (message.key().unwrap().to_vec(), message.payload().unwrap().to_vec(), lang, message.partition())
    });
    // Kafka's own producers choose this partition: the hash of "foobar", without its sign, modulo 16.
    let partition = (-790_332_482_i32 & 0x7fff_ffff) % 16;
    assert_eq!(read, (b"foobar".to_vec(), b"hello".to_vec(), b"en".to_vec(), partition));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_does_not_fit_is_refused_with_advice() {
    let Some(url) = server_for("what_does_not_fit_is_refused_with_advice") else { return };
    let (mill, topic) = place(&url).await;

    // A topic that does not exist.
    let error = mill.push(&topic, "x").await.unwrap_err();
    assert_eq!(error.kind(), sawmill::ErrorKind::NotFound, "{error:?}");
    assert!(error.to_string().contains("create it first"), "{error}");

    // An existing topic with another number of partitions.
    make(&url, &topic, 3, "delete").await;
    let spec = sawmill::TopicSpec::new(topic.parse().unwrap());
    let error = mill.create_topic_with(&spec).await.unwrap_err();
    assert!(
        error.kind() == sawmill::ErrorKind::Exists && error.to_string().contains("3 shards"),
        "{error:?}"
    );

    // A topic created here, and recreated outside with fewer partitions.
    let thinned = format!("{topic}-thinned");
    mill.create_topic(&thinned).await.unwrap();
    remake(&url, &thinned, 2).await;
    let again =
        Sawmill::options().engine(KafkaEngine).open(&format!("{url}?coordination={topic}-claims")).await;
    let error = again.unwrap().push(&thinned, "x").await.unwrap_err();
    assert_eq!(error.kind(), sawmill::ErrorKind::Corrupt, "{error:?}");
    assert!(error.to_string().contains("2 partitions") && error.to_string().contains("too few"), "{error}");

    // A record larger than the topic's limit, though within Sawmill's.
    let error = mill.push(&topic, vec![0; 2 << 20]).await.unwrap_err();
    assert_eq!(error.kind(), sawmill::ErrorKind::TooLarge, "{error:?}");
    assert!(error.to_string().contains("max.message.bytes"), "{error}");
    mill.push(&topic, "small").await.unwrap();

    // A message topic whose cleanup policy would lose messages.
    let compacted = format!("{topic}-compacted");
    make(&url, &compacted, 1, "compact").await;
    let error = mill.push(&compacted, "x").await.unwrap_err();
    assert!(error.to_string().contains("cleanup.policy"), "{error}");

    // Coordination topics with the wrong cleanup policy, timestamp type or number of partitions.
    for (nth, (partitions, policy, said)) in
        [(1, "delete", "cleanup.policy"), (1, "compact", "LogAppendTime"), (2, "compact", "partitions")]
            .into_iter()
            .enumerate()
    {
        let name = format!("{topic}-bad-{nth}");
        make(&url, &name, partitions, policy).await;
        let opened = Sawmill::options().engine(KafkaEngine).open(&format!("{url}?coordination={name}")).await;
        let Err(error) = opened else { panic!("{policy} with {partitions} is refused") };
        assert_eq!(error.kind(), sawmill::ErrorKind::Invalid, "{error:?}");
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_down_is_said_to_be() {
    let began = SystemClock.now();
    let opened = Sawmill::options().engine(KafkaEngine).open("kafka://127.0.0.1:9").await;
    let Err(error) = opened else { panic!("nobody is there") };
    assert_eq!(error.kind(), sawmill::ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("check that they run"), "{error}");
    let took = SystemClock.now().since(began);
    assert!(took < Duration::from_secs(20), "test timed out: an answer within 20 s; it took {took:?}");
}
