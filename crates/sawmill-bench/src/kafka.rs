//! Kafka. The engine alone is the driver's own producer and consumer at their best: the producer gets records
//! as fast as it takes them, without waiting between batches, and the consumer prefetches.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::{ClientContext, DefaultClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use sawmill::Sawmill;
use sawmill::engine::runtime::Env;
use sawmill::engine::storage::{Engine, Ledger, Namespace, OpenedStore};
use sawmill_kafka::KafkaEngine;
use tokio::task::block_in_place;

use crate::Failure;
use crate::subject::{Goals, Opened, Raw, RowQueue, Subject, Tally};
use crate::{BATCH, PAYLOAD, SHARDS, url};

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

    /// The driver alone does not wait for one batch before the next, and a program need not either.
    fn pushes_at_once(&self) -> usize {
        8
    }

    fn store(&self, name: &str) -> String {
        format!("bench{}{name}", std::process::id())
    }

    async fn open(&self, store: &str, env: Env) -> Result<Box<dyn Opened>, Failure> {
        let namespace: Namespace = store.parse()?;
        let OpenedStore { log, ledger } = KafkaEngine.open(&self.url.parse()?, &namespace).await?;
        let (Some(log), Some(ledger)) = (log, ledger) else { return Err("the store is not complete".into()) };
        Ok(Box::new(BenchStore { mill: Sawmill::from_parts(log, ledger.clone(), env), ledger }))
    }

    async fn remove(&self, store: &str) -> Result<(), Failure> {
        let mill = Sawmill::options().engine(KafkaEngine).namespace(store).open(&self.url).await?;
        for topic in mill.admin().topics().await? {
            mill.admin().delete_topic(&topic.name.to_string()).await?;
        }
        drop(mill);
        self.admin()?.delete_topics(&[&format!("sawmill.{store}.coordination")], &options()).await?;
        Ok(())
    }

    async fn raw(&self) -> Result<Box<dyn Raw>, Failure> {
        let topic = format!("bench-raw-{:016x}", Env::system().rng().next_u64());
        let new = NewTopic::new(&topic, SHARDS as i32, TopicReplication::Fixed(-1));
        self.admin()?.create_topics([&new], &options()).await?;
        let mut config = self.config();
        // As durable as Sawmill's writes, with batches of the same size.
        config.set("enable.idempotence", "true").set("acks", "all").set("linger.ms", "5");
        config.set("batch.size", "1000000").set("batch.num.messages", "10000");
        config.set("queue.buffering.max.messages", "500000").set("queue.buffering.max.kbytes", "262144");
        let producer = config.create_with_context(DeliveryErrors::default())?;
        Ok(Box::new(Table { consumer: self.config(), admin: self.admin()?, producer, topic, made: 0 }))
    }

    async fn row_queue(&self) -> Result<Option<Box<dyn RowQueue>>, Failure> {
        Ok(None)
    }
}

struct BenchStore {
    mill: Sawmill,
    ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Opened for BenchStore {
    fn mill(&self) -> &Sawmill {
        &self.mill
    }

    fn ledger(&self) -> Option<Arc<dyn Ledger>> {
        Some(self.ledger.clone())
    }

    /// A broker does not report its counters.
    async fn tally(&self) -> Result<Tally, Failure> {
        Ok(Tally::default())
    }

    async fn close(self: Box<Self>) -> Result<Tally, Failure> {
        Ok(Tally::default())
    }
}

/// Counts the records that the brokers have refused.
#[derive(Default)]
struct DeliveryErrors {
    refused: AtomicUsize,
}

impl ClientContext for DeliveryErrors {}

impl ProducerContext for DeliveryErrors {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        self.refused.fetch_add(usize::from(result.is_err()), Ordering::Relaxed);
    }
}

/// A topic of messages.
struct Table {
    consumer: ClientConfig,
    admin: AdminClient<DefaultClientContext>,
    producer: ThreadedProducer<DeliveryErrors>,
    topic: String,
    made: usize,
}

#[async_trait]
impl Raw for Table {
    /// Hands the records to the driver. [`Raw::settle`] waits for their confirmation.
    async fn insert(&mut self, rows: usize) -> Result<(), Failure> {
        for _ in 0..rows {
            // The size of the headers that Sawmill writes.
            let fields = Header { key: "sawmill-message", value: Some(&[7u8; 24]) };
            let headers = OwnedHeaders::new_with_capacity(1).insert(fields);
            // A batch goes to one partition, as with Kafka's own producers, which gives the largest requests.
            let partition = (self.made / BATCH % SHARDS) as i32;
            self.made += 1;
            let record = BaseRecord::<(), [u8]>::to(&self.topic).partition(partition).payload(&PAYLOAD[..]);
            let mut record = record.headers(headers);
            while let Err((error, back)) = self.producer.send(record) {
                if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                    return Err(error.into());
                }
                Env::system().sleep(Duration::from_millis(1)).await;
                record = back;
            }
        }
        Ok(())
    }

    async fn settle(&mut self) -> Result<(), Failure> {
        block_in_place(|| self.producer.flush(PATIENCE))?;
        match self.producer.context().refused.load(Ordering::Relaxed) {
            0 => Ok(()),
            refused => Err(format!("{refused} records were not taken").into()),
        }
    }

    /// The driver combines concurrent records.
    async fn insert_singly(&mut self, rows: usize) -> Result<(), Failure> {
        self.insert(rows).await?;
        self.settle().await
    }

    async fn insert_one(&mut self) -> Result<(), Failure> {
        self.insert(1).await?;
        self.settle().await
    }

    async fn read_all(&mut self) -> Result<usize, Failure> {
        block_in_place(|| {
            self.consumer.set("group.id", "bench").set("enable.auto.commit", "false");
            self.consumer.set("queued.min.messages", "1000000").set("queued.max.messages.kbytes", "262144");
            self.consumer.set("fetch.message.max.bytes", "4194304");
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
