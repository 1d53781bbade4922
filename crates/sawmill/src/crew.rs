//! Who works in a group, what they hold, and what they say of the messages they run.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::claim::WorkerId;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::ledger::{Entry, EntryKey};
use crate::member::{Member, Running};
use crate::mill::Sawmill;
use crate::topic::{GroupName, Lane, Topic};

/// A worker of a group, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberInfo {
    /// Its id.
    pub id: WorkerId,
    /// The group it works in.
    pub group: GroupName,
    /// How many handlers it can run at once.
    pub slots: u32,
    /// The names of the topics it works.
    pub topics: Vec<String>,
    /// How many messages it holds that are not settled: those it runs, and those that wait in its hands.
    pub claimed: u64,
    /// When it last said that it is alive, by its own clock.
    pub last_beat: Option<Timestamp>,
    /// How long it may be silent before others declare it dead.
    pub ttl: Duration,
    /// The messages it runs whose handlers have [noted](crate::Context::note) something.
    pub running: Vec<Running>,
}

impl Sawmill {
    /// The workers of a group that were last seen alive. One that died is among them until somebody notices.
    pub async fn members(&self, group: &str) -> Result<Vec<MemberInfo>> {
        let group: GroupName = group.parse()?;
        self.crew(&EntryKey::members(&group)).await
    }

    /// The workers of all groups, by group; see [`members`](Sawmill::members).
    pub async fn all_members(&self) -> Result<Vec<MemberInfo>> {
        self.crew(&EntryKey::all_members()).await
    }

    async fn crew(&self, prefix: &EntryKey) -> Result<Vec<MemberInfo>> {
        let mut crew = Vec::new();
        for entry in self.ledger().list(prefix).await? {
            crew.push((group_of(&entry)?, WorkerId::new(entry.key.last()), Member::decode(&entry)?));
        }
        let topics = self.topics().await?;
        let mut worked: BTreeMap<&GroupName, BTreeSet<&str>> = BTreeMap::new();
        for (group, _, member) in &crew {
            worked.entry(group).or_default().extend(member.topics.iter().map(String::as_str));
        }
        let mut claimed: BTreeMap<WorkerId, u64> = BTreeMap::new();
        for (group, uids) in worked {
            for topic in topics.iter().filter(|topic| uids.contains(topic.uid.as_str())) {
                self.count_claims(topic, group, &mut claimed).await?;
            }
        }
        let info = |(group, id, member): (GroupName, WorkerId, Member)| MemberInfo {
            topics: topics
                .iter()
                .filter(|topic| member.topics.contains(&topic.uid))
                .map(|topic| topic.name.to_string())
                .collect(),
            claimed: claimed.get(&id).copied().unwrap_or(0),
            id,
            group,
            slots: member.slots,
            last_beat: member.beat_at,
            ttl: Duration::from_millis(member.ttl_ms),
            running: member.running,
        };
        Ok(crew.into_iter().map(info).collect())
    }

    /// Adds what each worker of a group holds of a topic and of its retry lane.
    async fn count_claims(
        &self,
        topic: &Topic,
        group: &GroupName,
        claimed: &mut BTreeMap<WorkerId, u64>,
    ) -> Result<()> {
        let lane = self.log().topic(&topic.name.lane(group, Lane::Retry)).await?;
        for topic in std::iter::once(topic).chain(&lane) {
            for claim in self.shard_states(topic, group).await?.iter().flat_map(|state| &state.claims) {
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
