//! Claiming: read the next block of a shard, then one write that claims it and moves the cursor.

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use sawmill_engine::Result;
use sawmill_engine::fault;
use sawmill_engine::model::{NewClaim, WorkerId};
use sawmill_engine::runtime::Moment;
use sawmill_engine::storage::{Block, ReadRequest};

use super::commit::{CommitOutcome, ShardChange, commit_until_decided};
use super::report::{add_reports, written};
use super::shard_cache::{Readable, ShardCache};
use crate::worker::{MAX_BLOCK, run};

/// How many shards whose content is unknown are read at once, even if there is capacity for fewer messages.
const MIN_SHARDS_READ: usize = 16;

/// Claims new blocks.
#[derive(Default)]
pub(crate) struct Claiming {
    /// Where the next pick begins, so that shards take turns.
    turn: usize,
    /// The last read did not wait for all shards.
    read_some: bool,
}

impl Claiming {
    /// Picks the shards to read next. Also returns for how many messages there is capacity.
    ///
    /// Topics come in the order of their priority. Preferred shards come first, others only when a slot would
    /// be idle. Of shards that are known to have more, as many are picked as there is capacity for; otherwise
    /// all that may have messages.
    fn pick(&mut self, cache: &ShardCache, order: &[usize]) -> (Vec<usize>, usize) {
        let now = cache.shared.env().now();
        let (capacities, idle): (Vec<usize>, Vec<bool>) = {
            let inflight = cache.shared.inflight();
            let topics = 0..cache.shared.builder.topics.len();
            topics.map(|topic| (inflight.capacity(topic, now), inflight.idle_slots(topic, now) > 0)).unzip()
        };
        if capacities.iter().all(|capacity| *capacity == 0) {
            return (Vec::new(), 0);
        }
        let class = |index: usize| (cache.source(index).topic_index, cache.shards[index].preferred);
        let wanted = |index: &usize| {
            let shard = &cache.shards[*index];
            let topic = cache.source(*index).topic_index;
            let pending = cache.adopted.iter().any(|(adopted, _)| adopted == index);
            let open = capacities[topic] > 0 && (shard.preferred || idle[topic]);
            shard.readable.is_worth_reading() && !pending && open && cache.may_claim_from(*index)
        };
        let candidates: Vec<usize> = order.iter().copied().filter(wanted).collect();
        let Some(first) = candidates.first() else { return (Vec::new(), 0) };
        let first = class(*first);
        let capacity = capacities[first.0];
        let mut picked: Vec<usize> = candidates.into_iter().filter(|index| class(*index) == first).collect();
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn % picked.len();
        picked.rotate_left(turn);
        if cache.shards[picked[0]].readable == Readable::Yes {
            // Several claims written at once cost little more than one.
            picked.retain(|index| cache.shards[*index].readable == Readable::Yes);
            picked.truncate((capacity / MAX_BLOCK).max(1));
        } else {
            picked.retain(|index| cache.shards[*index].readable == Readable::Unknown);
            picked.truncate(capacity.max(MIN_SHARDS_READ));
        }
        (picked, capacity)
    }

    /// Reads and claims blocks as long as there is capacity and there may be messages. True if that should be
    /// tried again at once: messages were taken in hand, or another worker was faster.
    pub(crate) async fn claim(
        &mut self,
        cache: &mut ShardCache,
        order: &[usize],
        me: &WorkerId,
        refresh_at: Moment,
    ) -> Result<bool> {
        let mut again = false;
        loop {
            let (picked, capacity) = self.pick(cache, order);
            if picked.is_empty() {
                return Ok(again);
            }
            let claimed = self.claim_from(cache, me, picked, capacity).await?;
            again |= claimed.messages > 0 || claimed.conflicts > 0;
            // However many messages there are, refreshes are on time and topics with priority are noticed.
            let shared = &cache.shared;
            let others_first = again && (shared.has_priorities() || shared.env().now() >= refresh_at);
            if claimed.conflicts > 0 || others_first {
                return Ok(again);
            }
        }
    }

    async fn claim_from(
        &mut self,
        cache: &mut ShardCache,
        me: &WorkerId,
        mut picked: Vec<usize>,
        capacity: usize,
    ) -> Result<Claimed> {
        cache.reload(me, &picked).await?;
        if !fault!(CancelUnseen) {
            cache.refresh_cancellations().await?;
        }
        picked.retain(|index| cache.may_claim_from(*index));
        let limit = (capacity / picked.len().max(1)).clamp(1, MAX_BLOCK);
        let blocks = self.read(cache, &picked, limit).await?;

        let mut changes = Vec::new();
        let mut left = capacity;
        let found = has_messages(&blocks);
        for (index, block) in blocks {
            if block.messages.is_empty() {
                cache.shards[index].readable = match (block.more, found) {
                    // The engine returned other shards' messages first: this shard is read next.
                    (true, true) => Readable::Unknown,
                    (true, false) => Readable::Later,
                    (false, _) => Readable::No,
                };
                continue;
            }
            if block.messages.len() > left {
                // There is no capacity for this block now.
                cache.shards[index].readable = Readable::Yes;
                continue;
            }
            left -= block.messages.len();
            cache.shards[index].readable = match block.more {
                true if block.messages.len() >= limit => Readable::Yes,
                true => Readable::Unknown,
                false => Readable::No,
            };
            let Some((expect, mut state)) = cache.shards[index].known.take() else { continue };
            let reports = add_reports(cache, &mut state, index, me);
            let count = block.messages.len() as u32;
            let new = NewClaim { span: block.span.clone(), end: block.end.clone(), count };
            let Ok(token) = state.claim_block(me, cache.source(index).rules, &new) else { continue };
            let key = cache.source(index).key.clone();
            let change = ShardChange { key, expect, state, gains: vec![token], worker: me.clone() };
            changes.push((index, change, token, reports, block));
        }
        let shared = cache.shared.clone();
        let decisions = changes.into_iter().map(|(index, change, token, reports, block)| {
            let decided = commit_until_decided(&shared, change);
            async move { (index, decided.await, token, reports, block) }
        });
        let mut claimed = Claimed::default();
        let mut failure = None;
        for (index, decided, token, reports, block) in join_all(decisions).await {
            match decided {
                CommitOutcome::Done(version, state) => {
                    let claim = state.claims.iter().find(|claim| claim.token == token).cloned();
                    written(cache, index, version, state, reports);
                    if let Some(claim) = claim {
                        claimed.messages += block.messages.len();
                        shared.record_claim(index, me, token, block.messages.len());
                        cache.take(Some(me), index, claim, block.messages);
                        run::fill(&shared);
                    }
                }
                CommitOutcome::Conflict => {
                    claimed.conflicts += 1;
                    cache.out_of_date(index);
                }
                CommitOutcome::Failed(error) => {
                    cache.out_of_date(index);
                    failure = Some(error);
                }
            }
        }
        failure.map_or(Ok(claimed), Err)
    }

    /// Reads the picked shards after their cursors. May return without some of them if there are messages.
    async fn read(
        &mut self,
        cache: &ShardCache,
        picked: &[usize],
        limit: usize,
    ) -> Result<Vec<(usize, Block)>> {
        let shared = &cache.shared;
        let log = shared.builder.store.log();
        let mut reads = Vec::new();
        for topic in cache.shared.topics() {
            let (mut indexes, mut wants) = (Vec::new(), Vec::new());
            for index in picked.iter().copied().filter(|index| cache.source(*index).topic.uid == topic.uid) {
                if let Some((_, state)) = &cache.shards[index].known {
                    indexes.push(index);
                    wants.push(ReadRequest {
                        shard: cache.source(index).shard,
                        after: state.cursor.clone(),
                        limit,
                    });
                }
            }
            if !wants.is_empty() {
                cache.shared.counts().reads += 1;
                reads.push(async move { (indexes, log.read(&topic, &wants).await) });
            }
        }
        // A topic and its lanes are read at once. Messages that come first need not wait for the other reads:
        // these are repeated after the claim. But others are left out at most once in a row, or a topic that
        // always has messages would starve them.
        let may_leave_out = !std::mem::take(&mut self.read_some);
        let mut reads: FuturesUnordered<_> = reads.into_iter().collect();
        let mut blocks = Vec::new();
        while let Some((indexes, read)) = reads.next().await {
            blocks.extend(indexes.into_iter().zip(read?));
            if may_leave_out && has_messages(&blocks) && !reads.is_empty() {
                self.read_some = true;
                break;
            }
        }
        Ok(blocks)
    }
}

fn has_messages(blocks: &[(usize, Block)]) -> bool {
    blocks.iter().any(|(_, block)| !block.messages.is_empty())
}

/// The result of one try.
#[derive(Default)]
struct Claimed {
    messages: usize,
    conflicts: usize,
}
