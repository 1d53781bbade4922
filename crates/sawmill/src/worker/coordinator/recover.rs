//! Recovery: taking over the claims of this worker's previous run with the help of its
//! [journal](crate::worker::journal).

use std::collections::BTreeMap;

use sawmill_engine::Result;
use sawmill_engine::fault;
use sawmill_engine::model::{Claim, Message, Progress, Token, WorkerId};
use sawmill_engine::storage::{EntryKey, Write};

use super::commit::{CommitOutcome, ShardChange, commit_until_decided};
use super::shard_cache::ShardCache;
use crate::worker::Shared;
use crate::worker::journal::PreviousRun;

/// Takes over claims of the previous run, if there are any. Its member entry is removed last: as long as it
/// exists, no other worker takes the previous run for dead.
pub(crate) async fn recover(cache: &mut ShardCache, me: &WorkerId) -> Result<()> {
    let shared = cache.shared.clone();
    let Some(journal) = &shared.journal else { return Ok(()) };
    let Some(previous) = journal.previous() else { return Ok(()) };
    if !shared.inflight().is_leased(shared.env().now()) {
        return Ok(());
    }
    for index in 0..cache.shards.len() {
        while !recover_shard(cache, me, index, &previous).await? {}
    }
    for worker in &previous.workers {
        remove_member(&shared, worker).await?;
    }
    journal.recovered();
    Ok(())
}

/// Recovers one shard. False if another worker has written to it meanwhile, so that it must be tried again.
async fn recover_shard(
    cache: &mut ShardCache,
    me: &WorkerId,
    index: usize,
    previous: &PreviousRun,
) -> Result<bool> {
    cache.reload(me, &[index]).await?;
    let Some((expect, mut state)) = cache.shards[index].known.clone() else { return Ok(false) };
    let is_known = |owner: &WorkerId| previous.workers.contains(owner);
    let mut started: BTreeMap<Token, Progress> = BTreeMap::new();
    for claim in state.claims.iter().filter(|claim| claim.owner.as_ref().is_some_and(is_known)) {
        let messages = cache.reread(index, claim).await?;
        let was_started = |message: &Message| {
            previous.started.contains(&(message.id, claim.pass)) && !fault!(RecoveredRunsAgain)
        };
        let indexes = (0..claim.count).zip(&messages).filter(|(_, message)| was_started(message));
        started.insert(claim.token, indexes.map(|(index, _)| index).collect());
    }
    if started.is_empty() {
        return Ok(true);
    }
    let rules = cache.source(index).rules;
    let known = |claim: &Claim| started.get(&claim.token).cloned().unwrap_or_default();
    let recovered = state.recover(me, rules, is_known, known);
    if recovered.is_empty() {
        return Ok(true);
    }
    let gains = recovered.iter().map(|claim| claim.token).collect();
    let key = cache.source(index).key.clone();
    let change = ShardChange { key: key.clone(), expect, state, gains, worker: me.clone() };
    match commit_until_decided(&cache.shared, change).await {
        CommitOutcome::Done(version, state) => {
            let open: u64 = recovered.iter().map(Claim::open).sum();
            let lost: u64 = recovered.iter().map(|claim| claim.started.len()).sum();
            tracing::info!(%key, claims = recovered.len(), open, lost, "took over the claims of this worker's previous run");
            cache.shared.counts().recovered += recovered.len() as u64;
            cache.shards[index].known = Some((Some(version), state));
            cache.adopted.extend(recovered.into_iter().map(|claim| (index, claim)));
            Ok(true)
        }
        CommitOutcome::Conflict => {
            cache.shards[index].known = None;
            Ok(false)
        }
        CommitOutcome::Failed(error) => Err(error),
    }
}

/// Removes the member entry of the previous run, which sends no more heartbeats.
async fn remove_member(shared: &Shared, worker: &WorkerId) -> Result<()> {
    let ledger = shared.builder.store.ledger();
    let key = EntryKey::member(&shared.group, worker.as_str());
    while let Some(entry) = ledger.get(&key).await? {
        ledger.commit(Write { key: key.clone(), expect: Some(entry.version), value: None }).await?;
    }
    Ok(())
}

/// Switches the journal to its other file, if it is time.
pub(crate) fn tidy_journal(shared: &Shared) {
    let Some(journal) = &shared.journal else { return };
    let (is_member, (oldest, last)) = {
        let inflight = shared.inflight();
        (inflight.me().is_some(), inflight.tickets())
    };
    // A worker that is no member may have left claims behind that are no longer in hand.
    if is_member {
        journal.tidy(oldest, last);
    }
}
