//! Sending records, and learning what became of them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{DeliveryResult, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use sawmill::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use crate::error::{code_of, explain, explain_code, is_certain};

/// When the driver gives up on a record.
const GIVE_UP_MS: &str = "12000";
/// The most bytes that a record may have on its way, with its key and headers.
pub(crate) const MOST_BYTES: usize = (8 << 20) + (128 << 10);

/// A record to be sent.
pub(crate) struct Parcel<'a> {
    pub(crate) topic: &'a str,
    pub(crate) partition: i32,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) headers: Option<OwnedHeaders>,
    /// Milliseconds since 1970; none for now.
    pub(crate) time: Option<i64>,
}

/// Sends records in their order. All are confirmed by every broker that keeps them.
pub(crate) struct Outbox {
    config: ClientConfig,
    producer: Mutex<Option<Arc<Producer>>>,
}

type Producer = ThreadedProducer<Reports>;

struct Reports {
    /// The driver has given up on itself: a new producer is needed.
    broken: AtomicBool,
}

/// What became of records that were sent together.
#[derive(Debug, Default)]
pub(crate) struct Report {
    /// The end of each partition after the last of them.
    pub(crate) ends: Vec<(i32, u64)>,
    sent: usize,
    /// Records that are certainly not written, and why.
    refused: usize,
    /// Records of which nobody knows.
    unknown: usize,
    error: Option<(Code, String)>,
}

pub(crate) struct Batch {
    left: AtomicUsize,
    report: Mutex<Report>,
    tell: Mutex<Option<oneshot::Sender<Report>>>,
}

impl Report {
    /// Whether all are written: an error of another kind than `Unknown` says that none is and will be.
    pub(crate) fn outcome(self) -> Result<Report> {
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
    fn report(&self) -> MutexGuard<'_, Report> {
        self.report.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn note(&self, outcome: Result<(i32, i64), &KafkaError>) {
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
                match is_certain(code) {
                    true => report.refused += 1,
                    false => report.unknown += 1,
                }
                report.error.get_or_insert_with(|| (code, error.to_string()));
            }
        }
    }

    /// One less to wait for.
    fn settle(&self, many: usize) {
        if self.left.fetch_sub(many, Ordering::AcqRel) == many {
            let tell = self.tell.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
            if let Some(tell) = tell {
                // Nobody may wait for it any more.
                let _ = tell.send(std::mem::take(&mut *self.report()));
            }
        }
    }
}

impl ClientContext for Reports {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "the producer reports trouble");
        if code_of(&error) == Some(Code::Fatal) {
            self.broken.store(true, Ordering::Release);
        }
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Arc<Batch>;

    fn delivery(&self, result: &DeliveryResult<'_>, batch: Arc<Batch>) {
        match result {
            Ok(message) => batch.note(Ok((message.partition(), message.offset()))),
            Err((error, _)) => {
                if matches!(
                    code_of(error),
                    Some(
                        Code::Fatal | Code::OutOfOrderSequenceNumber | Code::UnknownProducerId | Code::Fenced
                    )
                ) {
                    self.broken.store(true, Ordering::Release);
                }
                batch.note(Err(error));
            }
        }
        batch.settle(1);
    }
}

impl Outbox {
    /// `linger_ms` is how long a record may wait for others to go with it.
    pub(crate) fn new(config: &ClientConfig, linger_ms: &str) -> Result<Self> {
        let mut config = config.clone();
        config.set("enable.idempotence", "true");
        config.set("acks", "all");
        config.set("linger.ms", linger_ms);
        config.set("message.timeout.ms", GIVE_UP_MS);
        config.set("request.timeout.ms", "5000");
        config.set("message.max.bytes", MOST_BYTES.to_string());
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
        let whole = producer.as_ref().filter(|producer| !producer.context().broken.load(Ordering::Acquire));
        if let Some(whole) = whole {
            return Ok(whole.clone());
        }
        tracing::warn!("the producer lost its place; a new one takes over");
        let new = Arc::new(make(&self.config)?);
        drop_elsewhere(producer.replace(new.clone()));
        Ok(new)
    }

    /// Hands records to the driver, which may take a moment if it has many already. The answer comes when all are settled.
    pub(crate) fn send<'a>(
        &self,
        count: usize,
        parcels: impl Iterator<Item = Parcel<'a>>,
    ) -> Result<oneshot::Receiver<Report>> {
        let producer = self.producer()?;
        let (tell, told) = oneshot::channel();
        let batch = Arc::new(Batch {
            left: AtomicUsize::new(count),
            report: Mutex::new(Report { sent: count, ..Report::default() }),
            tell: Mutex::new(Some(tell)),
        });
        let mut taken = 0;
        for parcel in parcels {
            let mut record =
                BaseRecord::with_opaque_to(parcel.topic, batch.clone()).partition(parcel.partition);
            record.key = parcel.key;
            record.payload = parcel.payload;
            record.headers = parcel.headers;
            record.timestamp = parcel.time;
            let mut tries = 0;
            while let Err((error, back)) = producer.send(record) {
                // The driver's room is full: wait until some of it is sent.
                if code_of(&error) == Some(Code::QueueFull) && tries < 500 {
                    tries += 1;
                    producer.poll(Duration::from_millis(20));
                    record = back;
                    continue;
                }
                if taken == 0 {
                    return Err(explain(&error));
                }
                // Those before it are on their way.
                batch.note(Err(&error));
                let rest = count - taken;
                let mut report = batch.report();
                report.refused += rest.saturating_sub(1);
                drop(report);
                batch.settle(rest);
                return Ok(told);
            }
            taken += 1;
        }
        Ok(told)
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        let producer = self.producer.get_mut().unwrap_or_else(|poisoned| poisoned.into_inner());
        drop_elsewhere(producer.take());
    }
}

fn make(config: &ClientConfig) -> Result<Producer> {
    let reports = Reports { broken: AtomicBool::new(false) };
    Producer::from_config_and_context(config, reports).map_err(|error| explain(&error))
}

/// Lets go of something of the driver's where it may take its time.
pub(crate) fn drop_elsewhere<T: Send + 'static>(thing: T) {
    // If there is no room for a thread, it is dropped here.
    let _ = std::thread::Builder::new().name("sawmill-kafka-end".into()).spawn(move || drop(thing));
}
