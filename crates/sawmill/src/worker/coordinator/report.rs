//! Reporting: writes settled messages into the claims, and gives back closed claims.

use std::time::Duration;

use futures_util::future::join_all;
use sawmill_engine::Result;
use sawmill_engine::model::{Report, ShardState, WorkerId};
use sawmill_engine::storage::Version;

use super::PROGRESS;
use super::commit::{CommitOutcome, ShardChange, commit_until_decided};
use super::shard_cache::ShardCache;
use crate::worker::Delivery;
use crate::worker::inflight::message::Ticket;

/// Adds the reports of this shard to its state. Drops claims that are no longer this worker's.
pub(crate) fn add_reports(
    cache: &ShardCache,
    state: &mut ShardState,
    index: usize,
    me: &WorkerId,
) -> Vec<(Ticket, Report)> {
    let mut inflight = cache.shared.inflight();
    let before = state.tally;
    let mut reports = inflight.reports(index);
    reports.retain(|(ticket, report)| {
        let settled = state.settle(me, report);
        if settled.is_err() {
            inflight.lose(*ticket);
        }
        settled.is_ok()
    });
    cache.shared.record_settling(index, before, state.tally);
    reports
}

/// Notes that the reports are in the ledger.
pub(crate) fn written(
    cache: &mut ShardCache,
    index: usize,
    version: Version,
    state: ShardState,
    reports: Vec<(Ticket, Report)>,
) {
    cache.shared.record_settled(index);
    let mut inflight = cache.shared.inflight();
    for (ticket, report) in &reports {
        inflight.reported(*ticket, report);
    }
    drop(inflight);
    let now = cache.shared.env().now();
    let shard = &mut cache.shards[index];
    shard.known = Some((Some(version), state));
    shard.written = now;
}

/// Reports progress on shards where it is time and no claim has taken the report along.
pub(crate) async fn report(cache: &mut ShardCache, me: &WorkerId, linger: Duration) -> Result<()> {
    let now = cache.shared.env().now();
    let (dirty, pause) = {
        let inflight = cache.shared.inflight();
        // Under at-most-once a finished message that is not reported would count as lost.
        let seldom = inflight.in_hand() > 0
            && inflight.is_quick()
            && cache.shared.builder.delivery != Delivery::AtMostOnce;
        let pause = if seldom { PROGRESS } else { linger };
        (inflight.dirty(), if inflight.is_full() { Duration::ZERO } else { pause })
    };
    let released: Vec<usize> = {
        let inflight = cache.shared.inflight();
        (0..cache.shards.len()).filter(|index| inflight.is_closed(*index)).collect()
    };
    let due = |index: &usize| now.since(cache.shards[*index].written) >= pause;
    // When one report is due, all others go with it: in one transaction if the engine supports it.
    let mut wanted = if dirty.iter().any(due) { dirty } else { Vec::new() };
    wanted.extend(released.iter().copied());
    wanted.sort_unstable();
    wanted.dedup();
    if wanted.is_empty() {
        return Ok(());
    }
    cache.reload(me, &wanted).await?;
    write_reports(cache, me, &wanted, &released).await
}

/// Writes the reports of the `wanted` shards, and gives back the claims of the `released` ones: those that
/// were adopted and not taken in hand, and those in hand if all of them are closed.
pub(crate) async fn write_reports(
    cache: &mut ShardCache,
    me: &WorkerId,
    wanted: &[usize],
    released: &[usize],
) -> Result<()> {
    let mut changes = Vec::new();
    for index in wanted.iter().copied() {
        let Some((expect, mut state)) = cache.shards[index].known.clone() else { continue };
        let before = state.clone();
        let reports = add_reports(cache, &mut state, index, me);
        if released.contains(&index) {
            let adopted =
                cache.adopted.iter().filter(|(adopted, _)| *adopted == index).map(|(_, claim)| claim.token);
            let held = {
                let inflight = cache.shared.inflight();
                if inflight.is_closed(index) { inflight.tokens(index) } else { Vec::new() }
            };
            for token in held.into_iter().map(|(_, token)| token).chain(adopted).collect::<Vec<_>>() {
                // A claim that its report has just closed cannot be given back.
                let _ = state.give_back(me, token);
            }
        }
        if state != before {
            let key = cache.source(index).key.clone();
            let change = ShardChange { key, expect, state, gains: Vec::new(), worker: me.clone() };
            changes.push((index, change, reports));
        } else if released.contains(&index) {
            gave_back(cache, index);
        }
    }
    let shared = cache.shared.clone();
    let decisions = changes.into_iter().map(|(index, change, reports)| {
        let decided = commit_until_decided(&shared, change);
        async move { (index, decided.await, reports) }
    });
    let mut failure = None;
    for (index, decided, reports) in join_all(decisions).await {
        match decided {
            CommitOutcome::Done(version, state) => {
                written(cache, index, version, state, reports);
                if released.contains(&index) {
                    cache.shared.record_give_back(index);
                    gave_back(cache, index);
                }
            }
            CommitOutcome::Conflict => cache.out_of_date(index),
            CommitOutcome::Failed(error) => {
                cache.out_of_date(index);
                failure = Some(error);
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

/// Notes that the claims of this shard are no longer this worker's.
fn gave_back(cache: &mut ShardCache, index: usize) {
    cache.adopted.retain(|(adopted, _)| *adopted != index);
    let mut inflight = cache.shared.inflight();
    if inflight.is_closed(index) {
        inflight.gave_back(index);
    }
}
