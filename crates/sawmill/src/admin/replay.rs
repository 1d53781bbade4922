//! Replay: moves a group's cursors, so that messages are handled again or skipped.

use sawmill_engine::fault;
use sawmill_engine::model::{GroupName, MessageId, Topic};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{EntryKey, Position};
use sawmill_engine::{Error, ErrorKind, Result};

use super::Admin;
use crate::store::cancel::change_shard;
use crate::store::unique;
use crate::telemetry::{TARGET, event};

/// The place from which a group handles messages; see [`Admin::replay`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayFrom {
    /// From the first message that is still in the log.
    Start,
    /// From the first message that was pushed at this time or later.
    Time(Timestamp),
    /// From this message: it and those after it in its shard, and in the other shards those pushed at the
    /// same time or later.
    Id(MessageId),
    /// Only messages pushed from now on: all waiting ones are skipped.
    Now,
}

impl Admin<'_> {
    /// Moves a group to another place in the topic: it handles the messages from there on, again or for the
    /// first time, and skips those before it.
    ///
    /// The group may have running workers: they finish what they hold, and continue from the new place, shard
    /// by shard. Waiting retries, messages that are not due, and dead letters stay as they are. Trimmed
    /// messages do not come back. A group that delivers at most once does start messages again. This group no
    /// longer keeps the names of [unique](crate::Push::unique) messages taken, because it would never release
    /// those of messages that it skips.
    ///
    /// Fails with [`NotFound`](ErrorKind::NotFound) if the topic, the group or the message of
    /// [`ReplayFrom::Id`] does not exist, and with [`Invalid`](ErrorKind::Invalid) if that message is not due
    /// yet.
    ///
    /// ```
    /// use sawmill::{Context, Sawmill};
    /// use sawmill::admin::ReplayFrom;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("orders").await?;
    /// # mill.push("orders", "one").await?;
    /// let worker = mill.worker("orders").group("totals").start(|_order: Context| async {}).await?;
    /// worker.drained().await;
    ///
    /// // The totals were wrong: compute them anew.
    /// mill.admin().replay("orders", "totals", ReplayFrom::Start).await?;
    /// worker.drained().await;
    /// assert_eq!(worker.stop().await.done, 2);
    /// # Ok(()) }
    /// ```
    pub async fn replay(self, topic: &str, group: &str, from: ReplayFrom) -> Result<()> {
        let topic = self.store.find_topic(topic).await?;
        let group: GroupName = group.parse()?;
        if self.store.ledger().get(&EntryKey::group(&topic, &group)).await?.is_none() {
            let what =
                format!("topic {} has no group {group}: a group begins with its first worker", topic.name);
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        let places = self.places(&topic, from).await?;
        for (shard, place) in (0..).zip(places) {
            if shard > 0 && shard + 1 == topic.shards && fault!(SeekForgetsAShard) {
                continue;
            }
            let key = EntryKey::shard(&topic, &group, shard);
            let moved =
                change_shard(self.store, key, |state| state.seek(place.clone()), |state| state.pass).await;
            moved.map_err(|error| {
                let what = format!(
                    "{shard} of {} shards were moved, and the others not: replay again",
                    topic.shards
                );
                Error::new(error.kind(), what).caused_by(error)
            })?;
        }
        unique::release_all(self.store, &topic, &group).await?;
        let topic = &topic.name;
        tracing::info!(name: event::REPLAY, target: TARGET, %topic, %group, ?from, "replayed");
        Ok(())
    }

    async fn places(self, topic: &Topic, from: ReplayFrom) -> Result<Vec<Position>> {
        match from {
            ReplayFrom::Start => Ok(vec![Position::default(); usize::from(topic.shards)]),
            ReplayFrom::Time(time) => self.store.log().positions(topic, time).await,
            ReplayFrom::Now => self.store.log().positions(topic, Timestamp::LATEST).await,
            ReplayFrom::Id(id) => {
                let found = self.store.log().find(topic, id).await?;
                let Some(found) = found else {
                    let what =
                        format!("topic {} has no message {id} (any more): choose a time instead", topic.name);
                    return Err(Error::new(ErrorKind::NotFound, what));
                };
                let Some(before) = found.before else {
                    let what = format!(
                        "message {id} is not due yet, so that it has no place: choose a time instead"
                    );
                    return Err(Error::invalid(what));
                };
                let mut places = self.store.log().positions(topic, found.message.created).await?;
                if let Some(place) = places.get_mut(usize::from(found.shard)) {
                    *place = before;
                }
                Ok(places)
            }
        }
    }
}
