//! A topic in use: its catalogue entry, its known ends, and its readers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use sawmill_engine::model::Topic;
use sawmill_engine::{Error, ErrorKind, Result};

use crate::log::aside::Aside;
use crate::log::fetch::Fetcher;
use crate::log::topics::CatalogueEntry;
use crate::store::Kafka;

/// Bytes of a record beside payload, key and headers: lengths, names, times.
const RECORD_OVERHEAD: usize = 256;

pub(crate) struct OpenTopic {
    pub(crate) topic: Topic,
    pub(crate) listed: CatalogueEntry,
    /// The most bytes of a record.
    max_bytes: usize,
    /// For each partition, the offset up to which messages are known to exist.
    ends: Vec<AtomicU64>,
    fetcher: OnceLock<Fetcher>,
    aside: OnceLock<Arc<Aside>>,
}

impl OpenTopic {
    /// Notes that the partition has messages up to this end.
    pub(crate) fn extend_known_end(&self, partition: i32, end: u64) {
        if let Some(known) = usize::try_from(partition).ok().and_then(|at| self.ends.get(at)) {
            known.fetch_max(end, Ordering::AcqRel);
        }
    }

    pub(crate) fn known_end(&self, shard: u16) -> u64 {
        self.ends.get(usize::from(shard)).map_or(0, |end| end.load(Ordering::Acquire))
    }

    /// Rewrites a "not found" error of a call so that it names the topic.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::NotFound => self.topic.missing(),
            _ => error,
        }
    }

    pub(crate) fn check_shard(&self, shard: u16) -> Result<()> {
        if shard < self.topic.shards { Ok(()) } else { Err(self.topic.no_shard(shard)) }
    }

    /// Refuses a message that the broker would refuse.
    pub(crate) fn check_size(&self, message: &sawmill_engine::model::Message) -> Result<()> {
        let headers: usize = message.headers.iter().map(|(name, value)| name.len() + value.len() + 10).sum();
        let key = message.key.as_ref().map_or(0, |key| key.len());
        let bytes = message.payload.len() + key + headers + RECORD_OVERHEAD;
        if bytes <= self.max_bytes {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TooLarge,
            format!(
                "a record of {bytes} bytes is too large for topic {}, which takes {}: raise its max.message.bytes, or store \
                 the payload elsewhere and push a reference to it",
                self.topic.name, self.max_bytes
            ),
        ))
    }
}

impl Kafka {
    /// Opens the topic, if its uid is the one in the catalogue.
    pub(crate) async fn open_topic(&self, topic: &Topic) -> Result<Arc<OpenTopic>> {
        let (_, mut listed) = self.catalogue_entry(&topic.name)?;
        if listed.as_ref().is_none_or(|listed| listed.uid != topic.uid) {
            // It may be new.
            self.coordination.catch_up().await?;
            (_, listed) = self.catalogue_entry(&topic.name)?;
        }
        let Some(listed) = listed.filter(|listed| listed.uid == topic.uid) else {
            self.opened().remove(&topic.uid);
            return Err(topic.missing());
        };
        if let Some(open) = self.opened().get(&topic.uid) {
            return Ok(open.clone());
        }
        let partitions = self.cluster.partitions(&listed.kafka).await?.ok_or_else(|| topic.missing())?;
        let shards = usize::from(topic.shards);
        if partitions != shards {
            let (what, advice) = match partitions < shards {
                true => ("too few", "delete the topic and create it again"),
                false => {
                    ("more than it was made with", "messages in those would not be read: use a new topic")
                }
            };
            return Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "topic {} has {partitions} partitions in Kafka and {shards} shards here, which is {what}; {advice}",
                    topic.name
                ),
            ));
        }
        let most =
            self.cluster.settings(&listed.kafka, &["max.message.bytes"]).await?.into_iter().flatten().next();
        let open = Arc::new(OpenTopic {
            topic: topic.clone(),
            listed,
            max_bytes: most.and_then(|most| most.parse().ok()).unwrap_or(usize::MAX),
            ends: (0..topic.shards).map(|_| AtomicU64::new(0)).collect(),
            fetcher: OnceLock::new(),
            aside: OnceLock::new(),
        });
        Ok(self.opened().entry(topic.uid.clone()).or_insert(open).clone())
    }

    /// Returns the topic's fetcher, starting it if needed.
    pub(crate) fn fetcher<'a>(&self, open: &'a OpenTopic) -> Result<&'a Fetcher> {
        if open.fetcher.get().is_none() {
            let made =
                Fetcher::new(&self.cluster, &open.listed.kafka, open.topic.shards, self.notifier.clone())?;
            // A concurrent call may have been first; its fetcher is used.
            let _ = open.fetcher.set(made);
        }
        open.fetcher
            .get()
            .ok_or_else(|| Error::new(ErrorKind::Unavailable, "the topic is being opened; try again"))
    }

    pub(crate) fn open_fetcher<'a>(&self, open: &'a OpenTopic) -> Option<&'a Fetcher> {
        open.fetcher.get()
    }

    /// Returns the topic's delayed messages; `None` if it never had any.
    pub(crate) fn aside(&self, topic: &Topic, open: &OpenTopic) -> Result<Option<Arc<Aside>>> {
        if let Some(aside) = open.aside.get() {
            return Ok(Some(aside.clone()));
        }
        let (_, listed) = self.catalogue_entry(&topic.name)?;
        if !listed.is_some_and(|listed| listed.uid == topic.uid && listed.aside) {
            return Ok(None);
        }
        let made = Arc::new(Aside::new(&self.cluster, open.listed.aside_topic())?);
        let _ = open.aside.set(made);
        Ok(open.aside.get().cloned())
    }
}
