//! Administration of the brokers: creates, deletes and checks topics, and asks for partition offsets.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use sawmill_engine::runtime::{Env, Timestamp};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::address::Address;
use crate::brokers::send::{MAX_RECORD_BYTES, drop_in_background};
use crate::error::{DriverContext, code_of, explain, explain_code, is_leaderless, is_permanent, is_unknown};

/// Time limit for one answer of the brokers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(12);
/// How long a topic reported as unknown is asked for again.
const UNKNOWN_TOPIC_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for the first connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long compaction leaves a record alone. Must be longer than any call of the ledger; see `rules.rs`.
pub(crate) const COMPACTION_LAG_MS: u64 = 60_000;
/// The shortest compaction lag accepted in an existing coordination topic.
const MIN_COMPACTION_LAG_MS: u64 = 20_000;
/// The shortest accepted `delete.retention.ms`; see `tail.rs`.
const MIN_DELETE_RETENTION_MS: u64 = 3_600_000;

/// The brokers of one address.
pub(crate) struct Cluster {
    pub(crate) address: Address,
    pub(crate) env: Env,
    pub(crate) offsets: Arc<PartitionOffsets>,
    admin: Option<AdminClient<DriverContext>>,
}

/// The purpose of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Entries, changed by bids in the order of the records.
    Coordination,
    /// Messages, one partition for each shard.
    Messages,
    /// Messages that are not due.
    Aside,
}

impl Cluster {
    /// Connects, and checks that the brokers answer and accept the login.
    pub(crate) async fn connect(address: Address, env: Env) -> Result<Self> {
        let mut config = address.config();
        let admin: AdminClient<DriverContext> =
            config.create_with_context(DriverContext).map_err(|error| explain(&error))?;
        config.set("group.id", "sawmill").set("enable.auto.commit", "false");
        config.set("allow.auto.create.topics", "false");
        let consumer: BaseConsumer<DriverContext> =
            config.create_with_context(DriverContext).map_err(|error| explain(&error))?;
        let offsets = Arc::new(PartitionOffsets { consumer: Some(Arc::new(consumer)), env: env.clone() });
        let cluster = Self { address, env, offsets, admin: Some(admin) };
        let began = cluster.env.now();
        loop {
            let answer = cluster.offsets.ask(|consumer| {
                let answer = consumer.fetch_metadata(Some("sawmill"), Duration::from_millis(1500));
                let Err(error) = answer else { return Ok(()) };
                // The driver's own events carry the reason.
                let said = std::iter::from_fn(|| consumer.poll(Duration::ZERO)).filter_map(|said| said.err());
                let lasting = said.filter(|error| code_of(error).is_some_and(is_permanent)).last();
                Err((lasting.map(|error| explain(&error)), explain(&error)))
            });
            match answer.await? {
                Ok(()) => return Ok(cluster),
                Err((Some(lasting), _)) => return Err(lasting),
                Err((None, error)) if cluster.env.now().since(began) > CONNECT_TIMEOUT => return Err(error),
                Err(_) => {}
            }
        }
    }

    fn admin(&self) -> Result<&AdminClient<DriverContext>> {
        self.admin.as_ref().ok_or_else(|| Error::new(ErrorKind::Unavailable, "the store is being closed"))
    }

    /// Returns the number of partitions of a topic; `None` if it does not exist.
    pub(crate) async fn partitions(&self, topic: &str) -> Result<Option<usize>> {
        let name = topic.to_owned();
        let metadata = self.offsets.ask(move |consumer| {
            let metadata = consumer.fetch_metadata(Some(&name), ANSWER_TIMEOUT)?;
            let topic = metadata.topics().iter().find(|topic| topic.name() == name);
            KafkaResult::Ok(topic.map(|topic| (topic.partitions().len(), topic.error().map(Code::from))))
        });
        match metadata.await?.map_err(|error| explain(&error))? {
            None | Some((_, Some(Code::UnknownTopicOrPartition | Code::UnknownTopic))) => Ok(None),
            Some((_, Some(code))) => Err(explain_code(code, "asking for a topic")),
            Some((0, None)) => Ok(None),
            Some((partitions, None)) => Ok(Some(partitions)),
        }
    }

    /// Creates a topic. Returns false if the name is taken.
    pub(crate) async fn create(&self, topic: &str, partitions: u16, purpose: Purpose) -> Result<bool> {
        let (most, lag) = (MAX_RECORD_BYTES.to_string(), COMPACTION_LAG_MS.to_string());
        let latest = i64::MAX.to_string();
        let copies = TopicReplication::Fixed(self.address.replication.unwrap_or(-1));
        let new = NewTopic::new(topic, i32::from(partitions), copies).set("max.message.bytes", &most);
        fn compacted<'a>(new: NewTopic<'a>) -> NewTopic<'a> {
            // With the default ratio, half of the topic must be dirty before it is compacted: it would grow
            // with every entry ever written.
            new.set("cleanup.policy", "compact")
                .set("min.cleanable.dirty.ratio", "0.1")
                .set("segment.bytes", "16777216")
                .set("segment.ms", "3600000")
                .set("delete.retention.ms", "86400000")
        }
        let new = match purpose {
            Purpose::Coordination => compacted(new.set("min.compaction.lag.ms", &lag))
                .set("message.timestamp.type", "LogAppendTime"),
            Purpose::Aside => compacted(new.set("min.compaction.lag.ms", &lag))
                .set("message.timestamp.type", "CreateTime")
                .set("message.timestamp.after.max.ms", &latest),
            // Messages are trimmed when they are no longer needed; none expires by age alone.
            Purpose::Messages => new
                .set("cleanup.policy", "delete")
                .set("retention.ms", "-1")
                .set("retention.bytes", "-1")
                .set("message.timestamp.type", "CreateTime")
                .set("message.timestamp.after.max.ms", &latest),
        };
        let options =
            AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT)).request_timeout(Some(ANSWER_TIMEOUT));
        let made = self.admin()?.create_topics([&new], &options).await.map_err(|error| explain(&error))?;
        match made.into_iter().next() {
            Some(Err((_, Code::TopicAlreadyExists))) => return Ok(false),
            Some(Err((name, code))) => {
                return Err(explain_code(code, &format!("creating topic {name}: {code}")));
            }
            Some(Ok(_)) | None => {}
        }
        // It is created, but other brokers may not know yet.
        let began = self.env.now();
        while self.partitions(topic).await? != Some(usize::from(partitions)) {
            if self.env.now().since(began) > ANSWER_TIMEOUT {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("topic {topic} was created and does not appear"),
                ));
            }
            self.env.sleep(Duration::from_millis(20)).await;
        }
        Ok(true)
    }

    /// Deletes a topic and waits until it is gone. Returns false if there was none.
    pub(crate) async fn delete(&self, topic: &str) -> Result<bool> {
        let options =
            AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT)).request_timeout(Some(ANSWER_TIMEOUT));
        let gone = self.admin()?.delete_topics(&[topic], &options).await.map_err(|error| explain(&error))?;
        match gone.into_iter().next() {
            Some(Err((_, Code::UnknownTopicOrPartition))) => return Ok(false),
            Some(Err((name, code))) => {
                return Err(explain_code(code, &format!("deleting topic {name}: {code}")));
            }
            Some(Ok(_)) | None => {}
        }
        let began = self.env.now();
        while self.partitions(topic).await?.is_some() && self.env.now().since(began) < ANSWER_TIMEOUT {
            self.env.sleep(Duration::from_millis(20)).await;
        }
        Ok(true)
    }

    /// Deletes the records of a partition before an offset.
    pub(crate) async fn drop_before(&self, topic: &str, partition: u16, offset: u64) -> Result<()> {
        let mut upto = TopicPartitionList::new();
        let offset = Offset::Offset(i64::try_from(offset).unwrap_or(i64::MAX));
        upto.add_partition_offset(topic, i32::from(partition), offset).map_err(|error| explain(&error))?;
        let options =
            AdminOptions::new().operation_timeout(Some(ANSWER_TIMEOUT)).request_timeout(Some(ANSWER_TIMEOUT));
        let done = self.admin()?.delete_records(&upto, &options).await.map_err(|error| explain(&error))?;
        done.elements().iter().try_for_each(|element| element.error()).map_err(|error| explain(&error))
    }

    /// Returns the values of these settings of a topic.
    pub(crate) async fn settings(&self, topic: &str, names: &[&str]) -> Result<Vec<Option<String>>> {
        let options = AdminOptions::new().request_timeout(Some(ANSWER_TIMEOUT));
        let asked = [ResourceSpecifier::Topic(topic)];
        let said = self.admin()?.describe_configs(&asked, &options).await.map_err(|error| explain(&error))?;
        let resource = match said.into_iter().next() {
            Some(Ok(resource)) => resource,
            Some(Err(code)) => {
                return Err(explain_code(code, &format!("asking for the settings of topic {topic}")));
            }
            None => return Ok(vec![None; names.len()]),
        };
        Ok(names.iter().map(|name| resource.get(name).and_then(|entry| entry.value.clone())).collect())
    }

    /// Creates the coordination topic, or checks that the existing one is suitable.
    pub(crate) async fn prepare_coordination(&self, topic: &str) -> Result<()> {
        let unsuitable = |what: &str| {
            Error::new(
                ErrorKind::Invalid,
                format!("topic {topic} cannot be the coordination topic: {what}; set it so, or name another"),
            )
        };
        let partitions = match self.partitions(topic).await? {
            Some(partitions) => partitions,
            None if self.create(topic, 1, Purpose::Coordination).await? => return Ok(()),
            // Another process was faster.
            None => self.partitions(topic).await?.unwrap_or(1),
        };
        if partitions != 1 {
            return Err(unsuitable(&format!(
                "it has {partitions} partitions, and one order needs exactly 1"
            )));
        }
        let names =
            ["cleanup.policy", "message.timestamp.type", "min.compaction.lag.ms", "delete.retention.ms"];
        let said = self.settings(topic, &names).await?;
        let [policy, time, lag, kept] = said.as_slice() else { return Ok(()) };
        let says =
            |setting: &Option<String>, value: &str| setting.as_deref().is_none_or(|said| said == value);
        let least = |setting: &Option<String>, least: u64| {
            setting.as_ref().and_then(|said| said.parse::<u64>().ok()).is_none_or(|said| said >= least)
        };
        if !says(policy, "compact") {
            let said = policy.as_deref().unwrap_or_default();
            return Err(unsuitable(&format!(
                "its cleanup.policy is {said}, which would lose entries, and must be compact"
            )));
        }
        if !says(time, "LogAppendTime") {
            return Err(unsuitable(
                "its message.timestamp.type must be LogAppendTime: deleted entries go by the broker's time",
            ));
        }
        if !least(lag, MIN_COMPACTION_LAG_MS) {
            return Err(unsuitable(&format!(
                "its min.compaction.lag.ms must be {MIN_COMPACTION_LAG_MS} or more"
            )));
        }
        if !least(kept, MIN_DELETE_RETENTION_MS) {
            return Err(unsuitable(&format!(
                "its delete.retention.ms must be {MIN_DELETE_RETENTION_MS} or more"
            )));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop_in_background(self.admin.take());
    }
}

/// Looks up offsets of partitions. Runs blocking calls of the driver on other threads.
pub(crate) struct PartitionOffsets {
    consumer: Option<Arc<BaseConsumer<DriverContext>>>,
    env: Env,
}

impl PartitionOffsets {
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&BaseConsumer<DriverContext>) -> T + Send + 'static,
    ) -> Result<T> {
        let gone = || Error::new(ErrorKind::Unavailable, "the store is being closed");
        let consumer = self.consumer.clone().ok_or_else(gone)?;
        let answer = self.env.blocking(move || ask(&consumer)).await;
        answer.and_then(|answer| answer.ok()).ok_or_else(gone)
    }

    /// Retries while a partition has no leader: it is new, or its broker has gone.
    async fn ask_with_retry<T: Send + 'static>(
        &self,
        ask: impl Fn(&BaseConsumer<DriverContext>) -> KafkaResult<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let began = self.env.now();
        loop {
            let error = match self.ask(ask.clone()).await? {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let patience = match code_of(&error) {
                Some(code) if is_leaderless(code) => ANSWER_TIMEOUT,
                Some(code) if is_unknown(code) => UNKNOWN_TOPIC_TIMEOUT,
                _ => Duration::ZERO,
            };
            if self.env.now().since(began) >= patience {
                return Err(explain(&error));
            }
            self.env.sleep(Duration::from_millis(30)).await;
        }
    }

    /// Returns the first offset of a partition and its end.
    pub(crate) async fn of(&self, topic: &str, partition: u16) -> Result<(u64, u64)> {
        let topic = topic.to_owned();
        let ask = move |consumer: &BaseConsumer<DriverContext>| {
            consumer.fetch_watermarks(&topic, i32::from(partition), ANSWER_TIMEOUT)
        };
        let (low, high) = self.ask_with_retry(ask).await?;
        // An unknown end must not be taken for the end of an empty topic, of which nothing has to be read.
        let high = u64::try_from(high).map_err(|_| {
            Error::new(ErrorKind::Unavailable, "the broker does not say where a partition ends; try again")
        })?;
        Ok((u64::try_from(low).unwrap_or(0), high))
    }

    /// Returns the first offset and the end of each of the first `partitions` partitions.
    pub(crate) async fn all(&self, topic: &str, partitions: u16) -> Result<Vec<(u64, u64)>> {
        let lows = self.at(topic, partitions, Offset::Beginning).await?;
        let highs = self.at(topic, partitions, Offset::End).await?;
        Ok(lows.into_iter().zip(highs).map(|(low, high)| (low.unwrap_or(0), high.unwrap_or(0))).collect())
    }

    /// Returns, for each partition, the first offset created at this time or later; `None` if there is none.
    pub(crate) async fn since(
        &self,
        topic: &str,
        partitions: u16,
        time: Timestamp,
    ) -> Result<Vec<Option<u64>>> {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        self.at(topic, partitions, Offset::Offset(millis)).await
    }

    async fn at(&self, topic: &str, partitions: u16, time: Offset) -> Result<Vec<Option<u64>>> {
        let topic = topic.to_owned();
        self.ask_with_retry(move |consumer| {
            let mut asked = TopicPartitionList::new();
            for partition in 0..i32::from(partitions) {
                asked.add_partition_offset(&topic, partition, time)?;
            }
            let found = consumer.offsets_for_times(asked, ANSWER_TIMEOUT)?;
            let mut offsets = vec![None; usize::from(partitions)];
            for element in found.elements() {
                element.error()?;
                let place = usize::try_from(element.partition()).ok().and_then(|at| offsets.get_mut(at));
                if let (Some(place), Offset::Offset(offset)) = (place, element.offset()) {
                    *place = u64::try_from(offset).ok();
                }
            }
            Ok(offsets)
        })
        .await
    }
}

impl Drop for PartitionOffsets {
    fn drop(&mut self) {
        drop_in_background(self.consumer.take());
    }
}
