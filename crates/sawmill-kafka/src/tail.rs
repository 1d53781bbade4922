//! Following a topic of one partition: a thread reads it from its beginning, and goes on reading.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use sawmill::env::Env;
use sawmill::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::cluster::{Cluster, Ends};
use crate::error::{Ears, explain};
use crate::record::{headers_of, time_of};

/// How long the driver is waited for before it is looked whether anybody still wants to know.
const POLL: Duration = Duration::from_millis(100);
/// A reader that heard nothing for so long may have missed that something was removed, and begins anew: half of the shortest
/// time for which brokers are told to keep removals.
const BEGIN_ANEW: Duration = Duration::from_secs(30 * 60);

/// Takes records as they come.
pub(crate) trait Follower: Send + Sync + 'static {
    /// Everything is read again from the beginning.
    fn reset(&self);
    /// The next record.
    fn take(&self, record: &Taken<'_>);
    /// There is no more at the moment.
    fn rest(&self);
}

/// A record that was read.
pub(crate) struct Taken<'a> {
    pub(crate) offset: u64,
    /// In milliseconds since 1970, by the broker or by who sent it: as the topic is set.
    pub(crate) time: u64,
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) payload: Option<&'a [u8]>,
    pub(crate) headers: Vec<(&'a str, &'a [u8])>,
}

impl Taken<'_> {
    pub(crate) fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(other, _)| *other == name).map(|(_, value)| *value)
    }
}

/// Ends when it is dropped.
pub(crate) struct Tail {
    env: Env,
    ends: Arc<Ends>,
    topic: Arc<str>,
    position: watch::Receiver<u64>,
    over: Arc<AtomicBool>,
}

impl Tail {
    pub(crate) fn follow(cluster: &Cluster, topic: &str, follower: Arc<dyn Follower>) -> Result<Self> {
        let mut config = cluster.address.config();
        // The driver wants a group, also for those who read as none.
        config.set("group.id", "sawmill").set("enable.auto.commit", "false");
        config.set("auto.offset.reset", "earliest").set("enable.partition.eof", "true");
        config.set("fetch.wait.max.ms", "500").set("fetch.error.backoff.ms", "50");
        let consumer: BaseConsumer<Ears> =
            config.create_with_context(Ears).map_err(|error| explain(&error))?;
        begin(&consumer, topic)?;
        let (tell, position) = watch::channel(0);
        let over = Arc::new(AtomicBool::new(false));
        let (env, topic): (Env, Arc<str>) = (cluster.env.clone(), topic.into());
        let reader = Reader {
            consumer,
            follower,
            position: tell,
            over: over.clone(),
            env: env.clone(),
            topic: topic.clone(),
        };
        let started = std::thread::Builder::new().name("sawmill-kafka".into()).spawn(move || reader.run());
        started.map_err(|error| {
            Error::new(ErrorKind::Unavailable, format!("there is no room for one more thread ({error})"))
        })?;
        Ok(Self { env, ends: cluster.ends.clone(), topic, position, over })
    }

    /// Waits until everything is read that was there when it was called.
    pub(crate) async fn catch_up(&self, limit: Duration) -> Result<()> {
        let caught_up = async {
            let (_, end) = self.ends.of(&self.topic, 0).await?;
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
        self.over.store(true, Ordering::Release);
    }
}

fn begin(consumer: &BaseConsumer<Ears>, topic: &str) -> Result<()> {
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, 0, Offset::Beginning)
        .and_then(|()| consumer.assign(&from))
        .map_err(|error| explain(&error))
}

struct Reader {
    consumer: BaseConsumer<Ears>,
    follower: Arc<dyn Follower>,
    position: watch::Sender<u64>,
    over: Arc<AtomicBool>,
    env: Env,
    topic: Arc<str>,
}

impl Reader {
    fn run(self) {
        let mut heard = self.env.now();
        let mut more = false;
        while !self.over.load(Ordering::Acquire) {
            let wait = if more { Duration::ZERO } else { POLL };
            match self.consumer.poll(wait) {
                None if more => {
                    more = false;
                    self.follower.rest();
                }
                None => {}
                Some(Ok(message)) => {
                    if self.env.now().since(heard) > BEGIN_ANEW {
                        drop(message);
                        self.begin_anew();
                    } else {
                        self.take(&message);
                    }
                    heard = self.env.now();
                    more = true;
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {}
                Some(Err(error)) => tracing::debug!(%error, topic = %self.topic, "following is interrupted"),
            }
        }
    }

    fn begin_anew(&self) {
        self.position.send_replace(0);
        self.follower.reset();
        if let Err(error) = begin(&self.consumer, &self.topic) {
            tracing::warn!(%error, topic = %self.topic, "the topic could not be read anew");
        }
    }

    fn take(&self, message: &BorrowedMessage<'_>) {
        let Ok(offset) = u64::try_from(message.offset()) else { return };
        let taken = Taken {
            offset,
            time: time_of(message),
            key: message.key(),
            payload: message.payload(),
            headers: headers_of(message),
        };
        self.follower.take(&taken);
        self.position.send_replace(offset + 1);
    }
}
