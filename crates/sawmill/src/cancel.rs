//! Cancelling: a message that a person does not want any more is not started, and if it runs, it is told to end.
//!
//! A cancelled message is named by an entry of its own in the ledger. That alone would not do: a worker that has not looked
//! since could grab the message a moment later. So the shard's entry counts cancellations too, in every group. A grab is a
//! conditional write to that entry, so no worker can grab without having seen the count; and one that sees it grow looks
//! which messages are named before it grabs.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Commit, Entry, EntryKey, Write};
use crate::log::Found;
use crate::message::{Message, MessageId};
use crate::mill::Sawmill;
use crate::observe::{TARGET, event};
use crate::planted::{self, Bug};
use crate::shard::ShardState;
use crate::topic::{Lane, Topic};

/// The messages of a worker's topics that were cancelled.
#[derive(Debug, Default)]
pub(crate) struct Unwanted(BTreeSet<MessageId>);

impl Unwanted {
    /// What these entries name. Entries that make no sense name nothing.
    pub(crate) fn named_by(entries: &[Entry]) -> Self {
        Self(entries.iter().filter_map(|entry| entry.key.last().parse().ok()).collect())
    }

    /// True if this message, or what it is a copy of, was cancelled.
    pub(crate) fn contains(&self, message: &Message) -> bool {
        !self.0.is_empty() && self.0.contains(&message.origin())
    }
}

/// Where a worker keeps what was cancelled, for all who want to hear of it.
pub(crate) type Cancels = watch::Sender<Arc<Unwanted>>;

/// Completes when this message is cancelled.
pub(crate) async fn cancelled(cancels: &Cancels, message: &Message) {
    let mut unwanted = cancels.subscribe();
    if unwanted.wait_for(|unwanted| unwanted.contains(message)).await.is_err() {
        // Nobody is left who could tell.
        std::future::pending::<()>().await;
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Cancelled {
    at: Timestamp,
}

impl Sawmill {
    /// Cancels a message of a topic, in all its groups. One that waits is never started after this has returned. One that a
    /// worker has in hand is skipped, and one that runs is [told](crate::Context::cancelled) and dropped, as soon as the
    /// worker looks around (see [`poll`](crate::WorkerBuilder::poll)); it is not tried again. What is done stays done.
    ///
    /// A message that was trimmed, or never pushed to this topic, is an error of kind `NotFound`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sawmill::{Push, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("reminders").await?;
    /// let reminder = mill.push("reminders", Push::new("Call Alice").after(Duration::from_secs(3600))).await?;
    /// mill.cancel("reminders", reminder).await?;
    /// # Ok(()) }
    /// ```
    pub async fn cancel(&self, topic: &str, id: MessageId) -> Result<()> {
        let topic = self.find_topic(topic).await?;
        let found = self.log().find(&topic, id).await?.ok_or_else(|| {
            let what =
                format!("topic {} has no message {id} (any more): there is nothing to cancel", topic.name);
            Error::new(ErrorKind::NotFound, what)
        })?;
        let id = match planted::is(Bug::CancelsAnother) {
            true => MessageId::from_u128(id.as_u128() + 1),
            false => id,
        };
        self.name_cancelled(&topic, id).await?;
        // A group that begins later has no entry yet: its workers look before their first grab.
        for group in self.groups_of(&topic).await? {
            self.count_cancel(&EntryKey::shard(&topic, &group, found.shard)).await?;
            if let Some(lane) = self.log().topic(&topic.name.lane(&group, Lane::Retry)).await? {
                for shard in 0..lane.shards {
                    self.count_cancel(&EntryKey::shard(&lane, &group, shard)).await?;
                }
            }
        }
        tracing::info!(name: event::CANCEL, target: TARGET, topic = %topic.name, %id, "cancelled");
        Ok(())
    }

    /// Finds a message by its id alone, in whatever topic it is. It may have to be searched for; see [`crate::log::Log::find`].
    pub async fn find_message(&self, id: MessageId) -> Result<Option<(Topic, Found)>> {
        for topic in self.topics().await? {
            match self.log().find(&topic, id).await {
                Ok(Some(found)) => return Ok(Some((topic, found))),
                Ok(None) => {}
                // Deleted since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn name_cancelled(&self, topic: &Topic, id: MessageId) -> Result<()> {
        let key = EntryKey::cancel(topic, id);
        let value = serde_json::to_vec(&Cancelled { at: self.env().wall() }).unwrap_or_default();
        let write = Write { key: key.clone(), expect: None, value: Some(value.into()) };
        loop {
            match self.ledger().commit(write.clone()).await? {
                // A conflict: it is cancelled already.
                Commit::Done(_) | Commit::Conflict => return Ok(()),
                // The same write again changes nothing if this one has landed.
                Commit::Unknown => self.pause_briefly().await,
            }
        }
    }

    /// Has everyone who grabs from this shard look first what was cancelled.
    async fn count_cancel(&self, key: &EntryKey) -> Result<()> {
        let count = |state: &mut ShardState| state.cancels = state.cancels.saturating_add(1);
        self.change_shard(key, count, |state| state.cancels).await
    }

    /// Changes a shard's entry on behalf of a person. `counter` tells a number in it that every such change makes grow: when
    /// nobody knows whether the change took effect, it shows that this one did, or another like it after this one began.
    pub(crate) async fn change_shard(
        &self,
        key: &EntryKey,
        change: impl Fn(&mut ShardState),
        counter: impl Fn(&ShardState) -> u32,
    ) -> Result<()> {
        let mut unsure = None;
        loop {
            let entry = self.ledger().get(key).await?;
            let mut state = match &entry {
                Some(entry) => self.decode_shard(entry)?,
                None => ShardState::default(),
            };
            let before = counter(&state);
            if unsure.is_some_and(|count| before > count) {
                return Ok(());
            }
            change(&mut state);
            let expect = entry.map(|entry| entry.version);
            let value = self.encode_shard(&mut state);
            let write = Write { key: key.clone(), expect, value: Some(value) };
            match self.ledger().commit(write).await? {
                Commit::Done(_) => return Ok(()),
                Commit::Conflict => {}
                Commit::Unknown => {
                    unsure.get_or_insert(before);
                    self.pause_briefly().await;
                }
            }
        }
    }

    /// Waits before asking again, when a write had no clear answer.
    pub(crate) async fn pause_briefly(&self) {
        self.env().sleep(self.env().dice().jitter(std::time::Duration::from_millis(20))).await;
    }
}

/// How long a cancellation is remembered at least, beyond the topic's retention: copies of the message may still wait for
/// another attempt.
const REMEMBERED: std::time::Duration = std::time::Duration::from_secs(7 * 24 * 3600);
/// How many are looked at in one round: the log may have to search for each.
const FORGET_MOST: usize = 3;

impl Sawmill {
    /// Forgets cancellations whose message is gone from the log, a few at a time.
    pub(crate) async fn forget_cancels(&self, topic: &Topic) -> Result<()> {
        let before = self.env().wall() - topic.retention - REMEMBERED;
        let old = |entry: &Entry| {
            serde_json::from_slice::<Cancelled>(&entry.value).is_ok_and(|cancelled| cancelled.at < before)
        };
        let entries = self.ledger().list(&EntryKey::cancels(topic)).await?;
        for entry in entries.into_iter().filter(old).take(FORGET_MOST) {
            let Ok(id) = entry.key.last().parse() else { continue };
            if self.log().find(topic, id).await?.is_none() {
                self.ledger()
                    .commit(Write { key: entry.key, expect: Some(entry.version), value: None })
                    .await?;
            }
        }
        Ok(())
    }
}
