//! Scans past records of a partition: blocks that are read again, and searches for messages.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use sawmill_engine::runtime::{Env, Moment};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::brokers::cluster::Cluster;
use crate::brokers::send::drop_in_background;
use crate::error::{DriverContext, code_of, explain, explain_code};

/// How long a scan waits for the next record.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs one scan at a time.
pub(crate) struct Scanner {
    consumer: Option<Arc<Mutex<BaseConsumer<DriverContext>>>>,
    env: Env,
}

impl Scanner {
    pub(crate) fn new(cluster: &Cluster) -> Result<Self> {
        let mut config = cluster.address.config();
        config.set("group.id", "sawmill").set("enable.auto.commit", "false");
        config.set("auto.offset.reset", "earliest").set("enable.partition.eof", "true");
        config.set("fetch.wait.max.ms", "20").set("fetch.error.backoff.ms", "50");
        config.set("queued.max.messages.kbytes", "16384");
        let consumer = config.create_with_context(DriverContext).map_err(|error| explain(&error))?;
        Ok(Self { consumer: Some(Arc::new(Mutex::new(consumer))), env: cluster.env.clone() })
    }

    /// Visits the records of a partition with offsets in `from..upto`, until the visitor breaks.
    pub(crate) async fn visit<T: Send + 'static>(
        &self,
        topic: &str,
        partition: u16,
        (from, upto): (u64, u64),
        mut found: T,
        visit: impl Fn(&mut T, &BorrowedMessage<'_>) -> ControlFlow<()> + Send + 'static,
    ) -> Result<T> {
        if from >= upto {
            return Ok(found);
        }
        let gone = || Error::new(ErrorKind::Unavailable, "the store is being closed");
        let consumer = self.consumer.clone().ok_or_else(gone)?;
        let (topic, env) = (topic.to_owned(), self.env.clone());
        let run = move || -> Result<T> {
            let consumer = consumer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let mut place = TopicPartitionList::new();
            let offset = Offset::Offset(i64::try_from(from).unwrap_or(i64::MAX));
            place
                .add_partition_offset(&topic, i32::from(partition), offset)
                .and_then(|()| consumer.assign(&place))
                .map_err(|error| explain(&error))?;
            let scanned = scan_partition(&consumer, upto, &env, |message| visit(&mut found, message));
            // Late records of this scan must not reach the next one.
            consumer.unassign().map_err(|error| explain(&error))?;
            scanned.map(|()| found)
        };
        let scanned = self.env.blocking(run).await;
        scanned.and_then(|scanned| scanned.ok()).ok_or_else(gone)?
    }
}

fn scan_partition(
    consumer: &BaseConsumer<DriverContext>,
    upto: u64,
    env: &Env,
    mut visit: impl FnMut(&BorrowedMessage<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut last_record: Moment = env.now();
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                last_record = env.now();
                let offset = u64::try_from(message.offset()).unwrap_or(0);
                if offset >= upto || visit(&message).is_break() || offset + 1 >= upto {
                    return Ok(());
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(()),
            Some(Err(error)) => {
                use rdkafka::error::RDKafkaErrorCode as Code;
                match code_of(&error) {
                    Some(
                        code @ (Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition),
                    ) => {
                        return Err(explain_code(code, "reading past records"));
                    }
                    _ => tracing::debug!(%error, "scanning is interrupted"),
                }
            }
            None => {}
        }
        if env.now().since(last_record) > SILENCE_TIMEOUT {
            return Err(Error::new(ErrorKind::Unavailable, "the brokers do not answer; try again"));
        }
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        drop_in_background(self.consumer.take());
    }
}
