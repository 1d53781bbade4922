//! Follows a topic with one partition: a thread reads it from the beginning and keeps reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use sawmill_engine::runtime::Env;
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::brokers::cluster::{Cluster, PartitionOffsets};
use crate::error::{DriverContext, explain};
use crate::log::record::{headers_of, time_of};

/// How long a poll waits before the thread checks whether the tail still exists.
const POLL: Duration = Duration::from_millis(100);
/// A reader without records for this long may miss removals, so it reads anew. Half of the shortest
/// `delete.retention.ms` that is accepted.
const RESTART_AFTER: Duration = Duration::from_secs(30 * 60);

/// Receives the records of a topic.
pub(crate) trait Follower: Send + Sync + 'static {
    /// Discards all state: the topic is read again from the beginning.
    fn reset(&self);
    /// Takes the next record.
    fn take(&self, record: &TailRecord<'_>);
    /// Called when there are no more records for now.
    fn on_idle(&self);
}

/// A record that was read.
pub(crate) struct TailRecord<'a> {
    pub(crate) offset: u64,
    /// Milliseconds since 1970, set by the broker or the sender depending on the topic's settings.
    pub(crate) time: u64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) headers: Vec<(&'a str, &'a [u8])>,
}

impl TailRecord<'_> {
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
    }
}

/// Follows until it is dropped.
pub(crate) struct Tail {
    env: Env,
    offsets: Arc<PartitionOffsets>,
    topic: Arc<str>,
    position: watch::Receiver<u64>,
    stopped: Arc<AtomicBool>,
}

impl Tail {
    pub(crate) fn follow(cluster: &Cluster, topic: &str, follower: Arc<dyn Follower>) -> Result<Self> {
        let mut config = cluster.address.config();
        // The driver requires a group id, even without group membership.
        config.set("group.id", "sawmill").set("enable.auto.commit", "false");
        config.set("auto.offset.reset", "earliest").set("enable.partition.eof", "true");
        config.set("fetch.wait.max.ms", "500").set("fetch.error.backoff.ms", "50");
        let consumer: BaseConsumer<DriverContext> =
            config.create_with_context(DriverContext).map_err(|error| explain(&error))?;
        assign_from_start(&consumer, topic)?;
        let (sender, position) = watch::channel(0);
        let stopped = Arc::new(AtomicBool::new(false));
        let (env, topic): (Env, Arc<str>) = (cluster.env.clone(), topic.into());
        let reader = Reader {
            consumer,
            follower,
            position: sender,
            stopped: stopped.clone(),
            env: env.clone(),
            topic: topic.clone(),
        };
        let started = std::thread::Builder::new().name("sawmill-kafka".into()).spawn(move || reader.run());
        started.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("no thread could be started ({error})"))
        })?;
        Ok(Self { env, offsets: cluster.offsets.clone(), topic, position, stopped })
    }

    /// Waits until every record that existed at the call is read.
    pub(crate) async fn catch_up(&self, limit: Duration) -> Result<()> {
        let caught_up = async {
            let (_, end) = self.offsets.of(&self.topic, 0).await?;
            let mut position = self.position.clone();
            let reached = position.wait_for(|position| *position >= end).await;
            reached.map(|_| ()).map_err(|_| Error::new(ErrorKind::Unavailable, "the reader has ended"))
        };
        match self.env.within(limit, caught_up).await {
            Some(answer) => answer,
            None => Err(Error::new(
                ErrorKind::Unavailable,
                format!(
                    "topic {} could not be read to its end within {limit:?}: is the broker overloaded?",
                    self.topic
                ),
            )),
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
    }
}

fn assign_from_start(consumer: &BaseConsumer<DriverContext>, topic: &str) -> Result<()> {
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning)
        .and_then(|()| consumer.assign(&from))
        .map_err(|error| explain(&error))
}

struct Reader {
    consumer: BaseConsumer<DriverContext>,
    follower: Arc<dyn Follower>,
    position: watch::Sender<u64>,
    stopped: Arc<AtomicBool>,
    env: Env,
    topic: Arc<str>,
}

impl Reader {
    fn run(self) {
        let mut last_record = self.env.now();
        let mut more = false;
        while !self.stopped.load(Ordering::Acquire) {
            let wait = if more { Duration::ZERO } else { POLL };
            match self.consumer.poll(wait) {
                None if more => {
                    more = false;
                    self.follower.on_idle();
                }
                None => {}
                Some(Ok(message)) => {
                    if self.env.now().since(last_record) > RESTART_AFTER {
                        drop(message);
                        self.restart();
                    } else {
                        self.take(&message);
                    }
                    last_record = self.env.now();
                    more = true;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {}
                Some(Err(error)) => tracing::debug!(%error, topic = %self.topic, "following is interrupted"),
            }
        }
    }

    fn restart(&self) {
        self.position.send_replace(0);
        self.follower.reset();
        if let Err(error) = assign_from_start(&self.consumer, &self.topic) {
            tracing::warn!(%error, topic = %self.topic, "the topic could not be read anew");
        }
    }

    fn take(&self, message: &BorrowedMessage<'_>) {
        let Ok(offset) = u64::try_from(message.offset()) else { return };
        let record = TailRecord {
            offset,
            time: time_of(message),
            key: message.key(),
            payload: message.payload(),
            headers: headers_of(message),
        };
        self.follower.take(&record);
        self.position.send_replace(offset + 1);
    }
}
