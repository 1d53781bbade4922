//! Pausing: a group of a topic starts nothing, until it is resumed.
//!
//! Whether it is paused is an entry of its own in the ledger, which workers read whenever they look around. Claims and shards
//! stay where they are.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Commit, Entry, EntryKey, Write};
use crate::mill::Sawmill;
use crate::observe::{TARGET, event};
use crate::topic::{GroupName, Topic};

/// What the entry says.
#[derive(Debug, Serialize, Deserialize)]
struct Pause {
    paused: bool,
}

impl Pause {
    fn decode(entry: &Entry) -> Result<Self> {
        serde_json::from_slice(&entry.value).map_err(|error| {
            let what = format!(
                "ledger entry {} cannot be understood; was it written by a newer version?",
                entry.key
            );
            Error::new(ErrorKind::Corrupt, what).caused_by(error)
        })
    }

    fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

impl Sawmill {
    /// Pauses a group of a topic: its workers start nothing more of it, and take nothing more. What runs ends normally, and
    /// what they have claimed stays theirs.
    ///
    /// Workers notice when they look around, which they do at least every [`poll`](crate::WorkerBuilder::poll), and four
    /// times in their TTL: so nothing starts any more about that long after this has returned. One that cannot reach the store
    /// starts nothing from its last look's TTL on. Pausing lasts, also when all workers are gone and others come; and a
    /// group may be paused before its first worker. What is pushed meanwhile waits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// mill.pause("emails", "default").await?;
    /// assert!(mill.status("emails", "default").await?.paused);
    /// mill.resume("emails", "default").await?;
    /// # Ok(()) }
    /// ```
    pub async fn pause(&self, topic: &str, group: &str) -> Result<()> {
        self.set_paused(topic, group, true).await
    }

    /// Lets a group go on that was [paused](Sawmill::pause). One that was not is left as it is.
    pub async fn resume(&self, topic: &str, group: &str) -> Result<()> {
        self.set_paused(topic, group, false).await
    }

    async fn set_paused(&self, topic: &str, group: &str, paused: bool) -> Result<()> {
        let topic = self.find_topic(topic).await?;
        let group: GroupName = group.parse()?;
        let key = EntryKey::pause(&topic, &group);
        loop {
            let entry = self.ledger().get(&key).await?;
            let now = entry.as_ref().map(Pause::decode).transpose()?.is_some_and(|pause| pause.paused);
            if now == paused {
                return Ok(());
            }
            let value = Some(Pause { paused }.encode());
            let write = Write { key: key.clone(), expect: entry.map(|entry| entry.version), value };
            if let Commit::Done(_) = self.ledger().commit(write).await? {
                let topic = &topic.name;
                match paused {
                    true => tracing::info!(name: event::PAUSE, target: TARGET, %topic, %group, "paused"),
                    false => tracing::info!(name: event::RESUME, target: TARGET, %topic, %group, "resumed"),
                }
                return Ok(());
            }
            // Someone else was faster, or nobody knows: look again.
            self.pause_briefly().await;
        }
    }

    /// The groups of a topic that are paused.
    pub(crate) async fn paused_groups(&self, topic: &Topic) -> Result<Vec<GroupName>> {
        let mut groups = Vec::new();
        for entry in self.ledger().list(&EntryKey::pauses(topic)).await? {
            if Pause::decode(&entry)?.paused {
                groups.push(entry.key.last().parse()?);
            }
        }
        Ok(groups)
    }

    /// True if this group of the topic is paused.
    pub(crate) async fn is_paused(&self, topic: &Topic, group: &GroupName) -> Result<bool> {
        let entry = self.ledger().get(&EntryKey::pause(topic, group)).await?;
        Ok(entry.as_ref().map(Pause::decode).transpose()?.is_some_and(|pause| pause.paused))
    }
}
