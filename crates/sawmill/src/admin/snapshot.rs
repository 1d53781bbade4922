//! Snapshots of all groups, and the report that two of them give: does the group keep up?

use std::time::Duration;

use sawmill_engine::runtime::{Moment, Timestamp};
use sawmill_engine::{ErrorKind, Result};
use serde::Serialize;

use super::Admin;
use super::health::{Outlook, Rates, Sample, Verdict, judge};
use crate::admin::{GroupStatus, WorkerInfo};

/// The group whose status stands for a topic without groups. Any new group has the whole topic before it.
const FIRST_GROUP: &str = "default";

/// The status of a group at one moment; returned by [`Admin::snapshot`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GroupSnapshot {
    /// The topic.
    pub topic: String,
    /// The group; `None` for a topic that has none yet.
    pub group: Option<String>,
    /// The message counts.
    pub status: GroupStatus,
    /// The number of the group's workers on this topic.
    pub workers: u64,
    /// The concurrency of these workers together: how many handlers they can run at once.
    pub concurrency: u64,
    at: Moment,
    wall: Timestamp,
}

/// The counts of a group, its rates, and a verdict on whether it keeps up; made by [`GroupSnapshot::report`].
/// Serialized, it has the fields that `sawmill status --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupReport {
    /// The topic.
    pub topic: String,
    /// The group; `None` for a topic that has none yet.
    pub group: Option<String>,
    /// Messages that are due and not claimed.
    pub waiting: u64,
    /// When the oldest waiting message was pushed, in the format of RFC 3339.
    pub oldest_at: Option<String>,
    /// The age of the oldest waiting message.
    pub oldest_seconds: Option<f64>,
    /// Messages that are not due yet.
    pub scheduled: u64,
    /// Messages held by workers.
    pub claimed: u64,
    /// Messages that failed and are to be retried.
    pub retrying: u64,
    /// Messages that are done.
    pub done: u64,
    /// Dead letters.
    pub dead: u64,
    /// Messages that were dropped.
    pub dropped: u64,
    /// Messages that were cancelled.
    pub cancelled: u64,
    /// Workers of the group on this topic.
    pub workers: u64,
    /// The concurrency of these workers together: how many handlers they can run at once.
    pub concurrency: u64,
    /// True if the group is paused.
    pub paused: bool,
    /// Messages finished between the two snapshots; `None` with one snapshot.
    pub finished_per_second: Option<f64>,
    /// Growth of the waiting messages between the two snapshots, negative if they became fewer; `None` with
    /// one snapshot.
    pub growth_per_second: Option<f64>,
    /// `idle`, `keeping-up`, `behind`, `paused`, `no-workers` or `no-groups`.
    pub verdict: &'static str,
    /// The verdict as a sentence for people.
    pub detail: String,
    /// If the group is behind and catching up: how long that takes at this rate.
    pub done_in_seconds: Option<f64>,
    /// If the group is behind and not catching up: how many more workers it needs.
    pub more_workers: Option<u64>,
}

impl Admin<'_> {
    /// Takes a snapshot of every group, of one topic or of all. Two snapshots make a
    /// [report](GroupSnapshot::report) with rates. Fails with [`NotFound`](ErrorKind::NotFound) if the given
    /// topic does not exist.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// mill.push("emails", "Hello").await?;
    /// let snapshot = &mill.admin().snapshot(Some("emails")).await?[0];
    /// assert_eq!(snapshot.report(None).detail, "no groups yet; 1 message waits");
    /// # Ok(()) }
    /// ```
    pub async fn snapshot(self, only: Option<&str>) -> Result<Vec<GroupSnapshot>> {
        let members = self.all_workers().await?;
        let names = match only {
            Some(name) => vec![self.store.find_topic(name).await?.name.to_string()],
            None => self.topics().await?.iter().map(|topic| topic.name.to_string()).collect(),
        };
        let mut snapshots = Vec::new();
        for name in names {
            let groups = match self.groups(&name).await {
                // Deleted since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound && only.is_none() => continue,
                groups => groups?,
            };
            if groups.is_empty() {
                snapshots.push(self.snapshot_of(&name, None, &members).await?);
            }
            for group in groups {
                snapshots.push(self.snapshot_of(&name, Some(group.to_string()), &members).await?);
            }
        }
        Ok(snapshots)
    }

    async fn snapshot_of(
        self,
        topic: &str,
        group: Option<String>,
        members: &[WorkerInfo],
    ) -> Result<GroupSnapshot> {
        let status = self.status(topic, group.as_deref().unwrap_or(FIRST_GROUP)).await?;
        let works = |member: &&WorkerInfo| {
            Some(member.group.to_string()) == group && member.topics.iter().any(|name| name == topic)
        };
        let workers: Vec<&WorkerInfo> = members.iter().filter(works).collect();
        Ok(GroupSnapshot {
            topic: topic.to_owned(),
            workers: workers.len() as u64,
            concurrency: workers.iter().map(|worker| u64::from(worker.concurrency)).sum(),
            group,
            status,
            at: self.store.env().now(),
            wall: self.store.env().wall(),
        })
    }
}

impl GroupSnapshot {
    /// Reports on each group of `now`, with rates if `before` has a snapshot of it.
    pub fn reports(now: &[GroupSnapshot], before: &[GroupSnapshot]) -> Vec<GroupReport> {
        let earlier = |snapshot: &GroupSnapshot| before.iter().find(|other| snapshot.is_of_same_group(other));
        now.iter().map(|snapshot| snapshot.report(earlier(snapshot))).collect()
    }

    fn is_of_same_group(&self, other: &GroupSnapshot) -> bool {
        (&self.topic, &self.group) == (&other.topic, &other.group)
    }

    /// Reports on the group: with rates if there is an earlier snapshot of the same group.
    pub fn report(&self, before: Option<&GroupSnapshot>) -> GroupReport {
        let (sample, status) = (self.sample(), &self.status);
        let rates =
            before.and_then(|before| Rates::between(&before.sample(), &sample, self.at.since(before.at)));
        let verdict = match &self.group {
            Some(_) => judge(&sample, rates),
            None => Verdict::NoGroups { waiting: sample.waiting },
        };
        let (done_in, more_workers) = match verdict.outlook() {
            Outlook::DoneIn(time) => (Some(time.as_secs_f64()), None),
            Outlook::Never { more_workers } => (None, Some(more_workers)),
            Outlook::Unknown | Outlook::NothingFinished => (None, None),
        };
        GroupReport {
            topic: self.topic.clone(),
            group: self.group.clone(),
            waiting: status.waiting,
            oldest_at: status.oldest.map(|oldest| oldest.to_string()),
            oldest_seconds: status.oldest.map(|_| sample.oldest.as_secs_f64()),
            scheduled: status.scheduled,
            claimed: status.claimed,
            retrying: status.retrying,
            done: status.done,
            dead: status.dead,
            dropped: status.dropped,
            cancelled: status.cancelled,
            workers: self.workers,
            concurrency: self.concurrency,
            paused: status.paused,
            finished_per_second: rates.map(|rates| rates.finished),
            growth_per_second: rates.map(|rates| rates.growth),
            verdict: verdict.name(),
            detail: verdict.to_string(),
            done_in_seconds: done_in,
            more_workers,
        }
    }

    /// Returns the age of the snapshot at this moment.
    pub fn age(&self, now: Moment) -> Duration {
        now.since(self.at)
    }

    fn sample(&self) -> Sample {
        let status = &self.status;
        Sample {
            waiting: status.waiting,
            oldest: status.lag(self.wall),
            scheduled: status.scheduled,
            claimed: status.claimed,
            retrying: status.retrying,
            finished: status.done + status.dead + status.dropped + status.cancelled,
            workers: self.workers,
            paused: status.paused,
        }
    }
}
