//! Adoption: taking over claims whose workers are gone, and giving up shards that belong to other workers.

use std::collections::BTreeSet;

use sawmill_engine::Result;
use sawmill_engine::fault;
use sawmill_engine::model::{Claim, Token, WorkerId};

use super::commit::{CommitOutcome, ShardChange, commit_until_decided};
use super::shard_cache::ShardCache;
use crate::worker::journal::Journal;

/// Takes over claims without a living owner. In ordered groups only on shards that the ring gives to this
/// worker.
pub(crate) async fn adopt(
    cache: &mut ShardCache,
    order: &[usize],
    me: &WorkerId,
    members: &BTreeSet<String>,
) -> Result<()> {
    let shared = cache.shared.clone();
    // Claims of the previous run are recovered, not adopted, however long that takes.
    let previous = shared.journal.as_ref().and_then(Journal::previous);
    let is_previous =
        |owner: &WorkerId| previous.as_ref().is_some_and(|previous| previous.workers.contains(owner));
    let is_gone = |owner: &WorkerId| !members.contains(owner.as_str()) && !is_previous(owner);
    // Claims of the last worker with this name come first: there may be no capacity for more.
    let former = shared.name.as_ref().and_then(|name| name.former.clone());
    if let Some(former) = former.filter(is_gone) {
        adopt_where(cache, order, me, |owner| owner == Some(&former)).await?;
    }
    adopt_where(cache, order, me, |owner| owner.is_none_or(is_gone)).await
}

/// Takes over claims whose owner is `wanted`; `None` stands for a claim without an owner. Takes no more
/// messages than this worker may still start.
async fn adopt_where(
    cache: &mut ShardCache,
    order: &[usize],
    me: &WorkerId,
    wanted: impl Fn(Option<&WorkerId>) -> bool,
) -> Result<()> {
    for index in order.iter().copied() {
        let (rules, topic) = (cache.source(index).rules, cache.source(index).topic_index);
        let (idle, may_start) = {
            let (inflight, now) = (cache.shared.inflight(), cache.shared.env().now());
            let may_start = inflight.may_start(now) && !inflight.is_crowded() && !inflight.is_blocked(topic);
            (inflight.idle_slots(topic, now) > 0, may_start)
        };
        let shard = &cache.shards[index];
        let pending: u64 = cache.adopted.iter().map(|(_, claim)| claim.open()).sum();
        let most = cache.shared.inflight().starts_left().saturating_sub(pending);
        if !may_start || most == 0 || !(shard.preferred || (idle && !rules.ordered)) {
            continue;
        }
        let Some((expect, state)) = &shard.known else { continue };
        if !state.claims.iter().any(|claim| wanted(claim.owner.as_ref())) {
            continue;
        }
        let (expect, mut state) = (*expect, state.clone());
        let adopted = state.adopt_some(me, rules, most, &wanted);
        let gains: Vec<Token> = adopted.iter().map(|claim| claim.token).collect();
        if gains.is_empty() {
            continue;
        }
        let change =
            ShardChange { key: cache.source(index).key.clone(), expect, state, gains, worker: me.clone() };
        match commit_until_decided(&cache.shared, change).await {
            CommitOutcome::Done(version, state) => {
                cache.shared.record_adoption(index, me, adopted.len());
                cache.shared.counts().adopted += adopted.len() as u64;
                cache.shards[index].known = Some((Some(version), state));
                cache.adopted.extend(adopted.into_iter().map(|claim| (index, claim)));
            }
            CommitOutcome::Conflict => cache.shards[index].known = None,
            CommitOutcome::Failed(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes claims back that this worker had closed and a crash of the whole store has reopened. Such a crash
/// may undo what was written lightly while this worker lives. No other worker takes these claims as long as
/// this one sends heartbeats, so it works them again, as another would have if it had died just before the
/// crash. Durable writes, as under at-most-once, are not undone.
pub(crate) fn readopt_undone(cache: &mut ShardCache, me: &WorkerId) {
    for (index, shard) in cache.shards.iter().enumerate() {
        let Some((_, state)) = &shard.known else { continue };
        let held = cache.shared.inflight().tokens(index);
        let adopted = &cache.adopted;
        let is_known = |token: Token| {
            held.iter().any(|(_, held)| *held == token)
                || adopted.iter().any(|(other, claim)| *other == index && claim.token == token)
        };
        let forgotten: Vec<(usize, Claim)> = state
            .claims
            .iter()
            .filter(|claim| claim.owner.as_ref() == Some(me) && !claim.once && !is_known(claim.token))
            .map(|claim| (index, claim.clone()))
            .collect();
        if !forgotten.is_empty() {
            let key = &cache.source(index).key;
            tracing::info!(%key, claims = forgotten.len(), "reports were undone by the store: working them again");
        }
        if !fault!(ReopenedClaimIgnored) {
            cache.adopted.extend(forgotten);
        }
    }
}

/// Closes claims on shards that this worker should give up, so that they can be given back: in ordered groups
/// shards that the ring gives to other workers, and all shards of a topic whose limit other workers have all
/// of.
pub(crate) fn close_surrendered(cache: &ShardCache) {
    for (index, shard) in cache.shards.iter().enumerate() {
        let mut inflight = cache.shared.inflight();
        if (cache.source(index).rules.ordered && !shard.preferred)
            || inflight.is_taken_by_others(cache.source(index).topic_index)
        {
            inflight.close(index);
        }
    }
}
