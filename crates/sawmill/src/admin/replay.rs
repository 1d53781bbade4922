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
            moved.map_err(|error| interrupted(shard, topic.shards, error))?;
        }
        let released = unique::release_all(self.store, &topic, &group).await;
        released.map_err(|error| interrupted(topic.shards, topic.shards, error))?;
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

/// Returns the error of a replay that stopped after so many shards. If none was moved, nothing was changed.
fn interrupted(moved: u16, shards: u16, error: Error) -> Error {
    let more = match error.kind() {
        ErrorKind::Unknown if moved < shards => ", and perhaps one more",
        _ if moved == 0 => return error,
        _ => "",
    };
    Error::new(error.kind(), format!("{moved} of {shards} shards were moved{more}: replay again"))
        .caused_by(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_replay_says_what_it_has_changed() {
        let said = |moved, kind| interrupted(moved, 4, Error::new(kind, "because")).to_string();
        assert_eq!(said(0, ErrorKind::Unavailable), "because");
        assert_eq!(said(3, ErrorKind::Corrupt), "3 of 4 shards were moved: replay again: because");
        let unknown = "0 of 4 shards were moved, and perhaps one more: replay again: because";
        assert_eq!(said(0, ErrorKind::Unknown), unknown);
        assert_eq!(said(4, ErrorKind::Unknown), "4 of 4 shards were moved: replay again: because");
    }
}
