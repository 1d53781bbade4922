//! Membership: who works in the group, which topics are paused, and which shards this worker prefers.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use sawmill_engine::Result;
use sawmill_engine::model::{InUse, Member, WorkerId, lease, ring};
use sawmill_engine::runtime::Moment;
use sawmill_engine::storage::{Entry, EntryKey};

use super::shard_cache::ShardCache;
use crate::store::pause::is_paused;
use crate::store::{LivenessTracker, remove_silent};
use crate::worker::Shared;
use crate::worker::inflight::gate::TopicView;

/// The group's members as they were last listed.
#[derive(Default)]
pub(crate) struct Membership {
    names: BTreeSet<String>,
    liveness: LivenessTracker,
    /// The shards in the order in which this worker tries them: by topic, preferred ones first.
    order: Vec<usize>,
}

impl Membership {
    /// The ids of the members.
    pub(crate) fn names(&self) -> &BTreeSet<String> {
        &self.names
    }

    /// The shards in the order in which this worker tries them.
    pub(crate) fn order(&self) -> &[usize] {
        &self.order
    }

    /// When the first of the silent members is dead, if it stays silent.
    pub(crate) fn first_death(&self) -> Option<Moment> {
        self.liveness.first_death()
    }

    /// Reads which topics are paused, and lists the members. Declares silent members dead. True if a member
    /// has come or gone.
    pub(crate) async fn refresh(&mut self, cache: &mut ShardCache, me: &WorkerId) -> Result<bool> {
        let shared = cache.shared.clone();
        let began = shared.env().now();
        let members = EntryKey::members(&shared.group);
        // Taken before the members are listed: see `Share`.
        let said = shared.inflight().says();
        let (views, entries) =
            join(read_pauses(&shared, said), shared.builder.store.ledger().list(&members)).await;
        let mut views = views?;
        let changed = self.apply(cache, me, entries?, &mut views).await?;
        confirm(&shared, me, began, &views);
        Ok(changed)
    }

    async fn apply(
        &mut self,
        cache: &mut ShardCache,
        me: &WorkerId,
        mut entries: Vec<Entry>,
        views: &mut [TopicView],
    ) -> Result<bool> {
        let shared = cache.shared.clone();
        let others: Vec<Entry> =
            entries.iter().filter(|entry| entry.key.last() != me.as_str()).cloned().collect();
        let removed =
            remove_silent(&shared.builder.store, &mut self.liveness, &others, shared.builder.ttl).await?;
        entries.retain(|entry| !removed.contains(&entry.key));
        let names: BTreeSet<String> = entries.iter().map(|entry| entry.key.last().to_owned()).collect();
        let changed = names != self.names;
        if changed {
            shared.check_duties.notify_one();
            shared.record_rebalance(me, names.len());
            shared.counts().rebalances += 1;
            self.names = names;
        }
        let mut working = Vec::new();
        for entry in &entries {
            working.push((entry.key.last(), Member::decode(&entry.key, &entry.value)?));
        }
        for (topic, view) in shared.bases().iter().zip(views) {
            let at_work = working.iter().filter(|(_, member)| member.topics.contains(&topic.uid));
            for (place, (name, member)) in at_work.enumerate() {
                view.members += 1;
                match *name == me.as_str() {
                    true => view.rank = Some(place),
                    false => view.others += member.in_use.get(&topic.uid).copied().unwrap_or_default(),
                }
            }
        }
        self.prefer(cache, me, &working);
        Ok(changed)
    }

    /// Computes which shards the ring prefers this worker for.
    fn prefer(&mut self, cache: &mut ShardCache, me: &WorkerId, working: &[(&str, Member)]) {
        let shared = cache.shared.clone();
        // A limited topic is worked by no more workers than can have a share of the limit.
        let most = shared.builder.limit.map_or(usize::MAX, |limit| limit.workers());
        let mut rank = vec![(usize::MAX, false, 0); cache.shards.len()];
        for topic in shared.topics() {
            let works_it = |(_, member): &&(&str, Member)| member.topics.contains(&topic.uid);
            let names: Vec<&str> =
                working.iter().filter(works_it).map(|(name, _)| *name).take(most).collect();
            let preferred =
                if names.is_empty() { Vec::new() } else { ring::preferred(&topic.uid, &names, topic.shards) };
            let wandering = ring::wandering(&topic.uid, me.as_str(), topic.shards);
            for (index, shard) in cache.shards.iter_mut().enumerate() {
                let source = &shared.sources[index];
                if source.topic.uid == topic.uid {
                    let worker = preferred.get(usize::from(source.shard)).map(|nth| names[*nth]);
                    shard.preferred = worker == Some(me.as_str());
                    let wander = wandering.iter().position(|nth| *nth == source.shard).unwrap_or_default();
                    rank[index] = (source.topic_index, !shard.preferred, wander);
                }
            }
        }
        self.order = (0..cache.shards.len()).collect();
        self.order.sort_by_key(|index| rank[*index]);
    }
}

/// Reads which topics are paused, and adds what this worker's entry says of limits.
async fn read_pauses(shared: &Shared, said: Vec<InUse>) -> Result<Vec<TopicView>> {
    let (store, group) = (&shared.builder.store, &shared.group);
    let bases = shared.bases();
    let pauses = join_all(bases.iter().map(|topic| is_paused(store, topic, group))).await;
    let view = |(paused, said): (Result<bool>, InUse)| {
        Ok(TopicView { paused: paused?, said, ..TopicView::default() })
    };
    pauses.into_iter().zip(said).map(view).collect()
}

/// Passes the views on. Like a lease, they are valid from the moment before they were requested.
fn confirm(shared: &Shared, me: &WorkerId, began: Moment, views: &[TopicView]) {
    let mut inflight = shared.inflight();
    if inflight.me() == Some(me) {
        inflight.record_refresh(began + lease(shared.builder.ttl), views, shared.env().now());
        if inflight.wants_heartbeat() {
            shared.heartbeat_now.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sawmill_engine::storage::Write;

    use super::*;
    use crate::handler::Context;
    use crate::testing::TestMill;

    #[tokio::test]
    async fn a_member_that_cannot_be_decoded_holds_the_group_up_for_its_ttl_and_not_for_ever() {
        let kit = TestMill::new();
        kit.push("orders", "x").await;
        let key = EntryKey::member(&"default".parse().unwrap(), "ghost-1");
        let write = Write { key: key.clone(), expect: None, value: Some("{}".into()) };
        kit.store().ledger().commit(write).await.unwrap();
        let ttl = Duration::from_secs(4);
        let worker = kit.wait_for(kit.worker("orders").ttl(ttl).start(|_: Context| async {})).await.unwrap();
        kit.advance(5 * ttl).await;
        let counts = worker.counts();
        assert_eq!((counts.stopped_because, counts.done), (None, 1));
        assert_eq!(kit.store().ledger().get(&key).await.unwrap(), None, "it was declared dead");
        kit.wait_for(worker.stop()).await;
    }
}
