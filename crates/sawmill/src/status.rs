//! Where a group stands: how much waits, is claimed, is retried, is done, is dead.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::mill::Sawmill;
use crate::shard::{ShardState, Tally};
use crate::topic::{GroupName, Lane, Topic};

/// Where a group of a topic stands. Every message pushed is in exactly one of these counts, once nothing moves, unless the
/// group was [sent elsewhere](Sawmill::seek): what is handled again is counted again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupStatus {
    /// Readable, and not handed out.
    pub waiting: u64,
    /// Not due yet.
    pub scheduled: u64,
    /// Handed out to a worker, and not settled. What a worker gave back is among them until another takes it.
    pub claimed: u64,
    /// Failed, and waiting for the next attempt or in the middle of it.
    pub retrying: u64,
    /// Done.
    pub done: u64,
    /// On the dead-letter lane.
    pub dead: u64,
    /// Dropped: by a person, or because the group only logs what it gives up.
    pub dropped: u64,
    /// Cancelled by a person.
    pub cancelled: u64,
    /// When the oldest waiting message was pushed.
    pub oldest: Option<Timestamp>,
    /// The group is [paused](Sawmill::pause): its workers start nothing.
    pub paused: bool,
}

impl GroupStatus {
    /// How far the group is behind at this time: the age of the oldest message that waits; zero if none does.
    pub fn lag(&self, now: Timestamp) -> Duration {
        self.oldest.map_or(Duration::ZERO, |oldest| now.since(oldest))
    }
}

impl Sawmill {
    /// The groups of a topic, by name: those that have had a worker, and those that were paused before their first one.
    pub async fn groups(&self, topic: &str) -> Result<Vec<GroupName>> {
        let topic = self.find_topic(topic).await?;
        let mut groups = self.groups_of(&topic).await?;
        groups.extend(self.paused_groups(&topic).await?);
        groups.sort();
        groups.dedup();
        Ok(groups)
    }

    /// Where a group of a topic stands. One that has not begun has the whole topic before it.
    pub async fn status(&self, topic: &str, group: &str) -> Result<GroupStatus> {
        let topic = self.find_topic(topic).await?;
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
            paused: self.is_paused(&topic, &group).await?,
            ..GroupStatus::default()
        };
        if let Some(lane) = self.log().topic(&topic.name.lane(&group, Lane::Retry)).await? {
            let retry = self.count(&lane, &group).await?;
            status.retrying = retry.waiting + retry.scheduled + retry.claimed;
            status.done += retry.tally.done;
            status.dropped += retry.tally.dropped;
            status.cancelled += retry.tally.cancelled;
        }
        if let Some(lane) = self.log().topic(&topic.name.lane(&group, Lane::Dead)).await? {
            let dead = self.count(&lane, &crate::dead::readers()?).await?;
            status.dead = dead.waiting + dead.claimed;
            status.dropped += dead.tally.dropped;
        }
        Ok(status)
    }

    async fn count(&self, topic: &Topic, group: &GroupName) -> Result<Count> {
        let states = self.shard_states(topic, group).await?;
        let after: Vec<_> = (0..).zip(&states).map(|(shard, state)| (shard, state.cursor.clone())).collect();
        let backlog = self.log().backlog(topic, &after).await?;
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
