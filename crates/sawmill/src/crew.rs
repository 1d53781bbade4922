//! Who works in a group, and what they say of the messages they run.

use crate::claim::WorkerId;
use crate::error::Result;
use crate::ledger::EntryKey;
use crate::member::{Member, Running};
use crate::mill::Sawmill;
use crate::topic::GroupName;

/// A worker of a group, as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberInfo {
    /// Its id.
    pub id: WorkerId,
    /// How many handlers it can run at once.
    pub slots: u32,
    /// The names of the topics it works.
    pub topics: Vec<String>,
    /// The messages it runs whose handlers have [noted](crate::Context::note) something.
    pub running: Vec<Running>,
}

impl Sawmill {
    /// The workers of a group that were last seen alive. One that died is among them until somebody notices.
    pub async fn members(&self, group: &str) -> Result<Vec<MemberInfo>> {
        let group: GroupName = group.parse()?;
        let topics = self.topics().await?;
        let mut members = Vec::new();
        for entry in self.ledger().list(&EntryKey::members(&group)).await? {
            let member = Member::decode(&entry)?;
            let works = topics.iter().filter(|topic| member.topics.contains(&topic.uid));
            members.push(MemberInfo {
                id: WorkerId::new(entry.key.last()),
                slots: member.slots,
                topics: works.map(|topic| topic.name.to_string()).collect(),
                running: member.running,
            });
        }
        Ok(members)
    }
}
