//! The gate of a topic decides whether its next message may start. It is closed while the group is paused,
//! and open as far as the group's limits allow.

use std::time::Duration;

use bytes::Bytes;
use sawmill_engine::fault;
use sawmill_engine::model::{InUse, Limit};
use sawmill_engine::runtime::Moment;

use crate::worker::inflight::rate_bucket::{KeyRates, RateBucket};
use crate::worker::inflight::share::{Share, fair_part};

/// Messages of a rate-limited topic are claimed this far ahead.
const AHEAD: Duration = Duration::from_millis(200);

/// The gate of one topic.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    paused: bool,
    /// The most workers that share the limits.
    workers: usize,
    running: Option<Share>,
    rate: Option<(Share, RateBucket)>,
    keys: Option<KeyRates>,
}

/// The state of a topic as a refresh found it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TopicView {
    pub(crate) paused: bool,
    /// The rank of this worker among the members that work the topic; `None` if it is not one of them.
    pub(crate) rank: Option<usize>,
    /// How many members work the topic.
    pub(crate) members: usize,
    /// The known content of this worker's entry when the refresh began.
    pub(crate) said: InUse,
    /// The sum of what the entries of the others say.
    pub(crate) others: InUse,
}

impl Gate {
    pub(crate) fn new(limit: Option<Limit>, per_key: Option<Limit>) -> Self {
        Self {
            paused: false,
            workers: limit.map_or(usize::MAX, |limit| limit.workers()),
            running: limit.and_then(|limit| limit.max_running()).map(Share::new),
            rate: limit
                .and_then(|limit| limit.max_starts())
                .map(|rate| (Share::new(rate), RateBucket::dry())),
            keys: per_key.and_then(|limit| limit.max_starts()).map(KeyRates::new),
        }
    }

    // ── the share of this worker ──

    /// Gives up all shares: this worker is no longer a member.
    pub(crate) fn forget(&mut self) {
        self.shares().for_each(|(share, _)| share.forget());
    }

    /// Returns what the member entry should say while this many handlers run.
    pub(crate) fn holds(&self, running: usize) -> InUse {
        InUse {
            running: self.running.as_ref().map_or(0, |share| share.holds(running as u64)),
            rate: self.rate.as_ref().map_or(0, |(share, _)| share.holds(0)),
        }
    }

    /// Returns what the member entry is known to say.
    pub(crate) fn said(&self) -> InUse {
        InUse {
            running: self.running.as_ref().map_or(0, Share::said),
            rate: self.rate.as_ref().map_or(0, |(share, _)| share.said()),
        }
    }

    /// Notes that a heartbeat is being sent that says this.
    pub(crate) fn saying(&mut self, holds: InUse) {
        self.shares().for_each(|(share, part)| share.saying(part(holds)));
    }

    /// Notes that the heartbeat was acknowledged. True if a refresh may now grant more.
    pub(crate) fn acknowledged(&mut self, holds: InUse) -> bool {
        self.shares().fold(false, |more, (share, part)| share.acknowledged(part(holds)) | more)
    }

    fn shares(&mut self) -> impl Iterator<Item = (&mut Share, fn(InUse) -> u64)> {
        let running = self.running.iter_mut().map(|share| (share, (|of| of.running) as fn(InUse) -> u64));
        let rate = self.rate.iter_mut().map(|(share, _)| (share, (|of| of.rate) as fn(InUse) -> u64));
        running.chain(rate)
    }

    /// Applies what a refresh has found.
    pub(crate) fn see(&mut self, view: &TopicView, now: Moment) {
        self.paused = view.paused;
        let members = view.members.min(self.workers);
        if let Some(share) = &mut self.running {
            share.see(fair_part(share.limit(), view.rank, members), view.said.running, view.others.running);
        }
        if let Some((share, bucket)) = &mut self.rate {
            share.see(fair_part(share.limit(), view.rank, members), view.said.rate, view.others.rate);
            let granted = share.granted();
            bucket.set_rate(if fault!(RateTooHigh) { granted * 3 / 2 } else { granted }, now);
        }
    }

    // ── starting messages ──

    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    /// True if other workers have all of the limit: they must run the messages that this worker has in hand.
    pub(crate) fn is_taken_by_others(&self) -> bool {
        self.running.as_ref().is_some_and(Share::is_nothing)
            || self.rate.as_ref().is_some_and(|(share, _)| share.is_nothing())
    }

    /// True if a later refresh may allow this worker to start more.
    pub(crate) fn is_held_up(&self) -> bool {
        let wants = |share: &Share| share.granted() < share.holds(0);
        self.paused
            || self.running.as_ref().is_some_and(wants)
            || self.rate.as_ref().is_some_and(|(share, _)| wants(share))
    }

    /// Returns how many messages may start now while this many run.
    pub(crate) fn permits(&self, running: usize, now: Moment) -> usize {
        if self.paused && !fault!(PauseForgotten) {
            return 0;
        }
        let by_running = self.slots(usize::MAX).saturating_sub(running);
        self.rate.as_ref().map_or(by_running, |(_, bucket)| by_running.min(bucket.starts(now)))
    }

    /// Notes that a message has started.
    pub(crate) fn started(&mut self, now: Moment) {
        if let Some((_, bucket)) = &mut self.rate {
            bucket.take(now);
        }
    }

    /// Takes one start from this key's rate. Returns until when the key must wait if there is none.
    pub(crate) fn key_waits(&mut self, key: Option<&Bytes>, now: Moment) -> Option<Moment> {
        let keys = self.keys.as_mut().filter(|_| !fault!(KeyLimitIgnored))?;
        keys.take(key?, now)
    }

    /// Returns when the rate allows the next start.
    pub(crate) fn next_start(&self, now: Moment) -> Option<Moment> {
        self.rate.as_ref().and_then(|(_, bucket)| bucket.next(now))
    }

    // ── capacity ──

    /// Returns how many of these slots may be used at once.
    pub(crate) fn slots(&self, slots: usize) -> usize {
        let granted = |share: &Share| usize::try_from(share.granted()).unwrap_or(usize::MAX);
        self.running.as_ref().map_or(slots, |share| slots.min(granted(share)))
    }

    /// Returns how many more messages to claim when this many are ready: as many as the rate allows soon, at
    /// least one.
    pub(crate) fn capacity(&self, ready: usize) -> usize {
        match &self.rate {
            None => usize::MAX,
            Some((share, _)) if share.granted() == 0 => 0,
            Some((_, bucket)) => {
                let target = bucket.brings(AHEAD).max(1);
                // Messages are claimed in blocks, not one by one.
                if 2 * ready > target { 0 } else { target - ready }
            }
        }
    }
}
