//! Reading what lies back: blocks that are read again, and messages that are searched for.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message as _};
use rdkafka::{Offset, TopicPartitionList};
use sawmill::clock::Moment;
use sawmill::env::Env;
use sawmill::{Error, ErrorKind, Result};

use crate::cluster::Cluster;
use crate::error::{Ears, code_of, explain, explain_code};
use crate::send::drop_elsewhere;

/// How long a look may take, with no record coming.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// One look at a time.
pub(crate) struct Lookback {
    consumer: Option<Arc<Mutex<BaseConsumer<Ears>>>>,
    env: Env,
}

impl Lookback {
    pub(crate) fn new(cluster: &Cluster) -> Result<Self> {
        let mut config = cluster.address.config();
        config.set("group.id", "sawmill").set("enable.auto.commit", "false");
        config.set("auto.offset.reset", "earliest").set("enable.partition.eof", "true");
        config.set("fetch.wait.max.ms", "20").set("fetch.error.backoff.ms", "50");
        config.set("queued.max.messages.kbytes", "16384");
        let consumer = config.create_with_context(Ears).map_err(|error| explain(&error))?;
        Ok(Self { consumer: Some(Arc::new(Mutex::new(consumer))), env: cluster.env.clone() })
    }

    /// Visits the records of a partition with offsets from `from` to before `upto`, until the visitor has what it wants.
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
        let look = move || -> Result<T> {
            let consumer = consumer.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let mut place = TopicPartitionList::new();
            let offset = Offset::Offset(i64::try_from(from).unwrap_or(i64::MAX));
            place
                .add_partition_offset(&topic, i32::from(partition), offset)
                .and_then(|()| consumer.assign(&place))
                .map_err(|error| explain(&error))?;
            let looked = look(&consumer, upto, &env, |message| visit(&mut found, message));
            // What comes late of this look is not for the next.
            consumer.unassign().map_err(|error| explain(&error))?;
            looked.map(|()| found)
        };
        let looked = self.env.blocking(look).await;
        looked.and_then(|looked| looked.ok()).ok_or_else(gone)?
    }
}

fn look(
    consumer: &BaseConsumer<Ears>,
    upto: u64,
    env: &Env,
    mut visit: impl FnMut(&BorrowedMessage<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut heard: Moment = env.now();
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                heard = env.now();
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
                        return Err(explain_code(code, "looking back"));
                    }
                    _ => tracing::debug!(%error, "looking back is interrupted"),
                }
            }
            None => {}
        }
        if env.now().since(heard) > LONGEST_SILENCE {
            return Err(Error::new(ErrorKind::Unavailable, "the brokers do not answer; try again"));
        }
    }
}

impl Drop for Lookback {
    fn drop(&mut self) {
        drop_elsewhere(self.consumer.take());
    }
}
