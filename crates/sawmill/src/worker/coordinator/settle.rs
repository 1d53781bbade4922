//! Settling: appends copies of failed messages to their lanes, and gives back the names of unique ones.
//!
//! Only then do these messages count as settled.

use std::collections::BTreeMap;
use std::sync::Arc;

use sawmill_engine::Result;
use sawmill_engine::fault;
use sawmill_engine::model::{Fate, Message, MessageId, Topic};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Record;

use crate::store::unique;
use crate::worker::inflight::message::{LaneCopy, Settling};
use crate::worker::{Lanes, ShardSource, Shared, run};

/// Appends the copies of failed messages to their lanes, and gives back the names of unique ones. Only then
/// do the messages count as settled.
pub(crate) async fn append_lane_copies(shared: &Arc<Shared>) -> Result<()> {
    let log = shared.builder.store.log();
    let now = shared.env().wall();
    let settling = {
        let mut inflight = shared.inflight();
        // Past the lease the claim may be another worker's, which then runs and settles the message.
        if !inflight.has_settling() || !inflight.is_leased(shared.env().now()) {
            return Ok(());
        }
        inflight.settling()
    };
    let mut batches: BTreeMap<&str, (&Topic, Vec<Record>)> = BTreeMap::new();
    let mut fates = Vec::with_capacity(settling.len());
    for settling in &settling {
        let (copy, fate) = copy_of(settling, &shared.sources[settling.source].lanes, now);
        fates.push(fate);
        let Some((lane, message)) = copy else { continue };
        let (_, records) = batches.entry(&lane.uid).or_insert_with(|| (&**lane, Vec::new()));
        records.push(Record::repeatable_in(log, lane, message));
    }
    for (lane, records) in batches.into_values() {
        log.append(lane, now, records).await?;
    }
    give_back_names(shared, &settling, &fates).await?;
    shared.counts().dead += fates.iter().filter(|fate| **fate == Fate::Dead).count() as u64;
    shared.record_copies(&settling);
    let mut inflight = shared.inflight();
    for (settling, fate) in settling.into_iter().zip(fates) {
        inflight.settled_on_lane(settling, fate);
    }
    drop(inflight);
    run::fill(shared);
    Ok(())
}

/// Gives back the names of unique messages that are settled for good.
async fn give_back_names(shared: &Shared, settling: &[Settling], fates: &[Fate]) -> Result<()> {
    let kept = |fate: &Fate| *fate == Fate::Dead && fault!(DeadNameNotFreed);
    let for_good = settling.iter().zip(fates).filter(|(_, fate)| **fate != Fate::Retried && !kept(fate));
    let mut topics: BTreeMap<usize, Vec<(&str, MessageId)>> = BTreeMap::new();
    for (Settling { held, source, .. }, _) in for_good {
        if let Some(name) = held.message.unique_name() {
            let topic = shared.sources[*source].topic_index;
            topics.entry(topic).or_default().push((name, held.message.origin()));
        }
    }
    for (index, names) in topics {
        // Names belong to the topic, also those of messages on a lane.
        let is_base =
            |source: &&ShardSource| source.topic_index == index && source.topic.name.as_lane().is_none();
        if let Some(source) = shared.sources.iter().find(is_base) {
            unique::release(&shared.builder.store, &source.topic, &shared.group, names.into_iter()).await?;
        }
    }
    Ok(())
}

/// Returns the copy that a message leaves on a lane, if any, and the message's fate.
fn copy_of<'a>(
    settling: &Settling,
    lanes: &'a Lanes,
    now: Timestamp,
) -> (Option<(&'a Arc<Topic>, Message)>, Fate) {
    let held = &settling.held;
    let failures = &held.failures;
    match &settling.copy {
        LaneCopy::Retry { after, counted } => {
            let copy = held.message.retry_copy(
                held.failed.saturating_add(u32::from(*counted)),
                failures,
                held.pass,
                now + *after,
            );
            (Some((&lanes.retry, copy)), Fate::Retried)
        }
        LaneCopy::Dead { reason } => {
            let counted = u32::from(!failures.is_empty());
            let copy =
                held.message.dead_copy(held.failed.saturating_add(counted), failures, held.pass, reason);
            (Some((&lanes.dead, copy)), Fate::Dead)
        }
        LaneCopy::None { fate } => (None, *fate),
    }
}
