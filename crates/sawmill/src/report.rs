//! Are we behind? Two looks at where every group stands, and what they say together.

use std::time::Duration;

use serde::Serialize;

use crate::clock::{Moment, Timestamp};
use crate::crew::MemberInfo;
use crate::error::{ErrorKind, Result};
use crate::mill::Sawmill;
use crate::status::GroupStatus;
use crate::verdict::{Outlook, Rates, Sample, Verdict, judge};

/// The group that a topic without groups is judged as: whichever comes first has all of it before it.
const FIRST: &str = "default";

/// Where a group stood at one moment; made by [`Sawmill::look`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Look {
    /// The topic.
    pub topic: String,
    /// The group; `None` for a topic that has none yet.
    pub group: Option<String>,
    /// Where it stood.
    pub status: GroupStatus,
    /// Its workers on this topic.
    pub workers: u64,
    /// How many messages they can run at once, together.
    pub slots: u64,
    at: Moment,
    wall: Timestamp,
}

/// What there is to say of a group: where it stands, how fast it goes, and a verdict. Serialized, its fields are those that
/// `sawmill status --json` prints.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GroupReport {
    /// The topic.
    pub topic: String,
    /// The group; `None` for a topic that has none yet.
    pub group: Option<String>,
    /// Messages that are due and not handed out.
    pub waiting: u64,
    /// When the oldest of them was pushed, as RFC 3339 writes it.
    pub oldest_at: Option<String>,
    /// How long ago that is.
    pub oldest_seconds: Option<f64>,
    /// Messages that are not due yet.
    pub scheduled: u64,
    /// Messages in the hands of workers.
    pub claimed: u64,
    /// Messages that failed and are tried again.
    pub retrying: u64,
    /// Messages that are done.
    pub done: u64,
    /// Dead letters.
    pub dead: u64,
    /// Messages that were dropped.
    pub dropped: u64,
    /// Messages that a person has cancelled.
    pub cancelled: u64,
    /// Workers of the group on this topic.
    pub workers: u64,
    /// How many messages they can run at once, together.
    pub slots: u64,
    /// Whether the group is paused.
    pub paused: bool,
    /// Messages that were finished between the two looks; `None` after one look.
    pub finished_per_second: Option<f64>,
    /// By how much more waited at the second look, negative if fewer; `None` after one look.
    pub growth_per_second: Option<f64>,
    /// `idle`, `keeping-up`, `behind`, `paused`, `no-workers` or `no-groups`.
    pub verdict: &'static str,
    /// The verdict in words.
    pub detail: String,
    /// If it is behind and catches up: how long that takes at this rate.
    pub done_in_seconds: Option<f64>,
    /// If it is behind and does not: how many more workers would do.
    pub more_workers: Option<u64>,
}

impl Sawmill {
    /// Looks at where every group of every topic stands, or of one topic. Two looks make a [report](Look::report) with rates.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// mill.push("emails", "Hello").await?;
    /// let look = &mill.look(Some("emails")).await?[0];
    /// assert_eq!(look.report(None).detail, "no groups yet; 1 message waits");
    /// # Ok(()) }
    /// ```
    pub async fn look(&self, only: Option<&str>) -> Result<Vec<Look>> {
        let members = self.all_members().await?;
        let names = match only {
            Some(name) => vec![self.find_topic(name).await?.name.to_string()],
            None => self.topics().await?.iter().map(|topic| topic.name.to_string()).collect(),
        };
        let mut looks = Vec::new();
        for name in names {
            let groups = match self.groups(&name).await {
                // Deleted since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound && only.is_none() => continue,
                groups => groups?,
            };
            if groups.is_empty() {
                looks.push(self.look_at(&name, None, &members).await?);
            }
            for group in groups {
                looks.push(self.look_at(&name, Some(group.to_string()), &members).await?);
            }
        }
        Ok(looks)
    }

    async fn look_at(&self, topic: &str, group: Option<String>, members: &[MemberInfo]) -> Result<Look> {
        let status = self.status(topic, group.as_deref().unwrap_or(FIRST)).await?;
        let works = |member: &&MemberInfo| {
            Some(member.group.to_string()) == group && member.topics.iter().any(|name| name == topic)
        };
        let workers: Vec<&MemberInfo> = members.iter().filter(works).collect();
        Ok(Look {
            topic: topic.to_owned(),
            workers: workers.len() as u64,
            slots: workers.iter().map(|worker| u64::from(worker.slots)).sum(),
            group,
            status,
            at: self.env().now(),
            wall: self.env().wall(),
        })
    }
}

impl Look {
    /// What is to be said of each group, beside what it was before, if it was there.
    pub fn reports(now: &[Look], before: &[Look]) -> Vec<GroupReport> {
        let earlier = |look: &Look| before.iter().find(|other| look.is_at_the_same(other));
        now.iter().map(|look| look.report(earlier(look))).collect()
    }

    fn is_at_the_same(&self, other: &Look) -> bool {
        (&self.topic, &self.group) == (&other.topic, &other.group)
    }

    /// What is to be said, given an earlier look at the same group.
    pub fn report(&self, before: Option<&Look>) -> GroupReport {
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
            slots: self.slots,
            paused: status.paused,
            finished_per_second: rates.map(|rates| rates.finished),
            growth_per_second: rates.map(|rates| rates.growth),
            verdict: verdict.name(),
            detail: verdict.to_string(),
            done_in_seconds: done_in,
            more_workers,
        }
    }

    /// How long ago it was, at this moment.
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
