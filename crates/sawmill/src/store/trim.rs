//! Trimming: drops messages that no group needs any more.
//!
//! The maintenance worker trims at intervals, and an operator may trim at any time. Both use this code.

use sawmill_engine::Result;
use sawmill_engine::fault;
use sawmill_engine::model::Topic;
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Position;

use super::Store;
use crate::telemetry;

/// Trims a topic and its lanes. Returns how many messages were dropped.
pub(crate) async fn trim(store: &Store, topic: &str) -> Result<u64> {
    let topic = store.find_topic(topic).await?;
    let mut dropped = 0;
    for other in store.log().topics().await? {
        if other.name.base() == topic.name.base() {
            dropped += trim_one(store, &other).await?;
        }
    }
    Ok(dropped)
}

/// Trims one topic, or one lane.
pub(crate) async fn trim_one(store: &Store, topic: &Topic) -> Result<u64> {
    let before = store.env().wall() - topic.retention;
    let groups = store.groups_of(topic).await?;
    let mut dropped = 0;
    if !groups.is_empty() {
        let mut needed: Vec<Vec<Position>> = vec![Vec::new(); usize::from(topic.shards)];
        for group in &groups {
            let states = store.shard_states(topic, group).await?;
            for (needed, state) in needed.iter_mut().zip(states) {
                match fault!(TrimsClaimed) {
                    true => needed.push(state.cursor.clone()),
                    false => needed.extend(state.needed_from().cloned()),
                }
            }
        }
        // Nothing lies before the first position, but the engine must still learn that all of that shard is
        // needed: it may store, and drop, messages of several shards together.
        for needed in &mut needed {
            if needed.contains(&Position::default()) {
                needed.clear();
            }
        }
        dropped += trim_upto(store, topic, &needed, before).await?;
    }
    if topic.drops_unread {
        // Messages that all groups are past are gone by now. The rest is unread or unfinished in some group.
        let ends = store.log().positions(topic, Timestamp::LATEST).await?;
        let ends: Vec<Vec<Position>> = ends.into_iter().map(|end| vec![end]).collect();
        let unread = trim_upto(store, topic, &ends, before).await?;
        if unread > 0 && !groups.is_empty() {
            tracing::warn!(topic = %topic.name, unread, "dropped messages that were too old and not read");
        }
        dropped += unread;
    }
    Ok(dropped)
}

async fn trim_upto(store: &Store, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<u64> {
    if upto.iter().all(Vec::is_empty) {
        return Ok(0);
    }
    let dropped = store.log().trim(topic, upto, before).await?;
    for (shard, dropped) in dropped.iter().enumerate() {
        telemetry::trimmed(topic, shard, *dropped);
    }
    Ok(dropped.iter().sum())
}
