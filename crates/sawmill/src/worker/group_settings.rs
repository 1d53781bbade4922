//! The settings that the workers of a group must agree on, kept in the ledger.

use sawmill_engine::model::{GroupName, Member, Topic};
use sawmill_engine::storage::{Commit, Entry, EntryKey, Write};
use sawmill_engine::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::store::{Backoff, LivenessTracker, encode_json, remove_silent};
use crate::worker::{Delivery, Shared, WorkerBuilder, heartbeat};

impl WorkerBuilder {
    fn settings(&self) -> GroupSettings {
        GroupSettings { ordered: self.ordered, delivery: self.delivery }
    }

    /// Checks that this worker's settings are those of its group. The first worker writes them; later ones
    /// must agree, or may replace them when no worker is left that follows the old ones.
    pub(super) async fn agree_on_group(&self, topic: &Topic, group: &GroupName) -> Result<()> {
        let ledger = self.store.ledger();
        let key = EntryKey::group(topic, group);
        let mine = self.settings();
        let mut backoff = Backoff::new(self.store.env(), &key);
        loop {
            let entry = ledger.get(&key).await?;
            if let Some(entry) = &entry {
                let theirs = GroupSettings::decode(&entry.value);
                if theirs.as_ref() == Some(&mine) {
                    return Ok(());
                }
                if self.is_at_work(topic, group).await? {
                    return Err(mine.disagree(theirs, topic, group));
                }
            }
            let value = encode_json(&mine);
            let write =
                Write { key: key.clone(), expect: entry.map(|entry| entry.version), value: Some(value) };
            match ledger.commit(write).await? {
                Commit::Done(_) => return Ok(()),
                // Another worker was faster: read again.
                Commit::Conflict => {}
                Commit::Unknown => backoff.doubt(),
            }
            backoff.pause().await?;
        }
    }

    /// Checks the settings once more after joining. Two workers with different settings may have joined an
    /// empty group at the same moment: the one whose settings are not the group's leaves again.
    pub(super) async fn confirm_group(
        &self,
        shared: &Shared,
        registered: &heartbeat::Registered,
    ) -> Result<()> {
        for topic in shared.topics().iter().filter(|topic| topic.name.as_lane().is_none()) {
            let entry = self.store.ledger().get(&EntryKey::group(topic, &shared.group)).await?;
            let theirs = entry.and_then(|entry| GroupSettings::decode(&entry.value));
            if theirs.as_ref() != Some(&self.settings()) {
                heartbeat::leave(shared, registered).await;
                return Err(self.settings().disagree(theirs, topic, &shared.group));
            }
        }
        Ok(())
    }

    /// True if some worker of this topic is alive. If all have died, their entries may still exist: they are
    /// watched for their TTL, and removed when they stay silent.
    async fn is_at_work(&self, topic: &Topic, group: &GroupName) -> Result<bool> {
        let works_it = |entry: &Entry| {
            Member::decode(&entry.key, &entry.value).is_ok_and(|member| member.topics.contains(&topic.uid))
        };
        let mut tracker = LivenessTracker::default();
        let mut first: Option<Vec<Entry>> = None;
        loop {
            let mut members = self.store.ledger().list(&EntryKey::members(group)).await?;
            members.retain(works_it);
            let seen = first.get_or_insert_with(|| members.clone());
            if members.iter().any(|member| !seen.contains(member)) {
                // A worker has joined, or sent a heartbeat.
                return Ok(true);
            }
            if members.is_empty() {
                return Ok(false);
            }
            remove_silent(&self.store, &mut tracker, &members, self.ttl).await?;
            self.store.env().sleep(self.ttl / 10).await;
        }
    }
}

/// The settings that the workers of a group must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct GroupSettings {
    ordered: bool,
    delivery: Delivery,
}

impl GroupSettings {
    fn decode(value: &[u8]) -> Option<Self> {
        serde_json::from_slice(value).ok()
    }

    /// Makes the error of a worker that wants these settings in a group that has others.
    fn disagree(&self, theirs: Option<GroupSettings>, topic: &Topic, group: &GroupName) -> Error {
        let theirs =
            theirs.map_or_else(|| "settings of a newer version".to_owned(), |theirs| theirs.to_string());
        Error::invalid(format!(
            "group {group} of topic {} is at work with {theirs}, and this worker wants {self}: use the same settings, \
             choose another group, or stop its workers first",
            topic.name
        ))
    }
}

impl std::fmt::Display for GroupSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let delivery = match self.delivery {
            Delivery::AtLeastOnce => "at-least-once",
            Delivery::AtMostOnce => "at-most-once",
            Delivery::ExactlyOnce => "exactly-once",
        };
        write!(f, "{delivery}, {}", if self.ordered { "ordered" } else { "not ordered" })
    }
}
