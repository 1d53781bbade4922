//! The brokers: which topics there are and how they are set, and where they end.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaResult, RDKafkaErrorCode as Code};
use rdkafka::{Offset, TopicPartitionList};
use sawmill::clock::Timestamp;
use sawmill::env::Env;
use sawmill::{Error, ErrorKind, Result};

use crate::address::Address;
use crate::error::{Ears, code_of, explain, explain_code, is_leaderless, is_unknown, lasts};
use crate::send::{MOST_BYTES, drop_elsewhere};

/// How long the brokers may take for one answer.
const ANSWER: Duration = Duration::from_secs(12);
/// For how long a topic that is said not to be there is asked for again.
const UNKNOWN: Duration = Duration::from_secs(2);
/// How long a first connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// For how long compaction leaves a record alone: longer than any call of the ledger takes, see the rules.
pub(crate) const COMPACTION_LAG_MS: u64 = 60_000;
/// The shortest that is borne, in topics that others have made.
const SHORTEST_LAG_MS: u64 = 20_000;
/// The shortest time for which removals are to be kept: see the tail.
const SHORTEST_DELETE_RETENTION_MS: u64 = 3_600_000;

/// The brokers of one address.
pub(crate) struct Cluster {
    pub(crate) address: Address,
    pub(crate) env: Env,
    pub(crate) ends: Arc<Ends>,
    admin: Option<AdminClient<Ears>>,
}

/// What a topic is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Entries that are decided by the broker's order.
    Coordination,
    /// Messages, one partition for each shard.
    Messages,
    /// Messages that are not due.
    Aside,
}

impl Cluster {
    /// Finds out that the brokers are there and let us in.
    pub(crate) async fn connect(address: Address, env: Env) -> Result<Self> {
        let mut config = address.config();
        let admin: AdminClient<Ears> = config.create_with_context(Ears).map_err(|error| explain(&error))?;
        config.set("group.id", "sawmill").set("enable.auto.commit", "false");
        config.set("allow.auto.create.topics", "false");
        let consumer: BaseConsumer<Ears> =
            config.create_with_context(Ears).map_err(|error| explain(&error))?;
        let ends = Arc::new(Ends { consumer: Some(Arc::new(consumer)), env: env.clone() });
        let cluster = Self { address, env, ends, admin: Some(admin) };
        let began = cluster.env.now();
        loop {
            let answer = cluster.ends.ask(|consumer| {
                let answer = consumer.fetch_metadata(Some("sawmill"), Duration::from_millis(1500));
                let Err(error) = answer else { return Ok(()) };
                // What the driver says on its own tells why.
                let said = std::iter::from_fn(|| consumer.poll(Duration::ZERO)).filter_map(|said| said.err());
                let lasting = said.filter(|error| code_of(error).is_some_and(lasts)).last();
                Err((lasting.map(|error| explain(&error)), explain(&error)))
            });
            match answer.await? {
                Ok(()) => return Ok(cluster),
                Err((Some(lasting), _)) => return Err(lasting),
                Err((None, error)) if cluster.env.now().since(began) > CONNECT => return Err(error),
                Err(_) => {}
            }
        }
    }

    fn admin(&self) -> Result<&AdminClient<Ears>> {
        self.admin.as_ref().ok_or_else(|| Error::new(ErrorKind::Unavailable, "the store is being closed"))
    }

    /// How many partitions a topic has; none if there is no such topic.
    pub(crate) async fn partitions(&self, topic: &str) -> Result<Option<usize>> {
        let name = topic.to_owned();
        let metadata = self.ends.ask(move |consumer| {
            let metadata = consumer.fetch_metadata(Some(&name), ANSWER)?;
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

    /// Makes a topic. False if there is one of this name.
    pub(crate) async fn create(&self, topic: &str, partitions: u16, purpose: Purpose) -> Result<bool> {
        let (most, lag) = (MOST_BYTES.to_string(), COMPACTION_LAG_MS.to_string());
        let latest = i64::MAX.to_string();
        let copies = TopicReplication::Fixed(self.address.replication.unwrap_or(-1));
        let new = NewTopic::new(topic, i32::from(partitions), copies).set("max.message.bytes", &most);
        fn compacted<'a>(new: NewTopic<'a>) -> NewTopic<'a> {
            // A topic that is only compacted when half of it is dirty would grow with every entry ever written.
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
            // What is not needed any more is trimmed; nothing goes by its age alone.
            Purpose::Messages => new
                .set("cleanup.policy", "delete")
                .set("retention.ms", "-1")
                .set("retention.bytes", "-1")
                .set("message.timestamp.type", "CreateTime")
                .set("message.timestamp.after.max.ms", &latest),
        };
        let options = AdminOptions::new().operation_timeout(Some(ANSWER)).request_timeout(Some(ANSWER));
        let made = self.admin()?.create_topics([&new], &options).await.map_err(|error| explain(&error))?;
        match made.into_iter().next() {
            Some(Err((_, Code::TopicAlreadyExists))) => return Ok(false),
            Some(Err((name, code))) => {
                return Err(explain_code(code, &format!("creating topic {name}: {code}")));
            }
            Some(Ok(_)) | None => {}
        }
        // It is made, but others may not know yet.
        let began = self.env.now();
        while self.partitions(topic).await? != Some(usize::from(partitions)) {
            if self.env.now().since(began) > ANSWER {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("topic {topic} was made and does not appear"),
                ));
            }
            self.env.sleep(Duration::from_millis(20)).await;
        }
        Ok(true)
    }

    /// Removes a topic, and waits until it is gone. False if there was none.
    pub(crate) async fn delete(&self, topic: &str) -> Result<bool> {
        let options = AdminOptions::new().operation_timeout(Some(ANSWER)).request_timeout(Some(ANSWER));
        let gone = self.admin()?.delete_topics(&[topic], &options).await.map_err(|error| explain(&error))?;
        match gone.into_iter().next() {
            Some(Err((_, Code::UnknownTopicOrPartition))) => return Ok(false),
            Some(Err((name, code))) => {
                return Err(explain_code(code, &format!("deleting topic {name}: {code}")));
            }
            Some(Ok(_)) | None => {}
        }
        let began = self.env.now();
        while self.partitions(topic).await?.is_some() && self.env.now().since(began) < ANSWER {
            self.env.sleep(Duration::from_millis(20)).await;
        }
        Ok(true)
    }

    /// Drops the records of a partition before an offset.
    pub(crate) async fn drop_before(&self, topic: &str, partition: u16, offset: u64) -> Result<()> {
        let mut upto = TopicPartitionList::new();
        let offset = Offset::Offset(i64::try_from(offset).unwrap_or(i64::MAX));
        upto.add_partition_offset(topic, i32::from(partition), offset).map_err(|error| explain(&error))?;
        let options = AdminOptions::new().operation_timeout(Some(ANSWER)).request_timeout(Some(ANSWER));
        let done = self.admin()?.delete_records(&upto, &options).await.map_err(|error| explain(&error))?;
        done.elements().iter().try_for_each(|element| element.error()).map_err(|error| explain(&error))
    }

    /// A setting of a topic.
    pub(crate) async fn settings(&self, topic: &str, names: &[&str]) -> Result<Vec<Option<String>>> {
        let options = AdminOptions::new().request_timeout(Some(ANSWER));
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

    /// Makes the coordination topic, or looks that the one that is there can be one.
    pub(crate) async fn prepare_coordination(&self, topic: &str) -> Result<()> {
        let unfit = |what: &str| {
            Error::new(
                ErrorKind::Invalid,
                format!("topic {topic} cannot be the coordination topic: {what}; set it so, or name another"),
            )
        };
        let partitions = match self.partitions(topic).await? {
            Some(partitions) => partitions,
            None if self.create(topic, 1, Purpose::Coordination).await? => return Ok(()),
            // Somebody else was faster.
            None => self.partitions(topic).await?.unwrap_or(1),
        };
        if partitions != 1 {
            return Err(unfit(&format!("it has {partitions} partitions, and one order needs exactly 1")));
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
            return Err(unfit(&format!(
                "its cleanup.policy is {said}, which would lose entries, and must be compact"
            )));
        }
        if !says(time, "LogAppendTime") {
            return Err(unfit(
                "its message.timestamp.type must be LogAppendTime: deleted entries go by the broker's time",
            ));
        }
        if !least(lag, SHORTEST_LAG_MS) {
            return Err(unfit(&format!("its min.compaction.lag.ms must be {SHORTEST_LAG_MS} or more")));
        }
        if !least(kept, SHORTEST_DELETE_RETENTION_MS) {
            return Err(unfit(&format!(
                "its delete.retention.ms must be {SHORTEST_DELETE_RETENTION_MS} or more"
            )));
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop_elsewhere(self.admin.take());
    }
}

/// Asks where topics begin and end, and for other things for which the driver holds up its caller.
pub(crate) struct Ends {
    consumer: Option<Arc<BaseConsumer<Ears>>>,
    env: Env,
}

impl Ends {
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&BaseConsumer<Ears>) -> T + Send + 'static,
    ) -> Result<T> {
        let gone = || Error::new(ErrorKind::Unavailable, "the store is being closed");
        let consumer = self.consumer.clone().ok_or_else(gone)?;
        let answer = self.env.blocking(move || ask(&consumer)).await;
        answer.and_then(|answer| answer.ok()).ok_or_else(gone)
    }

    /// Asks again as long as a partition has no leader: it was made a moment ago, or its broker has gone.
    async fn ask_a_leader<T: Send + 'static>(
        &self,
        ask: impl Fn(&BaseConsumer<Ears>) -> KafkaResult<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let began = self.env.now();
        loop {
            let error = match self.ask(ask.clone()).await? {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let patience = match code_of(&error) {
                Some(code) if is_leaderless(code) => ANSWER,
                Some(code) if is_unknown(code) => UNKNOWN,
                _ => Duration::ZERO,
            };
            if self.env.now().since(began) >= patience {
                return Err(explain(&error));
            }
            self.env.sleep(Duration::from_millis(30)).await;
        }
    }

    /// Where a partition begins and ends.
    pub(crate) async fn of(&self, topic: &str, partition: u16) -> Result<(u64, u64)> {
        let topic = topic.to_owned();
        let ask = move |consumer: &BaseConsumer<Ears>| {
            consumer.fetch_watermarks(&topic, i32::from(partition), ANSWER)
        };
        let (low, high) = self.ask_a_leader(ask).await?;
        // An end that is not known must not be taken for an empty topic, of which nothing has to be read.
        let high = u64::try_from(high).map_err(|_| {
            Error::new(ErrorKind::Unavailable, "the broker does not say where a partition ends; try again")
        })?;
        Ok((u64::try_from(low).unwrap_or(0), high))
    }

    /// Where each of the first so many partitions begins and ends.
    pub(crate) async fn all(&self, topic: &str, partitions: u16) -> Result<Vec<(u64, u64)>> {
        let lows = self.at(topic, partitions, Offset::Beginning).await?;
        let highs = self.at(topic, partitions, Offset::End).await?;
        Ok(lows.into_iter().zip(highs).map(|(low, high)| (low.unwrap_or(0), high.unwrap_or(0))).collect())
    }

    /// The first offset of each partition at which something was created at this time or later; none if there is none.
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
        self.ask_a_leader(move |consumer| {
            let mut asked = TopicPartitionList::new();
            for partition in 0..i32::from(partitions) {
                asked.add_partition_offset(&topic, partition, time)?;
            }
            let found = consumer.offsets_for_times(asked, ANSWER)?;
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

impl Drop for Ends {
    fn drop(&mut self) {
        drop_elsewhere(self.consumer.take());
    }
}
