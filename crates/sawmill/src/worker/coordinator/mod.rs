//! The coordinator: one loop that claims blocks, adopts claims of dead workers, reports progress, and gives
//! up shards.
//!
//! Each round settles failed messages, refreshes if it is time, claims as much as there is capacity for, and
//! reports progress. Then it waits for a slot, a notification or its timer. Its parts own their state: the
//! [shard cache](shard_cache), the [membership](membership), the [claiming](claim) of blocks and the schedule
//! of [refreshes](refresh).

mod adopt;
mod claim;
mod commit;
mod leave;
mod membership;
mod recover;
mod refresh;
mod report;
mod settle;
mod shard_cache;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt;
use sawmill_engine::fault;
use sawmill_engine::runtime::Moment;
use sawmill_engine::storage::Notifications;
use sawmill_engine::{ErrorKind, Result};

use super::maintenance::PROMOTE_MOST;
use super::outage::Outage;
use super::topic_notifications::TopicNotifications;
use super::{Delivery, Shared, run as running};
use claim::Claiming;
use leave::leave;
use membership::Membership;
use recover::tidy_journal;
use refresh::{MIN_REFRESH_PAUSE, RefreshSchedule};
use report::report;
use settle::append_lane_copies;
use shard_cache::{Readable, ShardCache};

/// How long a finished claim may stay open in the ledger. Meanwhile another write may take its report along.
const LINGER: Duration = Duration::from_millis(200);
/// The same if a caller waits for the report, or if an unreported message would count as lost.
const SHORT_LINGER: Duration = Duration::from_millis(20);
/// How often progress is reported while a claim is being worked.
const PROGRESS: Duration = Duration::from_millis(500);
/// After this many notifications that led to nothing, each further one is followed by a pause.
const MAX_FRUITLESS_NOTIFICATIONS: u32 = 10;
const NOTIFICATION_PAUSE: Duration = Duration::from_millis(5);
/// The first wait when nothing happens, and the least part of the poll interval that it is. Where
/// notifications are reliable the poll interval is long: there is no hurry to poll for lost ones, and a poll
/// may delay the next message.
const FIRST_WAIT: Duration = Duration::from_millis(20);
const FIRST_WAIT_PART: u32 = 32;

/// Works until the worker is stopped.
pub(super) async fn run(shared: Arc<Shared>) {
    // Also if this task panics: the worker leaves, and others take over.
    let _done = shared.coordinator_done.clone().drop_guard();
    let mut coordinator = Coordinator::new(shared.clone());
    let mut topics =
        TopicNotifications::of(shared.builder.store.log(), shared.topics().iter().map(|topic| &**topic));
    let mut entries = shared.builder.store.ledger().entry_notifications();
    let mut outage = Outage::default();
    while !shared.stop.is_cancelled() {
        let round = coordinator.round().await;
        shared.record_round();
        if round.is_ok() {
            shared.record_recovery(&mut outage);
        }
        match round {
            Ok(true) => {
                coordinator.wait = first_wait(shared.poll);
                coordinator.fruitless_notifications = 0;
                // While one topic has many messages, a topic with priority may get new ones.
                if shared.has_priorities()
                    && let Some(topics) = topics.next().now_or_never()
                {
                    coordinator.cache.recheck_topics(&topics);
                }
            }
            Ok(false) => coordinator.rest(&mut topics, &mut entries).await,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                shared.stop_because(Some(format!("there is nothing left to work: {error}")));
            }
            // Waiting does not help: only a newer program can read this.
            Err(error) if error.kind() == ErrorKind::Outdated => {
                shared.stop_because(Some(error.to_string()));
            }
            Err(error) => {
                // Stay alive and wait until the store can be used again.
                shared.record_outage(&mut outage, &error, "the store cannot be used; waiting until it can");
                coordinator.cache.forget();
                coordinator.refreshes.request_full();
                coordinator.pause().await;
            }
        }
    }
    leave(&mut coordinator.cache).await;
    shared.record_last_round();
}

fn first_wait(poll: Duration) -> Duration {
    FIRST_WAIT.max(poll / FIRST_WAIT_PART)
}

struct Coordinator {
    shared: Arc<Shared>,
    cache: ShardCache,
    membership: Membership,
    claiming: Claiming,
    refreshes: RefreshSchedule,
    /// How many notifications came since messages were last found.
    fruitless_notifications: u32,
    /// The last request to drain that this worker has refreshed for.
    drain: u64,
    /// How long the next idle wait takes.
    wait: Duration,
}

impl Coordinator {
    fn new(shared: Arc<Shared>) -> Self {
        Self {
            cache: ShardCache::new(shared.clone()),
            membership: Membership::default(),
            claiming: Claiming::default(),
            refreshes: RefreshSchedule::default(),
            fruitless_notifications: 0,
            drain: 0,
            wait: first_wait(shared.poll),
            shared,
        }
    }

    /// Does one round. True if it achieved something, so that the next one should follow at once.
    async fn round(&mut self) -> Result<bool> {
        let me = self.shared.inflight().me().cloned();
        if me != self.cache.me {
            self.cache.become_member(me);
            self.refreshes.request_full();
        }
        let Some(me) = self.cache.me.clone() else { return Ok(false) };
        // If a lane cannot be written, everything else goes on.
        let settled = append_lane_copies(&self.shared).await;
        let now = self.shared.env().now();
        let drain = self.shared.drains.load(Ordering::SeqCst);
        let wants_refresh = self.shared.inflight().take_wants_refresh();
        let must_refresh = self.refreshes.is_due(now) || drain > self.drain || wants_refresh;
        if must_refresh {
            if drain > self.drain || wants_refresh {
                self.refreshes.make_full(now);
            }
            if drain > self.drain {
                self.promote_due().await?;
            }
            self.refreshes.refresh(&mut self.cache, &mut self.membership, &me).await?;
            self.drain = drain;
        }
        self.cache.fetch_adopted().await?;
        let refresh_at = self.refreshes.at();
        let claimed = self.claiming.claim(&mut self.cache, self.membership.order(), &me, refresh_at).await?;
        if !must_refresh && self.refreshes.is_possible(now) {
            // A refresh that can wait lets messages go first.
            self.refreshes.refresh(&mut self.cache, &mut self.membership, &me).await?;
        }
        let linger = self.linger();
        report(&mut self.cache, &me, linger).await?;
        tidy_journal(&self.shared);
        running::fill(&self.shared);
        if !claimed && self.is_drained() {
            self.shared.drained.send_replace(self.drain);
        }
        settled.map(|()| claimed)
    }

    /// Promotes messages that are due by now. A drain includes them, even if no worker has maintained the
    /// topic yet.
    async fn promote_due(&self) -> Result<()> {
        let (log, env) = (self.shared.builder.store.log(), self.shared.env());
        for topic in self.shared.topics() {
            loop {
                let now = env.wall();
                let promoted = log.promote(&topic, now, PROMOTE_MOST).await?;
                // An engine may move fewer than requested. It says when the next one is due.
                if promoted.moved == 0 || promoted.next_due.is_none_or(|due| due > now) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn is_drained(&self) -> bool {
        let cache = &self.cache;
        let is_blocked = |index: usize| self.shared.inflight().is_blocked(cache.source(index).topic_index);
        let nothing_left = (0..cache.shards.len()).all(|index| {
            cache.shards[index].readable == Readable::No || is_blocked(index) || !cache.may_claim_from(index)
        });
        let nothing_adopted = cache.adopted.iter().all(|(index, _)| is_blocked(*index));
        nothing_left && nothing_adopted && (fault!(DrainedTooEarly) || self.shared.inflight().is_idle())
    }

    /// How long the report of a finished claim may wait.
    fn linger(&self) -> Duration {
        let awaited = self.shared.drains.load(Ordering::SeqCst) > *self.shared.drained.borrow();
        match awaited || self.shared.builder.delivery == Delivery::AtMostOnce {
            true => SHORT_LINGER,
            false => LINGER,
        }
    }

    // ── waiting ──

    /// Waits for a slot, a notification, or the time of the next thing to do.
    async fn rest(&mut self, topics: &mut TopicNotifications, entries: &mut Notifications) {
        let env = self.shared.env().clone();
        let now = env.now();
        // Idle waits grow up to the interval of refreshes. From then on, some of the refreshes poll for
        // messages.
        let backs_off = self.cache.me.is_none() || self.wait < self.refreshes.interval(&self.shared);
        let idle_until = if backs_off { now + env.rng().jitter(self.wait) } else { self.refreshes.at() };
        let (has_capacity, work_at) = self.next_work(now);
        let mut until = work_at.map_or(idle_until, |at| idle_until.min(at));
        if self.cache.me.is_some() {
            until = until.min(self.refreshes.at().max(now + MIN_REFRESH_PAUSE));
        }
        let shared = self.shared.clone();
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => {}
            () = shared.wake.notified() => {}
            // With every slot taken, notifications can wait; they are not lost meanwhile.
            topics = topics.next(), if has_capacity => {
                // They may be about other topics. If many in a row lead to nothing, a pause precedes each
                // read.
                self.fruitless_notifications = self.fruitless_notifications.saturating_add(1);
                if self.fruitless_notifications > MAX_FRUITLESS_NOTIFICATIONS {
                    env.sleep(NOTIFICATION_PAUSE).await;
                }
                self.cache.recheck_topics(&topics);
            }
            // Another worker may have given back a shard or a share of a limit; the group may have been
            // resumed.
            () = entries.next(), if self.is_kept_out() => self.refreshes.hasten(now + MIN_REFRESH_PAUSE),
            () = env.sleep(until.since(now)) => {
                running::fill(&self.shared);
                if backs_off && env.now() >= idle_until {
                    // Work resets it.
                    self.wait = (self.wait * 2).min(self.shared.poll);
                    if !fault!(HintsOnly) {
                        self.cache.recheck_all();
                    }
                }
            }
        }
    }

    /// Returns whether more messages could be claimed now, and when there is something to settle, report or
    /// start.
    fn next_work(&self, now: Moment) -> (bool, Option<Moment>) {
        let inflight = self.shared.inflight();
        let has_capacity =
            (0..self.shared.builder.topics.len()).any(|topic| inflight.capacity(topic, now) > 0);
        let last_written = inflight.dirty().iter().map(|index| self.cache.shards[*index].written).min();
        let to_write = match last_written {
            _ if inflight.has_settling() => Some(now + SHORT_LINGER),
            // A report that is due and was not written waits for something else, like the next report of
            // progress.
            Some(written) => {
                let due = Some(written + self.linger()).filter(|due| *due > now);
                Some(due.unwrap_or(now + self.linger()))
            }
            None => None,
        };
        (has_capacity, [to_write, inflight.next_wait(now)].into_iter().flatten().min())
    }

    /// Waits without reacting to notifications, longer each time, until something succeeds again.
    async fn pause(&mut self) {
        let env = self.shared.env();
        tokio::select! {
            biased;
            () = self.shared.stop.cancelled() => {}
            () = env.sleep(env.rng().jitter(self.wait)) => {}
        }
        self.wait = (self.wait * 2).min(self.shared.poll);
    }

    /// True if this worker waits for something that others do: give back a shard that the ring now gives to
    /// this worker, leave it a share of a limit, or resume the group.
    fn is_kept_out(&self) -> bool {
        let Some(me) = &self.cache.me else { return false };
        if self.shared.inflight().is_held_up() {
            return true;
        }
        self.cache.shards.iter().zip(&self.shared.sources).any(|(shard, source)| {
            let rules = source.rules;
            shard.preferred && shard.known.as_ref().is_some_and(|(_, state)| !state.may_claim(me, rules))
        })
    }
}
