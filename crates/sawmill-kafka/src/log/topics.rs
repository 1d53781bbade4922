//! The catalogue of topics: entries of the coordination topic that begin with `t/`.
//!
//! A topic of the default namespace has the same name in Kafka, so other clients can use it, and existing
//! Kafka topics can be used here. Lanes, and topics of other namespaces, have names in Kafka that nobody else
//! would choose.

use std::sync::Arc;
use std::time::Duration;

use sawmill_engine::model::{MAX_SHARDS, Topic, TopicName, TopicSpec};
use sawmill_engine::storage::{Commit, Version};
use sawmill_engine::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::brokers::cluster::Purpose;
use crate::store::{Kafka, escape_name};

const PREFIX: &str = "t/";
/// How often a conflicting change is retried.
const MAX_TRIES: usize = 20;

/// A topic's entry in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CatalogueEntry {
    pub(crate) uid: String,
    shards: u16,
    retention_ms: u64,
    drops_unread: bool,
    /// Its name in Kafka.
    pub(crate) kafka: String,
    /// A second topic in Kafka exists, for messages that are not due.
    #[serde(default)]
    pub(crate) aside: bool,
}

impl CatalogueEntry {
    /// Returns the name of the second topic in Kafka.
    pub(crate) fn aside_topic(&self) -> String {
        format!("sawmill.aside.{}", self.uid)
    }

    fn topic(&self, name: &TopicName) -> Topic {
        Topic {
            name: name.clone(),
            uid: self.uid.clone(),
            shards: self.shards,
            retention: Duration::from_millis(self.retention_ms),
            drops_unread: self.drops_unread,
        }
    }
}

fn entry_key(name: &TopicName) -> String {
    format!("{PREFIX}{name}")
}

/// Parses an entry. A deleted topic's entry stays, with a null value, because the ledger does not allow a
/// deleted entry to be created again and topic names are reused.
fn parse(name: &str, value: &[u8]) -> Result<Option<CatalogueEntry>> {
    serde_json::from_slice(value).map_err(|error| {
        Error::new(ErrorKind::Corrupt, format!("the catalogue's entry of topic {name} cannot be read"))
            .caused_by(error)
    })
}

impl Kafka {
    /// Returns the topic as of the last record read, with the version of its entry.
    pub(crate) fn catalogue_entry(
        &self,
        name: &TopicName,
    ) -> Result<(Option<Version>, Option<CatalogueEntry>)> {
        match self.coordination.known(&entry_key(name)) {
            None => Ok((None, None)),
            Some((version, value)) => Ok((Some(version), parse(&name.to_string(), &value)?)),
        }
    }

    async fn write_catalogue_entry(
        &self,
        name: &TopicName,
        expect: Option<Version>,
        listed: Option<&CatalogueEntry>,
    ) -> Result<bool> {
        let value = serde_json::to_vec(&listed).map_err(|error| {
            Error::new(ErrorKind::Invalid, "the topic's settings cannot be written").caused_by(error)
        })?;
        match self.coordination.commit(&entry_key(name), expect, Some(value.into())).await? {
            Commit::Done(_) => Ok(true),
            Commit::Conflict => Ok(false),
            Commit::Unknown => Err(Error::new(
                ErrorKind::Unknown,
                format!("it is unknown whether topic {name} was changed: check it again"),
            )),
        }
    }

    pub(crate) async fn make_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        spec.check()?;
        self.coordination.catch_up().await?;
        for _ in 0..MAX_TRIES {
            let (version, listed) = self.catalogue_entry(&spec.name)?;
            if let Some(listed) = listed {
                return if listed.shards == spec.shards {
                    Ok(listed.topic(&spec.name))
                } else {
                    Err(spec.exists_with(listed.shards))
                };
            }
            let uid = self.new_uid();
            let (kafka, ours) = self.make_in_kafka(spec, &uid).await?;
            let listed = CatalogueEntry {
                uid,
                shards: spec.shards,
                retention_ms: spec.retention.as_millis().try_into().unwrap_or(u64::MAX),
                drops_unread: spec.drops_unread,
                kafka,
                aside: false,
            };
            if self.write_catalogue_entry(&spec.name, version, Some(&listed)).await? {
                return Ok(listed.topic(&spec.name));
            }
            if ours {
                self.cluster.delete(&listed.kafka).await?;
            }
        }
        Err(contended(&spec.name))
    }

    fn new_uid(&self) -> String {
        let rng = self.cluster.env.rng();
        format!("k{:016x}{:08x}", rng.next_u64(), rng.next_u64() as u32)
    }

    /// Creates the topic in Kafka, or finds an existing one. Returns its name in Kafka, and whether the name
    /// is ours alone.
    async fn make_in_kafka(&self, spec: &TopicSpec, uid: &str) -> Result<(String, bool)> {
        let plain = spec.name.to_string();
        if self.shares_names && spec.name.as_lane().is_none() {
            match self.cluster.create(&plain, spec.shards, Purpose::Messages).await {
                Ok(true) => return Ok((plain, false)),
                Ok(false) => {
                    let shards = self.partitions_of_existing(&plain).await?.unwrap_or(spec.shards);
                    return if shards == spec.shards {
                        Ok((plain, false))
                    } else {
                        Err(spec.exists_with(shards))
                    };
                }
                // Kafka considers `a.b` and `a_b` to collide.
                Err(error)
                    if error.kind() == ErrorKind::Invalid && error.to_string().contains("InvalidTopic") => {}
                Err(error) => return Err(error),
            }
        }
        let unique = format!("sawmill.{}.{uid}", escape_name(&plain.replace('@', "-at-")));
        self.cluster.create(&unique, spec.shards, Purpose::Messages).await?;
        Ok((unique, true))
    }

    /// Checks an existing Kafka topic and returns its number of partitions; `None` if it does not exist.
    async fn partitions_of_existing(&self, kafka: &str) -> Result<Option<u16>> {
        let Some(partitions) = self.cluster.partitions(kafka).await? else { return Ok(None) };
        let shards = u16::try_from(partitions).ok().filter(|shards| *shards <= MAX_SHARDS);
        let shards = shards.ok_or_else(|| {
            Error::new(
                ErrorKind::Unsupported,
                format!("topic {kafka} has {partitions} partitions, and {MAX_SHARDS} is the limit"),
            )
        })?;
        let policy = self.cluster.settings(kafka, &["cleanup.policy"]).await?.into_iter().flatten().next();
        match policy {
            Some(policy) if policy.contains("compact") => Err(Error::new(
                ErrorKind::Invalid,
                format!(
                    "topic {kafka} has the cleanup.policy {policy}, which drops messages that nobody has read: set it to delete"
                ),
            )),
            _ => Ok(Some(shards)),
        }
    }

    pub(crate) async fn find_topic(&self, name: &TopicName) -> Result<Option<Topic>> {
        self.coordination.catch_up().await?;
        for _ in 0..MAX_TRIES {
            let (version, listed) = self.catalogue_entry(name)?;
            if let Some(listed) = listed {
                return Ok(Some(listed.topic(name)));
            }
            let plain = name.to_string();
            if !self.shares_names || name.as_lane().is_some() || plain.starts_with("sawmill.") {
                return Ok(None);
            }
            let Some(shards) = self.partitions_of_existing(&plain).await? else { return Ok(None) };
            // An existing topic keeps its own retention.
            let spec = TopicSpec::new(name.clone());
            let listed = CatalogueEntry {
                uid: self.new_uid(),
                shards,
                retention_ms: spec.retention.as_millis().try_into().unwrap_or(u64::MAX),
                drops_unread: spec.drops_unread,
                kafka: plain,
                aside: false,
            };
            if self.write_catalogue_entry(name, version, Some(&listed)).await? {
                return Ok(Some(listed.topic(name)));
            }
        }
        Err(contended(name))
    }

    pub(crate) async fn all_topics(&self) -> Result<Vec<Topic>> {
        self.coordination.catch_up().await?;
        let mut topics = Vec::new();
        for (entry, _, value) in self.coordination.known_from(PREFIX) {
            let text = entry.strip_prefix(PREFIX).unwrap_or_default();
            if let Some(listed) = parse(text, &value)? {
                topics.push(listed.topic(&text.parse()?));
            }
        }
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    pub(crate) async fn remove_topic(&self, topic: &Topic) -> Result<bool> {
        self.coordination.catch_up().await?;
        for _ in 0..MAX_TRIES {
            let (version, listed) = self.catalogue_entry(&topic.name)?;
            let Some(listed) = listed.filter(|listed| listed.uid == topic.uid) else { return Ok(false) };
            // The messages are deleted first: a listed topic that is gone in Kafka is an error, and can be
            // deleted again.
            self.cluster.delete(&listed.kafka).await?;
            if listed.aside {
                self.cluster.delete(&listed.aside_topic()).await?;
            }
            if self.write_catalogue_entry(&topic.name, version, None).await? {
                self.opened().remove(&topic.uid);
                return Ok(true);
            }
        }
        Err(contended(&topic.name))
    }

    /// Creates the second topic in Kafka, for messages that are not due.
    pub(crate) async fn make_aside(&self, topic: &Topic) -> Result<Arc<CatalogueEntry>> {
        for _ in 0..MAX_TRIES {
            let (version, listed) = self.catalogue_entry(&topic.name)?;
            let listed = listed.filter(|listed| listed.uid == topic.uid).ok_or_else(|| topic.missing())?;
            if listed.aside {
                return Ok(Arc::new(listed));
            }
            self.cluster.create(&listed.aside_topic(), 1, Purpose::Aside).await?;
            let listed = CatalogueEntry { aside: true, ..listed };
            if self.write_catalogue_entry(&topic.name, version, Some(&listed)).await? {
                return Ok(Arc::new(listed));
            }
        }
        Err(contended(&topic.name))
    }
}

fn contended(name: &TopicName) -> Error {
    Error::new(ErrorKind::Unavailable, format!("topic {name} is changed too often by others; try again"))
}
