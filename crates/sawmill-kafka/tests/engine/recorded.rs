//! The records of an earlier version, written into the topics of another broker.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigSource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::FromClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use sawmill::{OpenOptions, Sawmill};
use sawmill_conformance::recorded::{Recorded, check, from_hex, lines, to_hex};
use sawmill_kafka::KafkaEngine;
use sawmill_servers::{Kind, Server};
use serde_json::{Value, json};

const TOPICS: &str = "topics.jsonl";
const RECORDS: &str = "records.jsonl";
const PATIENCE: Duration = Duration::from_secs(60);
const REPLICATION: TopicReplication<'static> = TopicReplication::Fixed(1);
const TIME: &str = "message.timestamp.type";

struct Broker(Server);

impl Broker {
    fn client<C: FromClientConfig>(&self) -> C {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", format!("127.0.0.1:{}", self.0.port()));
        config.set("group.id", "recorder").set("acks", "all").create().unwrap()
    }

    /// Returns the partitions of each topic.
    fn topics(&self, consumer: &BaseConsumer) -> BTreeMap<String, usize> {
        let metadata = consumer.fetch_metadata(None, PATIENCE).unwrap();
        let topics =
            metadata.topics().iter().map(|topic| (topic.name().to_owned(), topic.partitions().len()));
        topics.filter(|(name, _)| !name.starts_with("__")).collect()
    }
}

fn name(topic: &Value) -> &str {
    topic["topic"].as_str().unwrap()
}

/// Returns the records of a partition as lines.
fn records(consumer: &BaseConsumer, topic: &str, partition: i32) -> String {
    let (first, end) = consumer.fetch_watermarks(topic, partition, PATIENCE).unwrap();
    assert_eq!(first, 0, "nothing of {topic} has been dropped");
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    consumer.assign(&from).unwrap();
    let mut text = String::new();
    for offset in 0..end {
        // A poll can end early without a record.
        let record = (0..100).find_map(|_| consumer.poll(PATIENCE)).unwrap().unwrap();
        assert_eq!(record.offset(), offset, "{topic} has no gap, so offsets stay the same");
        let hex = |bytes: Option<&[u8]>| bytes.map(to_hex);
        let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
        let headers: Vec<Value> = headers.map(|header| json!([header.key, hex(header.value)])).collect();
        let line = json!({
            "topic": topic,
            "partition": partition,
            "timestamp": record.timestamp().to_millis(),
            "key": hex(record.key()),
            "value": hex(record.payload()),
            "headers": headers,
        });
        text += &format!("{line}\n");
    }
    text
}

#[async_trait]
impl Recorded for Broker {
    fn options(&self) -> OpenOptions {
        Sawmill::options().engine(KafkaEngine)
    }
    fn url(&self) -> String {
        self.0.url().to_owned()
    }
    fn has_unique_names(&self) -> bool {
        false
    }
    async fn save(&self, folder: &Path) {
        let (consumer, admin) =
            (self.client::<BaseConsumer>(), self.client::<AdminClient<DefaultClientContext>>());
        let (mut topics, mut text) = (String::new(), String::new());
        for (topic, partitions) in self.topics(&consumer) {
            let asked = [ResourceSpecifier::Topic(&topic)];
            let described =
                admin.describe_configs(&asked, &AdminOptions::new()).await.unwrap().remove(0).unwrap();
            let own =
                described.entries.into_iter().filter(|entry| entry.source == ConfigSource::DynamicTopic);
            let config: BTreeMap<String, Option<String>> =
                own.map(|entry| (entry.name, entry.value)).collect();
            let line = json!({ "topic": topic, "partitions": partitions, "config": config });
            topics += &format!("{line}\n");
            for partition in 0..partitions as i32 {
                text += &records(&consumer, &topic, partition);
            }
        }
        fs::write(folder.join(TOPICS), topics).unwrap();
        fs::write(folder.join(RECORDS), text).unwrap();
    }
    async fn load(&self, folder: &Path) {
        let admin: AdminClient<DefaultClientContext> = self.client();
        let topics = lines(folder, TOPICS);
        let options = AdminOptions::new();
        for topic in &topics {
            // While it is loaded, records keep their time, also where the broker sets it later.
            let new = NewTopic::new(name(topic), topic["partitions"].as_i64().unwrap() as i32, REPLICATION);
            let new = new.set(TIME, "CreateTime");
            admin.create_topics([&new], &options).await.unwrap().remove(0).unwrap();
        }
        let producer: FutureProducer = self.client();
        let bytes = |value: &Value| value.as_str().map(from_hex);
        for line in lines(folder, RECORDS) {
            let (key, value) = (bytes(&line["key"]), bytes(&line["value"]));
            let mut headers = OwnedHeaders::new();
            for header in line["headers"].as_array().unwrap() {
                let value = bytes(&header[1]);
                headers = headers.insert(Header { key: header[0].as_str().unwrap(), value: value.as_ref() });
            }
            let record = FutureRecord {
                topic: line["topic"].as_str().unwrap(),
                partition: line["partition"].as_i64().map(|partition| partition as i32),
                payload: value.as_ref(),
                key: key.as_ref(),
                timestamp: line["timestamp"].as_i64(),
                headers: Some(headers),
            };
            producer.send(record, PATIENCE).await.unwrap();
        }
        for topic in &topics {
            let mut config = AlterConfig::new(ResourceSpecifier::Topic(name(topic)));
            for (key, value) in topic["config"].as_object().unwrap() {
                config = config.set(key, value.as_str().unwrap());
            }
            admin.alter_configs([&config], &options).await.unwrap().remove(0).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_records_of_an_earlier_version_go_on() {
    let skip = |why: String| sawmill_conformance::skipped("the_records_of_an_earlier_version_go_on", &why);
    let Ok(server) = Server::start(Kind::Kafka).map_err(skip) else { return };
    check(&Broker(server), Path::new("tests/recorded/f99b6a3")).await;
}
