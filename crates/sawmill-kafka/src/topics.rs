//! Which topics there are: entries of the coordination topic that begin with `t/`.
//!
//! A topic of the default namespace has the same name in Kafka, so that others can write to it and read it; and a topic that
//! others have made there can be used. Lanes, and topics of other namespaces, have names in Kafka that nobody else would choose.

use std::sync::Arc;
use std::time::Duration;

use sawmill::ledger::{Commit, Version};
use sawmill::topic::{MAX_SHARDS, Topic, TopicName, TopicSpec};
use sawmill::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::cluster::Purpose;
use crate::store::{Kafka, spell};

const SPACE: &str = "t/";
/// How often a change is tried that others came before.
const TRIES: usize = 20;

/// A topic as it stands in the catalogue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    pub(crate) uid: String,
    shards: u16,
    retention_ms: u64,
    drops_unread: bool,
    /// What it is called in Kafka.
    pub(crate) kafka: String,
    /// There is a second topic in Kafka, for messages that are not due.
    #[serde(default)]
    pub(crate) aside: bool,
}

impl Listed {
    /// What the second topic is called in Kafka.
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

fn key(name: &TopicName) -> String {
    format!("{SPACE}{name}")
}

/// Names are used again after a topic was deleted, and entries are not: one that is deleted says so.
fn parse(name: &str, value: &[u8]) -> Result<Option<Listed>> {
    serde_json::from_slice(value).map_err(|error| {
        Error::new(ErrorKind::Corrupt, format!("the catalogue's entry of topic {name} cannot be read"))
            .caused_by(error)
    })
}

impl Kafka {
    /// The topic as far as the catalogue is known here, and the version of its entry.
    pub(crate) fn listed(&self, name: &TopicName) -> Result<(Option<Version>, Option<Listed>)> {
        match self.coordination.known(&key(name)) {
            None => Ok((None, None)),
            Some((version, value)) => Ok((Some(version), parse(&name.to_string(), &value)?)),
        }
    }

    async fn list(&self, name: &TopicName, expect: Option<Version>, listed: Option<&Listed>) -> Result<bool> {
        let value = serde_json::to_vec(&listed).map_err(|error| {
            Error::new(ErrorKind::Invalid, "the topic's settings cannot be written").caused_by(error)
        })?;
        match self.coordination.commit(&key(name), expect, Some(value.into())).await? {
            Commit::Done(_) => Ok(true),
            Commit::Conflict => Ok(false),
            Commit::Unknown => Err(Error::new(
                ErrorKind::Unknown,
                format!("nobody knows whether topic {name} was changed: look again"),
            )),
        }
    }

    pub(crate) async fn make_topic(&self, spec: &TopicSpec) -> Result<Topic> {
        spec.check()?;
        self.coordination.catch_up().await?;
        for _ in 0..TRIES {
            let (version, listed) = self.listed(&spec.name)?;
            if let Some(listed) = listed {
                return if listed.shards == spec.shards {
                    Ok(listed.topic(&spec.name))
                } else {
                    Err(spec.exists_with(listed.shards))
                };
            }
            let uid = self.new_uid();
            let (kafka, ours) = self.make_in_kafka(spec, &uid).await?;
            let listed = Listed {
                uid,
                shards: spec.shards,
                retention_ms: spec.retention.as_millis().try_into().unwrap_or(u64::MAX),
                drops_unread: spec.drops_unread,
                kafka,
                aside: false,
            };
            if self.list(&spec.name, version, Some(&listed)).await? {
                return Ok(listed.topic(&spec.name));
            }
            if ours {
                self.cluster.delete(&listed.kafka).await?;
            }
        }
        Err(crowded(&spec.name))
    }

    fn new_uid(&self) -> String {
        let dice = self.cluster.env.dice();
        format!("k{:016x}{:08x}", dice.roll(), dice.roll() as u32)
    }

    /// Makes the topic in Kafka, or finds one that others have made. Says what it is called, and whether nobody else can use it.
    async fn make_in_kafka(&self, spec: &TopicSpec, uid: &str) -> Result<(String, bool)> {
        let plain = spec.name.to_string();
        if self.shares_names && spec.name.as_lane().is_none() {
            match self.cluster.create(&plain, spec.shards, Purpose::Messages).await {
                Ok(true) => return Ok((plain, false)),
                Ok(false) => {
                    let shards = self.look_at(&plain).await?.unwrap_or(spec.shards);
                    return if shards == spec.shards {
                        Ok((plain, false))
                    } else {
                        Err(spec.exists_with(shards))
                    };
                }
                // Kafka holds `a.b` and `a_b` to be too much the same.
                Err(error)
                    if error.kind() == ErrorKind::Invalid && error.to_string().contains("InvalidTopic") => {}
                Err(error) => return Err(error),
            }
        }
        let unique = format!("sawmill.{}.{uid}", spell(&plain.replace('@', "-at-")));
        self.cluster.create(&unique, spec.shards, Purpose::Messages).await?;
        Ok((unique, true))
    }

    /// How many shards a topic that others have made can have; none if there is none.
    async fn look_at(&self, kafka: &str) -> Result<Option<u16>> {
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
        for _ in 0..TRIES {
            let (version, listed) = self.listed(name)?;
            if let Some(listed) = listed {
                return Ok(Some(listed.topic(name)));
            }
            let plain = name.to_string();
            if !self.shares_names || name.as_lane().is_some() || plain.starts_with("sawmill.") {
                return Ok(None);
            }
            let Some(shards) = self.look_at(&plain).await? else { return Ok(None) };
            // What others have made keeps its messages as long as they have said.
            let spec = TopicSpec::new(name.clone());
            let listed = Listed {
                uid: self.new_uid(),
                shards,
                retention_ms: spec.retention.as_millis().try_into().unwrap_or(u64::MAX),
                drops_unread: spec.drops_unread,
                kafka: plain,
                aside: false,
            };
            if self.list(name, version, Some(&listed)).await? {
                return Ok(Some(listed.topic(name)));
            }
        }
        Err(crowded(name))
    }

    pub(crate) async fn all_topics(&self) -> Result<Vec<Topic>> {
        self.coordination.catch_up().await?;
        let mut topics = Vec::new();
        for (entry, _, value) in self.coordination.known_from(SPACE) {
            let text = entry.strip_prefix(SPACE).unwrap_or_default();
            if let Some(listed) = parse(text, &value)? {
                topics.push(listed.topic(&text.parse()?));
            }
        }
        topics.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(topics)
    }

    pub(crate) async fn remove_topic(&self, topic: &Topic) -> Result<bool> {
        self.coordination.catch_up().await?;
        for _ in 0..TRIES {
            let (version, listed) = self.listed(&topic.name)?;
            let Some(listed) = listed.filter(|listed| listed.uid == topic.uid) else { return Ok(false) };
            // The messages go first: a topic that is listed and not there is an error, and can be deleted again.
            self.cluster.delete(&listed.kafka).await?;
            if listed.aside {
                self.cluster.delete(&listed.aside_topic()).await?;
            }
            if self.list(&topic.name, version, None).await? {
                self.opened().remove(&topic.uid);
                return Ok(true);
            }
        }
        Err(crowded(&topic.name))
    }

    /// Makes the second topic of a topic, for messages that are not due.
    pub(crate) async fn make_aside(&self, topic: &Topic) -> Result<Arc<Listed>> {
        for _ in 0..TRIES {
            let (version, listed) = self.listed(&topic.name)?;
            let listed = listed.filter(|listed| listed.uid == topic.uid).ok_or_else(|| topic.missing())?;
            if listed.aside {
                return Ok(Arc::new(listed));
            }
            self.cluster.create(&listed.aside_topic(), 1, Purpose::Aside).await?;
            let listed = Listed { aside: true, ..listed };
            if self.list(&topic.name, version, Some(&listed)).await? {
                return Ok(Arc::new(listed));
            }
        }
        Err(crowded(&topic.name))
    }
}

fn crowded(name: &TopicName) -> Error {
    Error::new(ErrorKind::Unavailable, format!("others change topic {name} all the time; try again"))
}
