//! Sends records and reports their delivery.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{DeliveryResult, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use crate::error::{code_of, explain, explain_code, is_not_written};

/// When the driver gives up on a record.
const DELIVERY_TIMEOUT_MS: &str = "12000";
/// The most bytes of a record on the wire, with key and headers.
pub(crate) const MAX_RECORD_BYTES: usize = (8 << 20) + (128 << 10);

/// A record to be sent.
pub(crate) struct OutgoingRecord<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) headers: Option<OwnedHeaders>,
    /// Milliseconds since 1970; `None` for now.
    pub(crate) time: Option<i64>,
}

/// Sends records in order. Each is confirmed by all in-sync replicas.
pub(crate) struct RecordSender {
    config: ClientConfig,
    producer: Mutex<Option<Arc<Producer>>>,
}

type Producer = ThreadedProducer<DeliveryContext>;

struct DeliveryContext {
    /// The driver reported a fatal error: a new producer is needed.
    broken: AtomicBool,
}

/// The outcome of records that were sent together.
#[derive(Debug, Default)]
pub(crate) struct DeliveryReport {
    /// The end of each partition after the last of them.
    pub(crate) ends: Vec<(i32, u64)>,
    sent: usize,
    /// Records that are certainly not written.
    refused: usize,
    /// Records with an unknown outcome.
    unknown: usize,
    error: Option<(Code, String)>,
}

pub(crate) struct Batch {
    left: AtomicUsize,
    report: Mutex<DeliveryReport>,
    report_sender: Mutex<Option<oneshot::Sender<DeliveryReport>>>,
}

impl DeliveryReport {
    /// Fails unless all records are written. An error of another kind than `Unknown` means that none was
    /// written or will be.
    pub(crate) fn outcome(self) -> Result<DeliveryReport> {
        let Some((code, said)) = &self.error else { return Ok(self) };
        if self.unknown == 0 && self.refused == self.sent {
            return Err(explain_code(*code, said));
        }
        Err(Error::new(
            ErrorKind::Unknown,
            format!(
                "of {} records {} are not known to be written: look before you send them again ({said})",
                self.sent,
                self.unknown + self.refused
            ),
        ))
    }
}

impl Batch {
    fn report(&self) -> MutexGuard<'_, DeliveryReport> {
        self.report.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn record_outcome(&self, outcome: Result<(i32, i64), &KafkaError>) {
        let mut report = self.report();
        match outcome {
            Ok((partition, offset)) => {
                let end = u64::try_from(offset).map_or(0, |offset| offset + 1);
                match report.ends.iter_mut().find(|(other, _)| *other == partition) {
                    Some((_, last)) => *last = end.max(*last),
                    None => report.ends.push((partition, end)),
                }
            }
            Err(error) => {
                let code = code_of(error).unwrap_or(Code::Unknown);
                match is_not_written(code) {
                    true => report.refused += 1,
                    false => report.unknown += 1,
                }
                report.error.get_or_insert_with(|| (code, error.to_string()));
            }
        }
    }

    /// Counts down the outstanding records, and sends the report after the last.
    fn complete(&self, many: usize) {
        if self.left.fetch_sub(many, Ordering::AcqRel) == many {
            let sender = self.report_sender.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
            if let Some(sender) = sender {
                // The caller may have stopped waiting.
                let _ = sender.send(std::mem::take(&mut *self.report()));
            }
        }
    }
}

impl ClientContext for DeliveryContext {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the producer reports trouble");
        if code_of(&error) == Some(Code::Fatal) {
            self.broken.store(true, Ordering::Release);
        }
    }
}

impl ProducerContext for DeliveryContext {
    type DeliveryOpaque = Arc<Batch>;

    fn delivery(&self, result: &DeliveryResult<'_>, batch: Arc<Batch>) {
        match result {
            Ok(message) => batch.record_outcome(Ok((message.partition(), message.offset()))),
            Err((error, _)) => {
                if matches!(
                    code_of(error),
                    Some(
                        Code::Fatal | Code::OutOfOrderSequenceNumber | Code::UnknownProducerId | Code::Fenced
                    )
                ) {
                    self.broken.store(true, Ordering::Release);
                }
                batch.record_outcome(Err(error));
            }
        }
        batch.complete(1);
    }
}

impl RecordSender {
    /// `linger_ms` is how long a record may wait for others, to be sent in one batch.
    pub(crate) fn new(config: &ClientConfig, linger_ms: &str) -> Result<Self> {
        let mut config = config.clone();
        config.set("enable.idempotence", "true");
        config.set("acks", "all");
        config.set("linger.ms", linger_ms);
        config.set("message.timeout.ms", DELIVERY_TIMEOUT_MS);
        config.set("request.timeout.ms", "5000");
        config.set("message.max.bytes", MAX_RECORD_BYTES.to_string());
        config.set("batch.size", "1000000");
        config.set("batch.num.messages", "10000");
        config.set("queue.buffering.max.messages", "500000");
        config.set("queue.buffering.max.kbytes", "262144");
        config.set("topic.metadata.propagation.max.ms", "2000");
        config.set("partitioner", "murmur2_random");
        let producer = Mutex::new(Some(Arc::new(make(&config)?)));
        Ok(Self { config, producer })
    }

    fn producer(&self) -> Result<Arc<Producer>> {
        let mut producer = self.producer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let usable = producer.as_ref().filter(|producer| !producer.context().broken.load(Ordering::Acquire));
        if let Some(usable) = usable {
            return Ok(usable.clone());
        }
        tracing::warn!("the producer failed; a new one replaces it");
        let new = Arc::new(make(&self.config)?);
        drop_in_background(producer.replace(new.clone()));
        Ok(new)
    }

    /// Hands records to the driver; blocks while its queue is full. The report arrives when all outcomes are
    /// known.
    pub(crate) fn send<'a>(
        &self,
        count: usize,
        records: impl Iterator<Item = OutgoingRecord<'a>>,
    ) -> Result<oneshot::Receiver<DeliveryReport>> {
        let producer = self.producer()?;
        let (sender, receiver) = oneshot::channel();
        let batch = Arc::new(Batch {
            left: AtomicUsize::new(count),
            report: Mutex::new(DeliveryReport { sent: count, ..DeliveryReport::default() }),
            report_sender: Mutex::new(Some(sender)),
        });
        let mut queued = 0;
        for outgoing in records {
            let mut record =
                BaseRecord::with_opaque_to(outgoing.topic, batch.clone()).partition(outgoing.partition);
            record.key = outgoing.key;
            record.payload = outgoing.payload;
            record.headers = outgoing.headers;
            record.timestamp = outgoing.time;
            let mut tries = 0;
            while let Err((error, back)) = producer.send(record) {
                // The driver's queue is full: wait until some of it is sent.
                if code_of(&error) == Some(Code::QueueFull) && tries < 500 {
                    tries += 1;
                    producer.poll(Duration::from_millis(20));
                    record = back;
                    continue;
                }
                if queued == 0 {
                    return Err(explain(&error));
                }
                // The records before it are already queued.
                batch.record_outcome(Err(&error));
                let rest = count - queued;
                let mut report = batch.report();
                report.refused += rest.saturating_sub(1);
                drop(report);
                batch.complete(rest);
                return Ok(receiver);
            }
            queued += 1;
        }
        Ok(receiver)
    }
}

impl Drop for RecordSender {
    fn drop(&mut self) {
        let producer = self.producer.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        drop_in_background(producer.take());
    }
}

fn make(config: &ClientConfig) -> Result<Producer> {
    let reports = DeliveryContext { broken: AtomicBool::new(false) };
    Producer::from_config_and_context(config, reports).map_err(|error| explain(&error))
}

/// Drops a driver object on another thread, since that may block.
pub(crate) fn drop_in_background<T: Send + 'static>(thing: T) {
    // If no thread can be started, it is dropped here.
    let _ = std::thread::Builder::new().name("sawmill-kafka-end".into()).spawn(move || drop(thing));
}
