//! Grabbing: read the next block of a shard, then one write that claims it and moves the cursor.

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use super::decide::{Change, Decided, decide};
use super::foreman::{Foreman, Maybe};
use super::slot;
use crate::claim::WorkerId;
use crate::error::Result;
use crate::log::{Block, Want};
use crate::planted::{self, Bug};
use crate::shard::{Grab, ShardState};

/// The most messages in one block.
const BLOCK: usize = super::GRAB_MOST;
/// The most claims on a shard: they are one value in the ledger, and it is written anew with each change.
const MOST_CLAIMS: usize = 1000;
/// How many shards of which nothing is known are read at once, also if there is room for fewer messages.
const LOOK_AHEAD: usize = 16;

impl Foreman {
    /// True if this worker may try to grab from this source.
    pub(super) fn may_try(&self, index: usize) -> bool {
        let (spec, source) = (self.spec(index), &self.sources[index]);
        if source.known.as_ref().is_some_and(|(_, state)| state.claims.len() >= MOST_CLAIMS) {
            return false;
        }
        if !spec.rules.ordered {
            return !self.shared.bench().is_closing(index);
        }
        let Some(me) = &self.me else { return false };
        let held_by_another = source.known.as_ref().is_some_and(|(_, state)| !state.may_grab(me, spec.rules));
        // What is being let go comes before anything newer, also if the ring has changed its mind meanwhile.
        source.mine && !held_by_another && !self.shared.bench().is_closing(index)
    }

    /// The sources to read next: as many as there is room for of those that are known to have more, or all of which nothing
    /// is known. Topics in the order of their priority; own shards first, and others only when a slot would be idle. With it, how much room there is.
    fn pick(&mut self) -> (Vec<usize>, usize) {
        let now = self.shared.env().now();
        let (rooms, idle): (Vec<usize>, Vec<bool>) = {
            let bench = self.shared.bench();
            let topics = 0..self.shared.builder.topics.len();
            topics.map(|topic| (bench.room(topic, now), bench.idle_slots(topic, now) > 0)).unzip()
        };
        if rooms.iter().all(|room| *room == 0) {
            return (Vec::new(), 0);
        }
        let class = |index: usize| (self.spec(index).topic_index, self.sources[index].mine);
        let wanted = |index: &usize| {
            let source = &self.sources[*index];
            let topic = self.spec(*index).topic_index;
            let pending = self.adopted.iter().any(|(adopted, _)| adopted == index);
            let open = rooms[topic] > 0 && (source.mine || idle[topic]);
            source.maybe.is_worth_a_read() && !pending && open && self.may_try(*index)
        };
        let candidates: Vec<usize> = self.order.iter().copied().filter(wanted).collect();
        let Some(first) = candidates.first() else { return (Vec::new(), 0) };
        let first = class(*first);
        let room = rooms[first.0];
        let mut picked: Vec<usize> = candidates.into_iter().filter(|index| class(*index) == first).collect();
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn % picked.len();
        picked.rotate_left(turn);
        if self.sources[picked[0]].maybe == Maybe::Yes {
            // Claims that are written at the same time cost little more than one.
            picked.retain(|index| self.sources[*index].maybe == Maybe::Yes);
            picked.truncate((room / BLOCK).max(1));
        } else {
            picked.retain(|index| self.sources[*index].maybe == Maybe::Unknown);
            picked.truncate(room.max(LOOK_AHEAD));
        }
        (picked, room)
    }

    /// Reads and claims blocks as long as there is room and something may be there. True if that should be tried again
    /// at once: messages were taken in hand, or another worker was faster.
    pub(super) async fn grab(&mut self, me: &WorkerId) -> Result<bool> {
        let mut again = false;
        loop {
            let (picked, room) = self.pick();
            if picked.is_empty() {
                return Ok(again);
            }
            let grabbed = self.grab_from(me, picked, room).await?;
            again |= grabbed.taken > 0 || grabbed.conflicts > 0;
            // However much there is to do, it is looked around in time, and news of topics with priority are heard.
            let others_first = again && (self.has_priorities() || self.shared.env().now() >= self.look_at);
            if grabbed.conflicts > 0 || others_first {
                return Ok(again);
            }
        }
    }

    async fn grab_from(&mut self, me: &WorkerId, mut picked: Vec<usize>, room: usize) -> Result<Grabbed> {
        self.refresh(me, &picked).await?;
        if !planted::is(Bug::CancelUnseen) {
            self.learn_cancels().await?;
        }
        picked.retain(|index| self.may_try(*index));
        let limit = (room / picked.len().max(1)).clamp(1, BLOCK);
        let blocks = self.read(&picked, limit).await?;

        let mut changes = Vec::new();
        let mut left = room;
        let found = has_messages(&blocks);
        for (index, mut block) in blocks {
            if block.messages.is_empty() {
                self.sources[index].maybe = match (block.more, found) {
                    // One that was left out for the sake of another is read next.
                    (true, true) => Maybe::Unknown,
                    (true, false) => Maybe::Later,
                    (false, _) => Maybe::No,
                };
                continue;
            }
            if block.messages.len() > left {
                // Good to know, but there is no room for it now.
                self.sources[index].maybe = Maybe::Yes;
                continue;
            }
            left -= block.messages.len();
            self.sources[index].maybe = match block.more {
                true if block.messages.len() >= limit => Maybe::Yes,
                true => Maybe::Unknown,
                false => Maybe::No,
            };
            if planted::is(Bug::CursorTooFar) && block.messages.len() > 1 {
                block.messages.pop();
            }
            let Some((expect, mut state)) = self.sources[index].known.clone() else { continue };
            let reports = self.settle_in(&mut state, index, me);
            let count = block.messages.len() as u32;
            let grab = Grab { span: block.span.clone(), end: block.end.clone(), count };
            let Ok(token) = state.grab(me, self.spec(index).rules, &grab) else { continue };
            let key = self.spec(index).key.clone();
            let change = Change { key, expect, state, gains: vec![token], worker: me.clone() };
            changes.push((index, change, token, reports, block));
        }
        let shared = self.shared.clone();
        let decisions = changes.into_iter().map(|(index, change, token, reports, block)| {
            let decided = decide(&shared, change);
            async move { (index, decided.await, token, reports, block) }
        });
        let mut grabbed = Grabbed::default();
        let mut trouble = None;
        for (index, decided, token, reports, block) in join_all(decisions).await {
            match decided {
                Decided::Done(version, state) => {
                    let claim = state.claims.iter().find(|claim| claim.token == token).cloned();
                    self.written(index, version, state, reports);
                    if let Some(claim) = claim {
                        grabbed.taken += block.messages.len();
                        shared.saw_grab(index, me, token, block.messages.len());
                        self.take(Some(me), index, claim, block.messages);
                        slot::fill(&shared);
                    }
                }
                Decided::Conflict => {
                    grabbed.conflicts += 1;
                    self.out_of_date(index);
                }
                Decided::Failed(error) => {
                    self.out_of_date(index);
                    trouble = Some(error);
                }
            }
        }
        trouble.map_or(Ok(grabbed), Err)
    }

    /// Another worker has written to this shard.
    pub(super) fn out_of_date(&mut self, index: usize) {
        let source = &mut self.sources[index];
        source.known = None;
        source.contended = true;
        source.maybe = Maybe::Unknown;
    }

    /// Gets the entries of sources of which too little is known, or which others write to as well.
    pub(super) async fn refresh(&mut self, me: &WorkerId, picked: &[usize]) -> Result<()> {
        let shared = self.shared.clone();
        let ledger = shared.builder.mill.ledger();
        let stale = picked.iter().copied().filter(|index| {
            let source = &self.sources[*index];
            source.known.is_none() || source.contended
        });
        let gets: Vec<_> = stale.map(|index| (index, self.spec(index).key.clone())).collect();
        let entries =
            join_all(gets.into_iter().map(|(index, key)| async move { (index, ledger.get(&key).await) }));
        for (index, entry) in entries.await {
            match entry? {
                Some(entry) => {
                    let state = shared.builder.mill.decode_shard(&entry)?;
                    let unchanged = self.sources[index].known.as_ref().map(|(version, _)| *version)
                        == Some(Some(entry.version));
                    self.sources[index].contended &= !unchanged;
                    self.learn(index, me, Some(entry.version), state);
                }
                None => self.learn(index, me, None, ShardState::default()),
            }
        }
        Ok(())
    }

    /// Reads the picked sources after their cursors, or some of them, if there are messages.
    async fn read(&mut self, picked: &[usize], limit: usize) -> Result<Vec<(usize, Block)>> {
        let shared = self.shared.clone();
        let log = shared.builder.mill.log();
        let mut reads = Vec::new();
        for topic in self.shared.topics() {
            let (mut indexes, mut wants) = (Vec::new(), Vec::new());
            for index in picked.iter().copied().filter(|index| self.spec(*index).topic.uid == topic.uid) {
                if let Some((_, state)) = &self.sources[index].known {
                    indexes.push(index);
                    wants.push(Want { shard: self.spec(index).shard, after: state.cursor.clone(), limit });
                }
            }
            if !wants.is_empty() {
                self.shared.counts().reads += 1;
                reads.push(async move { (indexes, log.read(&topic, &wants).await) });
            }
        }
        // A topic and its lanes at once. What has come first need not wait for the others: they are read when it is claimed. But
        // not twice in a row, or a topic in which there is always something would keep all from the others.
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

/// What one try to grab has brought.
#[derive(Default)]
struct Grabbed {
    taken: usize,
    conflicts: usize,
}
