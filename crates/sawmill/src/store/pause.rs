//! Pausing: a paused group of a topic starts nothing until it is resumed.
//!
//! The pause is an entry of its own in the ledger, which workers read at each refresh. Claims and shard
//! states stay as they are.

use sawmill_engine::Result;
use sawmill_engine::model::{GroupName, Topic};
use sawmill_engine::storage::EntryKey;
use serde::{Deserialize, Serialize};

use super::{Cell, CellValue, Edit, Store, json_cell};
use crate::telemetry::{TARGET, event};

#[derive(Debug, Serialize, Deserialize)]
struct PauseState {
    paused: bool,
}

json_cell!(PauseState);

/// Pauses or resumes a group of a topic.
pub(crate) async fn set_paused(store: &Store, topic: &str, group: &str, paused: bool) -> Result<()> {
    let topic = store.find_topic(topic).await?;
    let group: GroupName = group.parse()?;
    let cell = Cell::<PauseState>::new(store, EntryKey::pause(&topic, &group));
    let is_changed = cell
        .edit(|now, _| match now.is_some_and(|now| now.paused) == paused {
            true => Ok(Edit::Keep(false)),
            false => Ok(Edit::Write(PauseState { paused }, true)),
        })
        .await?;
    if is_changed {
        let topic = &topic.name;
        match paused {
            true => tracing::info!(name: event::PAUSE, target: TARGET, %topic, %group, "paused"),
            false => tracing::info!(name: event::RESUME, target: TARGET, %topic, %group, "resumed"),
        }
    }
    Ok(())
}

/// Lists the groups of a topic that are paused.
pub(crate) async fn paused_groups(store: &Store, topic: &Topic) -> Result<Vec<GroupName>> {
    let mut groups = Vec::new();
    for entry in store.ledger().list(&EntryKey::pauses(topic)).await? {
        if PauseState::decode(store, &entry)?.paused {
            groups.push(entry.key.last().parse()?);
        }
    }
    Ok(groups)
}

/// Returns true if this group of the topic is paused.
pub(crate) async fn is_paused(store: &Store, topic: &Topic, group: &GroupName) -> Result<bool> {
    let now = Cell::<PauseState>::new(store, EntryKey::pause(topic, group)).read().await?;
    Ok(now.is_some_and(|now| now.paused))
}
