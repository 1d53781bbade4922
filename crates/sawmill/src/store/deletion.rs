//! Deletes a topic with its lanes, and everything that the ledger keeps about them.
//!
//! A deletion may be interrupted at any step. So each topic or lane is first noted in the ledger, and then
//! deleted from the log. The ledger's entries are deleted last, together with the note. Deleting again
//! finishes an interrupted deletion.

use sawmill_engine::Result;
use sawmill_engine::fault;
use sawmill_engine::model::{Topic, TopicName, base_name};
use sawmill_engine::storage::{EntryKey, Write};
use serde::{Deserialize, Serialize};

use super::{Cell, Store, json_cell, no_such_topic};

/// How often to delete the entries of a topic while its workers may still write some.
const MAX_PASSES: usize = 5;

/// A topic or lane that is being deleted.
#[derive(Debug, Serialize, Deserialize)]
struct Deletion {}

json_cell!(Deletion);

/// Deletes the topic with this name. Fails if it does not exist and an earlier deletion has left nothing.
pub(crate) async fn delete_topic(store: &Store, name: &str) -> Result<()> {
    let name = base_name(name)?;
    store.forget(&name);
    // The topic itself is deleted last, so that an interrupted deletion can be repeated.
    delete_from_log(store, &lanes_of(&name, store.log().topics().await?)).await?;
    let topic = store.log().topic(&name).await?;
    delete_from_log(store, topic.as_slice()).await?;
    // A worker that was starting may have recreated a lane before the topic itself was deleted. If the topic
    // has been created anew since, its lanes must stay.
    let topics = store.log().topics().await?;
    let is_anew = topics.iter().any(|other| other.name == name);
    let lanes_stay = fault!(RecreatedLanesRemain);
    if !is_anew && !lanes_stay {
        delete_from_log(store, &lanes_of(&name, topics)).await?;
    }
    match delete_entries(store, &name).await? {
        true => Ok(()),
        false => Err(no_such_topic(&name)),
    }
}

/// The lanes of a topic among these topics.
fn lanes_of(name: &TopicName, mut topics: Vec<Topic>) -> Vec<Topic> {
    topics.retain(|other| other.name.base() == name.base() && other.name.as_lane().is_some());
    topics
}

/// Deletes topics from the log, after noting each in the ledger.
async fn delete_from_log(store: &Store, topics: &[Topic]) -> Result<()> {
    for topic in topics {
        let note = Cell::<Deletion>::new(store, EntryKey::deletion(topic));
        note.ensure(Deletion {}).await?;
        store.log().delete_topic(topic).await?;
    }
    Ok(())
}

/// Deletes the ledger's entries of deleted topics of this name, and of their lanes. Returns true if there
/// were any.
async fn delete_entries(store: &Store, name: &TopicName) -> Result<bool> {
    let deletions = store.ledger().list(&EntryKey::deletions(name)).await?;
    for deletion in &deletions {
        for prefix in EntryKey::all_of(deletion.key.last()) {
            delete_all(store, &prefix).await?;
        }
        let write = Write { key: deletion.key.clone(), expect: Some(deletion.version), value: None };
        store.ledger().commit(write).await?;
    }
    Ok(!deletions.is_empty())
}

/// Deletes the entries with this prefix. A worker that has not noticed the deletion may still write one
/// afterwards; such an entry is small and never read.
async fn delete_all(store: &Store, prefix: &EntryKey) -> Result<()> {
    for _ in 0..MAX_PASSES {
        let entries = store.ledger().list(prefix).await?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            let write = Write { key: entry.key, expect: Some(entry.version), value: None };
            store.ledger().commit(write).await?;
        }
    }
    Ok(())
}
