//! Seeking: a person moves a group's cursors, to have messages handled again or to skip them.

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::EntryKey;
use crate::log::Position;
use crate::message::MessageId;
use crate::mill::Sawmill;
use crate::observe::{TARGET, event};
use crate::planted::{self, Bug};
use crate::topic::{GroupName, Topic};
use crate::unique;

/// From where on a group is to handle messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// From the first message that is still in the log.
    Start,
    /// From the first message that was pushed at this time or later.
    Time(Timestamp),
    /// From this message on: it and what follows it in its shard; in the other shards what was pushed at the same time or
    /// later.
    Id(MessageId),
    /// What is pushed from now on: all that waits is skipped.
    Now,
}

impl Sawmill {
    /// Has a group handle messages from a place on, again or for the first time; what lies before is skipped.
    ///
    /// The group may be at work: what its workers have in hand is finished, and shard by shard they go on from the new
    /// place. Retries that wait, messages that are not due, and dead letters stay as they are. A message that was trimmed
    /// does not come back. The names of [unique](crate::Push::unique) messages are free as far as this group is concerned: of
    /// those that it skips it would never give them back. A group that delivers at most once starts messages again by this.
    ///
    /// ```
    /// use sawmill::{Context, Sawmill, Since};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("orders").await?;
    /// # mill.push("orders", "one").await?;
    /// let worker = mill.worker("orders").group("totals").start(|_order: Context| async {}).await?;
    /// worker.drained().await;
    ///
    /// // The totals were wrong: compute them anew.
    /// mill.seek("orders", "totals", Since::Start).await?;
    /// worker.drained().await;
    /// assert_eq!(worker.stop().await.done, 2);
    /// # Ok(()) }
    /// ```
    pub async fn seek(&self, topic: &str, group: &str, since: Since) -> Result<()> {
        let topic = self.find_topic(topic).await?;
        let group: GroupName = group.parse()?;
        if self.ledger().get(&EntryKey::group(&topic, &group)).await?.is_none() {
            let what =
                format!("topic {} has no group {group}: a group begins with its first worker", topic.name);
            return Err(Error::new(ErrorKind::NotFound, what));
        }
        let places = self.places(&topic, since).await?;
        for (shard, place) in (0..).zip(places) {
            if shard > 0 && shard + 1 == topic.shards && planted::is(Bug::SeekForgetsAShard) {
                continue;
            }
            let key = EntryKey::shard(&topic, &group, shard);
            self.change_shard(&key, |state| state.seek(place.clone()), |state| state.pass).await?;
        }
        unique::settle_all(self, &topic, &group).await?;
        let topic = &topic.name;
        tracing::info!(name: event::SEEK, target: TARGET, %topic, %group, ?since, "sent elsewhere");
        Ok(())
    }

    async fn places(&self, topic: &Topic, since: Since) -> Result<Vec<Position>> {
        match since {
            Since::Start => Ok(vec![Position::default(); usize::from(topic.shards)]),
            Since::Time(_) if planted::is(Bug::SeekTooFar) => {
                self.log().positions(topic, Timestamp::LATEST).await
            }
            Since::Time(time) => self.log().positions(topic, time).await,
            Since::Now => self.log().positions(topic, Timestamp::LATEST).await,
            Since::Id(id) => {
                let found = self.log().find(topic, id).await?;
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
                let mut places = self.log().positions(topic, found.message.created).await?;
                if let Some(place) = places.get_mut(usize::from(found.shard)) {
                    *place = before;
                }
                Ok(places)
            }
        }
    }
}
