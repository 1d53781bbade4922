//! The status of a group: how many messages wait, are claimed, are retried, are done, are dead.

use std::time::Duration;

use sawmill_engine::Result;
use sawmill_engine::model::{GroupName, Lane, ShardState, Tally, Topic};
use sawmill_engine::runtime::Timestamp;

use super::Admin;
use crate::store::{dead_letter_readers, pause};

/// The message counts of a group of a topic; see [`Admin::status`]. While nothing changes, every pushed
/// message is in exactly one of the counts. After a [replay](Admin::replay), messages that are handled again
/// are counted again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// Due, and not claimed.
    pub waiting: u64,
    /// Not due yet.
    pub scheduled: u64,
    /// Claimed by a worker, and not settled. Claims that a worker gave back count until another worker takes
    /// them.
    pub claimed: u64,
    /// Failed, and waiting for the next attempt or in it.
    pub retrying: u64,
    /// Done.
    pub done: u64,
    /// On the dead-letter lane.
    pub dead: u64,
    /// Dropped by an operator, or because the group only logs what it gives up.
    pub dropped: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// When the oldest waiting message was pushed.
    pub oldest: Option<Timestamp>,
    /// True if the group is [paused](Admin::pause).
    pub paused: bool,
}

impl GroupStatus {
    /// Returns the age of the oldest waiting message at this time; zero if none waits.
    pub fn lag(&self, now: Timestamp) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
    }
}

impl Admin<'_> {
    /// Lists the groups of a topic, by name: those that have had a worker, and those that were paused before
    /// their first.
    pub async fn groups(self, topic: &str) -> Result<Vec<GroupName>> {
        let topic = self.store.find_topic(topic).await?;
        let mut groups = self.store.groups_of(&topic).await?;
        groups.extend(pause::paused_groups(self.store, &topic).await?);
        groups.sort();
        groups.dedup();
        Ok(groups)
    }

    /// Returns the message counts of a group. For a group that has had no worker yet, the whole topic waits.
    /// Fails with [`NotFound`](crate::ErrorKind::NotFound) if the topic does not exist.
    pub async fn status(self, topic: &str, group: &str) -> Result<GroupStatus> {
        let topic = self.store.find_topic(topic).await?;
        let group: GroupName = group.parse()?;
        let own = self.count(&topic, &group).await?;
        let mut status = GroupStatus {
            waiting: own.waiting,
            scheduled: own.scheduled,
            claimed: own.claimed,
            done: own.tally.done,
            dropped: own.tally.dropped,
            cancelled: own.tally.cancelled,
            oldest: own.oldest,
            paused: pause::is_paused(self.store, &topic, &group).await?,
            ..GroupStatus::default()
        };
        if let Some(lane) = self.store.log().topic(&topic.name.lane(&group, Lane::Retry)).await? {
            let retry = self.count(&lane, &group).await?;
            status.retrying = retry.waiting + retry.scheduled + retry.claimed;
            status.done += retry.tally.done;
            status.dropped += retry.tally.dropped;
            status.cancelled += retry.tally.cancelled;
        }
        if let Some(lane) = self.store.log().topic(&topic.name.lane(&group, Lane::Dead)).await? {
            let dead = self.count(&lane, &dead_letter_readers()?).await?;
            status.dead = dead.waiting + dead.claimed;
            status.dropped += dead.tally.dropped;
        }
        Ok(status)
    }

    async fn count(self, topic: &Topic, group: &GroupName) -> Result<Count> {
        let states = self.store.shard_states(topic, group).await?;
        let after: Vec<_> = (0..).zip(&states).map(|(shard, state)| (shard, state.cursor.clone())).collect();
        let backlog = self.store.log().backlog(topic, &after).await?;
        let mut tally = Tally::default();
        for state in &states {
            tally += state.tally;
        }
        Ok(Count {
            waiting: backlog.ready.iter().sum(),
            scheduled: backlog.aside,
            claimed: states.iter().map(ShardState::claimed).sum(),
            tally,
            oldest: backlog.oldest,
        })
    }
}

struct Count {
    waiting: u64,
    scheduled: u64,
    claimed: u64,
    tally: Tally,
    oldest: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lag_is_the_age_of_what_waits_longest() {
        let mut status = GroupStatus::default();
        assert_eq!(status.lag(Timestamp::from_millis(9)), Duration::ZERO);
        status.oldest = Some(Timestamp::from_millis(2));
        assert_eq!(status.lag(Timestamp::from_millis(9)), Duration::from_millis(7));
        assert_eq!(status.lag(Timestamp::from_millis(1)), Duration::ZERO, "a clock that is behind");
    }
}
