//! Kafka. The engine alone is the driver's own producer and consumer.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Header, Message as _, OwnedHeaders};
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use sawmill::engine::{Engine, Namespace};
use sawmill::env::Env;
use sawmill::ledger::Ledger;
use sawmill::{Sawmill, engine};
use sawmill_kafka::KafkaEngine;
use tokio::task::block_in_place;

use crate::subject::{Goals, Opened, Pin, Raw, RowQueue, Subject, Tally};
use crate::{Failure, PAYLOAD, SHARDS, url};

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Kafka {
    url: String,
}

impl Kafka {
    pub(crate) fn new() -> Result<Self, Failure> {
        Ok(Self { url: url("SAWMILL_TEST_KAFKA")? })
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.url.trim_start_matches("kafka://"));
        config
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>, Failure> {
        Ok(self.config().create()?)
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().operation_timeout(Some(PATIENCE))
}

#[async_trait]
impl Subject for Kafka {
    fn name(&self) -> &'static str {
        "Kafka"
    }

    fn goals(&self) -> Goals {
        Goals { end_to_end: 0.6, row_queue: None, single: 1.0, p50_ms: 5.0, p99_ms: 20.0, idle_timers: None }
    }

    fn gathers_pushes(&self) -> bool {
        true
    }

    fn store(&self, name: &str) -> String {
        format!("bench{}{name}", std::process::id())
    }

    async fn open(&self, store: &str, env: Env) -> Result<Box<dyn Opened>, Failure> {
        let namespace: Namespace = store.parse()?;
        let engine::Store { log, ledger } = KafkaEngine.open(&self.url.parse()?, &namespace).await?;
        let (Some(log), Some(ledger)) = (log, ledger) else { return Err("the store is not complete".into()) };
        Ok(Box::new(Store { mill: Sawmill::from_parts(log, ledger.clone(), env), ledger }))
    }

    async fn remove(&self, store: &str) -> Result<(), Failure> {
        let mill = Sawmill::options().engine(KafkaEngine).namespace(store).open(&self.url).await?;
        for topic in mill.topics().await? {
            mill.delete_topic(&topic.name.to_string()).await?;
        }
        drop(mill);
        self.admin()?.delete_topics(&[&format!("sawmill.{store}.coordination")], &options()).await?;
        Ok(())
    }

    async fn raw(&self) -> Result<Box<dyn Raw>, Failure> {
        let topic = format!("bench-raw-{:016x}", Env::system().dice().roll());
        let new = NewTopic::new(&topic, SHARDS as i32, TopicReplication::Fixed(-1));
        self.admin()?.create_topics([&new], &options()).await?;
        let mut config = self.config();
        // As durable as Sawmill writes.
        config.set("enable.idempotence", "true").set("acks", "all").set("linger.ms", "1");
        let producer: FutureProducer = config.create()?;
        Ok(Box::new(Table { consumer: self.config(), admin: self.admin()?, producer, topic, made: 0 }))
    }

    async fn row_queue(&self) -> Result<Option<Box<dyn RowQueue>>, Failure> {
        Ok(None)
    }

    async fn pin(&self) -> Result<Box<dyn Pin>, Failure> {
        Err("Kafka has no transaction that could be held open by a reader".into())
    }
}

struct Store {
    mill: Sawmill,
    ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Opened for Store {
    fn mill(&self) -> &Sawmill {
        &self.mill
    }

    fn ledger(&self) -> Option<Arc<dyn Ledger>> {
        Some(self.ledger.clone())
    }

    /// A broker does not say what it has done.
    async fn tally(&self) -> Result<Tally, Failure> {
        Ok(Tally::default())
    }

    async fn close(self: Box<Self>) -> Result<Tally, Failure> {
        Ok(Tally::default())
    }
}

/// A topic of messages.
struct Table {
    consumer: ClientConfig,
    admin: AdminClient<DefaultClientContext>,
    producer: FutureProducer,
    topic: String,
    made: usize,
}

#[async_trait]
impl Raw for Table {
    /// All are on their way at once, and all are confirmed.
    async fn insert(&mut self, rows: usize) -> Result<(), Failure> {
        let mut sent = Vec::with_capacity(rows);
        for _ in 0..rows {
            // As much as Sawmill writes beside the payload.
            let fields = Header { key: "sawmill-message", value: Some(&[7u8; 24]) };
            let headers = OwnedHeaders::new_with_capacity(1).insert(fields);
            let partition = (self.made % SHARDS) as i32;
            self.made += 1;
            let record = FutureRecord::<(), [u8]>::to(&self.topic).partition(partition).payload(&PAYLOAD[..]);
            sent.push(self.producer.send_result(record.headers(headers)).map_err(|(error, _)| error)?);
        }
        for delivered in join_all(sent).await {
            delivered?.map_err(|(error, _)| error)?;
        }
        Ok(())
    }

    /// The driver sends together what comes together.
    async fn insert_singly(&mut self, rows: usize) -> Result<(), Failure> {
        self.insert(rows).await
    }

    async fn insert_one(&mut self) -> Result<(), Failure> {
        self.insert(1).await
    }

    async fn read_all(&mut self) -> Result<usize, Failure> {
        block_in_place(|| {
            self.consumer.set("group.id", "bench").set("enable.auto.commit", "false");
            let consumer: BaseConsumer = self.consumer.create()?;
            let mut from = TopicPartitionList::new();
            for partition in 0..SHARDS as i32 {
                from.add_partition_offset(&self.topic, partition, Offset::Beginning)?;
            }
            consumer.assign(&from)?;
            let (mut read, mut bytes) = (0, 0);
            while read < self.made {
                let message = consumer.poll(PATIENCE).ok_or("nothing more came")??;
                bytes += message.payload().map_or(0, <[u8]>::len);
                read += 1;
            }
            Ok(bytes)
        })
    }

    async fn log_bytes(&mut self) -> Result<u64, Failure> {
        Ok(0)
    }

    async fn remove(self: Box<Self>) -> Result<(), Failure> {
        self.admin.delete_topics(&[&self.topic], &options()).await?;
        Ok(())
    }
}
