//! Leaving: waits for running handlers, and gives back the rest.

use sawmill_engine::Result;
use sawmill_engine::model::WorkerId;

use super::report::{report, write_reports};
use super::settle::append_lane_copies;
use super::shard_cache::ShardCache;
use super::{PROGRESS, SHORT_LINGER};
use crate::worker::journal::Journal;

/// Waits for running handlers, gives back messages that were not started, and reports both to the ledger.
pub(crate) async fn leave(cache: &mut ShardCache) {
    let shared = cache.shared.clone();
    let env = shared.env().clone();
    {
        let mut inflight = shared.inflight();
        inflight.stop();
        for index in 0..cache.shards.len() {
            inflight.close(index);
        }
    }
    while shared.inflight().running() > 0 {
        // Finished shards must not wait for the last handler: others can take them over.
        let _ = env.within(shared.builder.ttl, report_while_leaving(cache)).await;
        let _ = env.within(PROGRESS, shared.wake.notified()).await;
    }
    // A store that is down must not keep the worker from ending: others notice its death and take over.
    match env.within(shared.builder.ttl, give_back_everything(cache)).await {
        Some(true) => shared.journal.iter().for_each(Journal::finish),
        Some(false) => {}
        None => {
            tracing::warn!(group = %shared.group, "left without reporting everything: the store does not answer");
        }
    }
}

/// Settles failed messages, reports progress, and gives back shards on which nothing runs any more.
async fn report_while_leaving(cache: &mut ShardCache) -> Result<()> {
    append_lane_copies(&cache.shared).await?;
    let me = cache.shared.inflight().me().cloned();
    match me.filter(|me| cache.me.as_ref() == Some(me)) {
        // A stop is waited for.
        Some(me) => report(cache, &me, SHORT_LINGER).await,
        None => Ok(()),
    }
}

/// Gives back all claims of this worker. True if none is left.
async fn give_back_everything(cache: &mut ShardCache) -> bool {
    let shared = cache.shared.clone();
    loop {
        let me = shared.inflight().me().cloned();
        // The worker was declared dead: it has nothing to give back.
        let Some(me) = me.filter(|me| cache.me.as_ref() == Some(me)) else { return false };
        if let Err(error) = give_back_all(cache, &me).await {
            tracing::debug!(%error, "not given back yet");
        }
        if cache.adopted.is_empty() && shared.inflight().is_empty() {
            return true;
        }
        shared.env().sleep(SHORT_LINGER).await;
    }
}

/// Gives back every claim on which nothing runs and no failed message waits for its copy.
async fn give_back_all(cache: &mut ShardCache, me: &WorkerId) -> Result<()> {
    append_lane_copies(&cache.shared).await?;
    let closed: Vec<usize> = {
        let inflight = cache.shared.inflight();
        let adopted = |index: &usize| cache.adopted.iter().any(|(adopted, _)| adopted == index);
        (0..cache.shards.len()).filter(|index| adopted(index) || inflight.is_closed(*index)).collect()
    };
    cache.reload_all(me, &closed).await?;
    write_reports(cache, me, &closed, &closed).await
}
