//! Refreshing: reading the members, the claims that dead workers left, and which worker each shard belongs
//! to; and the schedule for this.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use sawmill_engine::Result;
use sawmill_engine::fault;
use sawmill_engine::model::{ShardState, WorkerId, heartbeat_interval};
use sawmill_engine::runtime::Moment;
use sawmill_engine::storage::EntryKey;

use super::adopt::{adopt, close_surrendered, readopt_undone};
use super::membership::Membership;
use super::recover::recover;
use super::shard_cache::ShardCache;
use crate::worker::Shared;

/// The shortest time between two refreshes, whatever notifications come.
pub(crate) const MIN_REFRESH_PAUSE: Duration = Duration::from_millis(100);
/// The longest time between two refreshes: claims of a dead worker must run again soon after its TTL.
const MAX_REFRESH_INTERVAL: Duration = Duration::from_millis(2500);

/// When to refresh.
#[derive(Default)]
pub(crate) struct RefreshSchedule {
    /// From this moment on, a round that takes place anyway also refreshes.
    from: Moment,
    /// At this moment, a round takes place for the refresh.
    at: Moment,
    /// From this moment on, a refresh reads everything, not only the members.
    full_from: Moment,
}

impl RefreshSchedule {
    /// The latest time of the next refresh.
    pub(crate) fn at(&self) -> Moment {
        self.at
    }

    pub(crate) fn is_due(&self, now: Moment) -> bool {
        now >= self.at
    }

    pub(crate) fn is_possible(&self, now: Moment) -> bool {
        now >= self.from
    }

    /// Makes the next refresh a full one, at once.
    pub(crate) fn request_full(&mut self) {
        (self.at, self.full_from) = (Moment::default(), Moment::default());
    }

    /// Makes a refresh at this moment a full one.
    pub(crate) fn make_full(&mut self, now: Moment) {
        self.full_from = now;
    }

    /// Makes the next refresh a full one, at this moment or sooner. Notifications may come all the time, so
    /// they must never delay a refresh.
    pub(crate) fn hasten(&mut self, at: Moment) {
        self.at = self.at.min(at);
        self.full_from = self.at;
    }

    /// How often members are refreshed. Dead members must be found in time, however rarely this worker polls
    /// for messages.
    pub(crate) fn interval(&self, shared: &Shared) -> Duration {
        MAX_REFRESH_INTERVAL.min(shared.poll).min(shared.builder.ttl / 4)
    }

    /// Refreshes the members; and everything, now and then and when a member has come or gone.
    pub(crate) async fn refresh(
        &mut self,
        cache: &mut ShardCache,
        membership: &mut Membership,
        me: &WorkerId,
    ) -> Result<()> {
        let shared = cache.shared.clone();
        let env = shared.env();
        let interval = self.interval(&shared);
        // Messages in hand may have been cancelled, or their claims adopted; and shares of a limit move with
        // the members.
        let involved = shared.inflight().in_hand() > 0 || shared.builder.limit.is_some();
        let is_full = involved || env.now() + interval / 2 >= self.full_from;
        if is_full || membership.refresh(cache, me).await? {
            refresh_all(cache, membership, me).await?;
            let seldom = shared.poll.min(shared.builder.ttl);
            self.full_from = env.now() + env.rng().jitter(seldom);
        }
        let now = env.now();
        self.from = now + interval / 2;
        // A heartbeat wakes the coordinator, and the refresh goes with it. Only if heartbeats are rarer do
        // refreshes have a time of their own.
        let own = match heartbeat_interval(shared.builder.ttl) <= interval {
            true => interval * 5 / 4,
            false => env.rng().jitter(interval),
        };
        self.at = now + own + interval / 4;
        if let Some(death) = membership.first_death() {
            self.at = self.at.min(death.max(now + MIN_REFRESH_PAUSE));
        }
        Ok(())
    }
}

/// Reads the group's entries and its members, declares silent members dead, and takes over claims without a
/// living owner.
async fn refresh_all(cache: &mut ShardCache, membership: &mut Membership, me: &WorkerId) -> Result<()> {
    reload_shards(cache, me).await?;
    cache.refresh_cancellations().await?;
    recover(cache, me).await?;
    // The members are listed after the entries. A worker joins before it claims, so a claim's owner that is
    // not among the members has left or was declared dead.
    let stale = membership.names().clone();
    membership.refresh(cache, me).await?;
    let members = if fault!(StaleMembers) { &stale } else { membership.names() };
    adopt(cache, membership.order(), me, members).await?;
    readopt_undone(cache, me);
    close_surrendered(cache);
    if !fault!(HintsOnly) {
        cache.recheck_all();
    }
    Ok(())
}

/// Reads the entries of all shards.
async fn reload_shards(cache: &mut ShardCache, me: &WorkerId) -> Result<()> {
    let shared = cache.shared.clone();
    let ledger = shared.builder.store.ledger();
    let topics = shared.topics();
    let keys: Vec<EntryKey> = topics.iter().map(|topic| EntryKey::shards(topic, &shared.group)).collect();
    let lists = join_all(keys.iter().map(|key| ledger.list(key))).await;
    for (topic, entries) in topics.into_iter().zip(lists) {
        let entries: BTreeMap<_, _> = entries?.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
        for (index, source) in shared.sources.iter().enumerate() {
            if source.topic.uid != topic.uid {
                continue;
            }
            match entries.get(&source.key) {
                Some(entry) => {
                    let state = shared.builder.store.decode_shard(entry)?;
                    cache.update_shard(index, me, Some(entry.version), state);
                }
                None => cache.update_shard(index, me, None, ShardState::default()),
            }
        }
    }
    Ok(())
}
