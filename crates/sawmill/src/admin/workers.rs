//! Lists the workers of groups: what they hold, and the notes of their running handlers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sawmill_engine::Result;
use sawmill_engine::model::{GroupName, Lane, Member, RunningMessage, Topic, WorkerId};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{Entry, EntryKey};

use super::Admin;

/// A worker of a group, as its entry in the ledger describes it; see [`Admin::workers`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The worker's id.
    pub id: WorkerId,
    /// The group it is a member of.
    pub group: GroupName,
    /// Its concurrency: how many handlers it can run at once.
    pub concurrency: u32,
    /// The names of the topics it works.
    pub topics: Vec<String>,
    /// How many unsettled messages it holds: running ones, and claimed ones that have not started.
    pub claimed: u64,
    /// When it sent its last heartbeat, by its own clock.
    pub last_heartbeat: Option<Timestamp>,
    /// How long it may be silent before others declare it dead.
    pub ttl: Duration,
    /// The running messages whose handlers have [noted](crate::handler::Context::note) their progress.
    pub running: Vec<RunningMessage>,
}

impl Admin<'_> {
    /// Lists the workers of a group, each with its claims and progress notes. A worker that died is listed
    /// until another one notices.
    pub async fn workers(self, group: &str) -> Result<Vec<WorkerInfo>> {
        let group: GroupName = group.parse()?;
        self.list_workers(&EntryKey::members(&group)).await
    }

    /// Lists the workers of all groups, by group; see [`workers`](Admin::workers).
    pub async fn all_workers(self) -> Result<Vec<WorkerInfo>> {
        self.list_workers(&EntryKey::all_members()).await
    }

    async fn list_workers(self, prefix: &EntryKey) -> Result<Vec<WorkerInfo>> {
        let mut members = Vec::new();
        for entry in self.store.ledger().list(prefix).await? {
            members.push((
                group_of(&entry)?,
                WorkerId::new(entry.key.last()),
                Member::decode(&entry.key, &entry.value)?,
            ));
        }
        let topics = self.topics().await?;
        let mut worked: BTreeMap<&GroupName, BTreeSet<&str>> = BTreeMap::new();
        for (group, _, member) in &members {
            worked.entry(group).or_default().extend(member.topics.iter().map(String::as_str));
        }
        let mut claimed: BTreeMap<WorkerId, u64> = BTreeMap::new();
        for (group, uids) in worked {
            for topic in topics.iter().filter(|topic| uids.contains(topic.uid.as_str())) {
                self.count_claims(topic, group, &mut claimed).await?;
            }
        }
        let info = |(group, id, member): (GroupName, WorkerId, Member)| WorkerInfo {
            topics: topics
                .iter()
                .filter(|topic| member.topics.contains(&topic.uid))
                .map(|topic| topic.name.to_string())
                .collect(),
            claimed: claimed.get(&id).copied().unwrap_or(0),
            id,
            group,
            concurrency: member.slots,
            last_heartbeat: member.beat_at,
            ttl: Duration::from_millis(member.ttl_ms),
            running: member.running,
        };
        Ok(members.into_iter().map(info).collect())
    }

    /// Adds how many messages each worker of a group holds, of a topic and of its retry lane.
    async fn count_claims(
        self,
        topic: &Topic,
        group: &GroupName,
        claimed: &mut BTreeMap<WorkerId, u64>,
    ) -> Result<()> {
        let lane = self.store.log().topic(&topic.name.lane(group, Lane::Retry)).await?;
        for topic in std::iter::once(topic).chain(&lane) {
            for claim in self.store.shard_states(topic, group).await?.iter().flat_map(|state| &state.claims) {
                if let Some(owner) = &claim.owner {
                    *claimed.entry(owner.clone()).or_default() += claim.open();
                }
            }
        }
        Ok(())
    }
}

/// The group of a member entry.
fn group_of(entry: &Entry) -> Result<GroupName> {
    entry.key.as_str().split('/').nth(1).unwrap_or_default().parse()
}
