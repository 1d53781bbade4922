//! The gate of a topic: whether its next message may start. It is shut while the group is paused, and opens as far as the
//! group's limits allow.

use std::time::Duration;

use bytes::Bytes;

use super::bucket::{Bucket, KeyBuckets};
use super::share::{Share, fair_part};
use crate::clock::Moment;
use crate::limit::Limit;
use crate::member::InUse;
use crate::planted::{self, Bug};

/// How far ahead of a rate messages are taken in hand.
const AHEAD: Duration = Duration::from_millis(200);

/// The gate of one topic.
#[derive(Debug, Default)]
pub(super) struct Gate {
    paused: bool,
    /// How many workers share the limits at most.
    workers: usize,
    running: Option<Share>,
    rate: Option<(Share, Bucket)>,
    keys: Option<KeyBuckets>,
}

/// What a look has shown of a topic.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sight {
    pub(crate) paused: bool,
    /// The place of this worker among the members that work the topic; `None` if it is none of them.
    pub(crate) rank: Option<usize>,
    /// How many members work the topic.
    pub(crate) members: usize,
    /// What this worker's entry said for certain when the look began.
    pub(crate) said: InUse,
    /// What the entries of the others say together.
    pub(crate) others: InUse,
}

impl Gate {
    pub(super) fn new(limit: Option<Limit>, per_key: Option<Limit>) -> Self {
        Self {
            paused: false,
            workers: limit.map_or(usize::MAX, |limit| limit.workers()),
            running: limit.and_then(|limit| limit.most_running()).map(Share::new),
            rate: limit.and_then(|limit| limit.most_started()).map(|rate| (Share::new(rate), Bucket::dry())),
            keys: per_key.and_then(|limit| limit.most_started()).map(KeyBuckets::new),
        }
    }

    // ── the share of this worker ──

    /// This worker is no member any more.
    pub(super) fn forget(&mut self) {
        self.shares().for_each(|(share, _)| share.forget());
    }

    /// What the member entry should say, with so many running.
    pub(super) fn holds(&self, running: usize) -> InUse {
        InUse {
            running: self.running.as_ref().map_or(0, |share| share.holds(running as u64)),
            rate: self.rate.as_ref().map_or(0, |(share, _)| share.holds(0)),
        }
    }

    /// What the member entry says for certain.
    pub(super) fn said(&self) -> InUse {
        InUse {
            running: self.running.as_ref().map_or(0, Share::said),
            rate: self.rate.as_ref().map_or(0, |(share, _)| share.said()),
        }
    }

    /// A beat is sent that says so much.
    pub(super) fn saying(&mut self, holds: InUse) {
        self.shares().for_each(|(share, part)| share.saying(part(holds)));
    }

    /// The beat was acknowledged. True if a look may now grant more.
    pub(super) fn acknowledged(&mut self, holds: InUse) -> bool {
        self.shares().fold(false, |more, (share, part)| share.acknowledged(part(holds)) | more)
    }

    fn shares(&mut self) -> impl Iterator<Item = (&mut Share, fn(InUse) -> u64)> {
        let running = self.running.iter_mut().map(|share| (share, (|of| of.running) as fn(InUse) -> u64));
        let rate = self.rate.iter_mut().map(|(share, _)| (share, (|of| of.rate) as fn(InUse) -> u64));
        running.chain(rate)
    }

    /// Takes note of what a look has shown.
    pub(super) fn see(&mut self, sight: &Sight, now: Moment) {
        self.paused = sight.paused;
        let members = sight.members.min(self.workers);
        if let Some(share) = &mut self.running {
            share.see(
                fair_part(share.limit(), sight.rank, members),
                sight.said.running,
                sight.others.running,
            );
        }
        if let Some((share, bucket)) = &mut self.rate {
            share.see(fair_part(share.limit(), sight.rank, members), sight.said.rate, sight.others.rate);
            let granted = share.granted();
            bucket.set_rate(if planted::is(Bug::RateTooHigh) { granted * 3 / 2 } else { granted }, now);
        }
    }

    // ── what may start ──

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// True if other workers have all of the limit: what is in hand is for them to run.
    pub(super) fn is_others(&self) -> bool {
        self.running.as_ref().is_some_and(Share::is_nothing)
            || self.rate.as_ref().is_some_and(|(share, _)| share.is_nothing())
    }

    /// True if a look may show that there is more to do for this worker than before.
    pub(super) fn is_held_up(&self) -> bool {
        let wants = |share: &Share| share.granted() < share.holds(0);
        self.paused
            || self.running.as_ref().is_some_and(wants)
            || self.rate.as_ref().is_some_and(|(share, _)| wants(share))
    }

    /// How many messages may start now, with so many running.
    pub(super) fn permits(&self, running: usize, now: Moment) -> usize {
        if self.paused && !planted::is(Bug::PauseForgotten) {
            return 0;
        }
        let by_running = self.slots(usize::MAX).saturating_sub(running);
        self.rate.as_ref().map_or(by_running, |(_, bucket)| by_running.min(bucket.starts(now)))
    }

    /// A message has started.
    pub(super) fn started(&mut self, now: Moment) {
        if let Some((_, bucket)) = &mut self.rate {
            bucket.take(now);
        }
    }

    /// Takes a start of this key; or says until when the key has to wait.
    pub(super) fn key_waits(&mut self, key: Option<&Bytes>, now: Moment) -> Option<Moment> {
        let keys = self.keys.as_mut().filter(|_| !planted::is(Bug::KeyLimitIgnored))?;
        keys.take(key?, now)
    }

    /// When the rate allows the next start.
    pub(super) fn next_start(&self, now: Moment) -> Option<Moment> {
        self.rate.as_ref().and_then(|(_, bucket)| bucket.next(now))
    }

    // ── how much to take in hand ──

    /// How many of these slots may be used at once.
    pub(super) fn slots(&self, slots: usize) -> usize {
        let granted = |share: &Share| usize::try_from(share.granted()).unwrap_or(usize::MAX);
        self.running.as_ref().map_or(slots, |share| slots.min(granted(share)))
    }

    /// How many more to take in hand, when so many are ready: what the rate allows soon, at least one.
    pub(super) fn room(&self, ready: usize) -> usize {
        match &self.rate {
            None => usize::MAX,
            Some((share, _)) if share.granted() == 0 => 0,
            Some((_, bucket)) => {
                let target = bucket.brings(AHEAD).max(1);
                // In blocks, not one by one.
                if 2 * ready > target { 0 } else { target - ready }
            }
        }
    }
}
