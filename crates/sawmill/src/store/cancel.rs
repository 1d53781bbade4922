//! Cancelling: a cancelled message is not started, and its handler is told if it runs.
//!
//! Each cancelled message has an entry of its own in the ledger. That alone is not enough: a worker that has
//! not read the entry could claim the message a moment later. So the shard's entry also counts cancellations,
//! in every group. A claim is a conditional write to that entry, so no worker can claim without having seen
//! the count. A worker that sees the count grow reads the cancelled messages before it claims.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use sawmill_engine::fault;
use sawmill_engine::model::{Lane, Message, MessageId, ShardState, Topic};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{Entry, EntryKey, Write};
use sawmill_engine::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Cell, Edit, Store, json_cell};
use crate::telemetry::{TARGET, event};

/// How long a cancellation is kept after the topic's retention has passed.
const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// How many old cancellations one round of maintenance removes at most, so that a round stays short.
const MAX_FORGOTTEN: usize = 3;

/// The cancelled messages of some topics.
#[derive(Debug, Default)]
pub(crate) struct CancelledMessages(BTreeSet<MessageId>);

impl CancelledMessages {
    /// Collects the messages that these entries name. Entries that cannot be parsed are ignored.
    pub(crate) fn named_by(entries: &[Entry]) -> Self {
        Self(entries.iter().filter_map(|entry| entry.key.last().parse().ok()).collect())
    }

    /// Returns true if this message, or the one it is a copy of, was cancelled.
    pub(crate) fn contains(&self, message: &Message) -> bool {
        !self.0.is_empty() && self.0.contains(&message.origin())
    }
}

/// The cancelled messages that a worker knows of. Handlers and jobs subscribe to it.
pub(crate) type Cancellations = watch::Sender<Arc<CancelledMessages>>;

/// Completes when this message is cancelled.
pub(crate) async fn cancelled(cancellations: &Cancellations, message: &Message) {
    let mut cancelled = cancellations.subscribe();
    if cancelled.wait_for(|cancelled| cancelled.contains(message)).await.is_err() {
        // The sender is gone: no cancellation can arrive any more.
        std::future::pending::<()>().await;
    }
}

/// The entry of a cancelled message.
#[derive(Debug, Serialize, Deserialize)]
struct Cancellation {
    at: Timestamp,
}

json_cell!(Cancellation);

/// Cancels a message of a topic in all groups. Fails if the message is not in the topic.
pub(crate) async fn cancel(store: &Store, topic: &Topic, id: MessageId) -> Result<()> {
    let found = store.log().find(topic, id).await?.ok_or_else(|| {
        let what = format!("topic {} has no message {id} (any more): there is nothing to cancel", topic.name);
        Error::new(ErrorKind::NotFound, what)
    })?;
    let id = match fault!(CancelsAnother) {
        true => MessageId::from_u128(id.as_u128() + 1),
        false => id,
    };
    mark(store, topic, id).await?;
    // A group that begins later has no entry yet: its workers read the cancelled messages before their first
    // claim.
    for group in store.groups_of(topic).await? {
        count(store, EntryKey::shard(topic, &group, found.shard)).await?;
        if let Some(lane) = store.log().topic(&topic.name.lane(&group, Lane::Retry)).await? {
            for shard in 0..lane.shards {
                count(store, EntryKey::shard(&lane, &group, shard)).await?;
            }
        }
    }
    tracing::info!(name: event::CANCEL, target: TARGET, topic = %topic.name, %id, "cancelled");
    Ok(())
}

/// Writes the entry that marks a message as cancelled.
async fn mark(store: &Store, topic: &Topic, id: MessageId) -> Result<()> {
    let at = store.env().wall();
    let cell = Cell::<Cancellation>::new(store, EntryKey::cancel(topic, id));
    cell.ensure(Cancellation { at }).await
}

/// Increments the cancellation count of a shard, so that workers read the cancelled messages before their
/// next claim.
async fn count(store: &Store, key: EntryKey) -> Result<()> {
    let count = |state: &mut ShardState| state.cancels = state.cancels.saturating_add(1);
    change_shard(store, key, count, |state| state.cancels).await
}

/// Changes a shard's entry on behalf of an operator.
///
/// `counter` returns a number in the entry that every such change increases. After an unknown outcome, the
/// number shows whether this change took effect, or another one like it since this one began.
pub(crate) async fn change_shard(
    store: &Store,
    key: EntryKey,
    change: impl Fn(&mut ShardState),
    counter: impl Fn(&ShardState) -> u32,
) -> Result<()> {
    // The counter as it was before a try whose outcome is unknown.
    let mut tried = None;
    let cell = Cell::<ShardState>::new(store, key);
    cell.edit(|state, in_doubt| {
        let mut state = state.unwrap_or_default();
        let before = counter(&state);
        if in_doubt && tried.is_some_and(|tried| before > tried) {
            return Ok(Edit::Keep(()));
        }
        tried = Some(before);
        change(&mut state);
        Ok(Edit::Write(state, ()))
    })
    .await
}

/// Reads which messages of a topic are cancelled.
pub(crate) async fn cancelled_messages(store: &Store, topic: &Topic) -> Result<CancelledMessages> {
    Ok(CancelledMessages::named_by(&store.ledger().list(&EntryKey::cancels(topic)).await?))
}

/// Removes cancellations of messages that were trimmed long ago, a few at a time.
pub(crate) async fn forget_cancellations(store: &Store, topic: &Topic) -> Result<()> {
    let before = store.env().wall() - topic.retention - KEPT_FOR;
    let old = |entry: &Entry| {
        serde_json::from_slice::<Cancellation>(&entry.value).is_ok_and(|cancelled| cancelled.at < before)
    };
    let entries = store.ledger().list(&EntryKey::cancels(topic)).await?;
    for entry in entries.into_iter().filter(old).take(MAX_FORGOTTEN) {
        let Ok(id) = entry.key.last().parse() else { continue };
        if store.log().find(topic, id).await?.is_none() {
            let write = Write { key: entry.key, expect: Some(entry.version), value: None };
            store.ledger().commit(write).await?;
        }
    }
    Ok(())
}
