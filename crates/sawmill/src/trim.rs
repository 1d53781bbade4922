//! Keeping the log small: what nobody needs any more is dropped.
//!
//! The rule stands here once; the tender of a topic follows it at intervals, and [`Sawmill::trim`] at once.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::error::Result;
use crate::log::Position;
use crate::mill::Sawmill;
use crate::observe;
use crate::planted::{self, Bug};
use crate::topic::Topic;

impl Sawmill {
    /// Trims a topic and its groups' lanes now, and says how many messages were dropped. Workers do so by themselves, about
    /// once a minute.
    ///
    /// Dropped is what is older than the topic's retention and what every group is past: read, and in no open claim. A topic
    /// that no group reads is left alone. Only a topic that [drops what is unread](crate::TopicSpec::drops_unread) also loses
    /// what is older than its retention and not read.
    pub async fn trim(&self, topic: &str) -> Result<u64> {
        let topic = self.find_topic(topic).await?;
        let mut dropped = 0;
        for other in self.log().topics().await? {
            if other.name.base() == topic.name.base() {
                dropped += self.trim_one(&other).await?;
            }
        }
        Ok(dropped)
    }

    /// Trims one topic, or one lane.
    pub(crate) async fn trim_one(&self, topic: &Topic) -> Result<u64> {
        if planted::is(Bug::TrimsNothing) {
            return Ok(0);
        }
        let young = planted::is(Bug::TrimIgnoresRetention);
        let before = self.env().wall() - if young { Duration::ZERO } else { topic.retention };
        let groups = self.groups_of(topic).await?;
        let mut dropped = 0;
        if !groups.is_empty() {
            let mut needed: Vec<Vec<Position>> = vec![Vec::new(); usize::from(topic.shards)];
            for group in &groups {
                let states = self.shard_states(topic, group).await?;
                for (needed, state) in needed.iter_mut().zip(states) {
                    match planted::is(Bug::TrimsClaimed) {
                        true => needed.push(state.cursor.clone()),
                        false => needed.extend(state.needed_from().cloned()),
                    }
                }
            }
            // Nothing lies before the beginning. But the engine must know that all of such a shard is needed: what lies in
            // several shards it may keep, and drop, together.
            for needed in &mut needed {
                if needed.contains(&Position::default()) {
                    needed.clear();
                }
            }
            dropped += self.trim_upto(topic, &needed, before).await?;
        }
        if topic.drops_unread {
            // What all groups are past is gone by now: these somebody has not read, or has not finished.
            let ends = self.log().positions(topic, Timestamp::LATEST).await?;
            let ends: Vec<Vec<Position>> = ends.into_iter().map(|end| vec![end]).collect();
            let unread = self.trim_upto(topic, &ends, before).await?;
            if unread > 0 && !groups.is_empty() {
                tracing::warn!(topic = %topic.name, unread, "dropped messages that were too old and not read");
            }
            dropped += unread;
        }
        Ok(dropped)
    }

    async fn trim_upto(&self, topic: &Topic, upto: &[Vec<Position>], before: Timestamp) -> Result<u64> {
        if upto.iter().all(Vec::is_empty) {
            return Ok(0);
        }
        let dropped = self.log().trim(topic, upto, before).await?;
        for (shard, dropped) in dropped.iter().enumerate() {
            observe::trimmed(topic, shard, *dropped);
        }
        Ok(dropped.iter().sum())
    }
}
