//! Pushing: checks messages, reserves the names of unique ones, spreads them over the shards, and appends
//! them.

use sawmill_engine::fault;
use sawmill_engine::model::{Message, MessageId, Push, Topic, TopicName, Unique};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::Record;
use sawmill_engine::{Error, ErrorKind, Result};

use super::{Store, unique};

/// A message that has passed every check and can be appended.
#[derive(Clone)]
pub(crate) struct CheckedPush {
    pub(crate) message: Message,
    pub(crate) unique: Option<Unique>,
    /// The message may have been appended before, under the same id.
    pub(crate) repeated: bool,
}

impl Store {
    /// Makes a message with this id, checked against all limits. Fails if it cannot be appended.
    pub(crate) fn check(&self, mut push: Push, id: MessageId, now: Timestamp) -> Result<CheckedPush> {
        let (unique, followed) = (push.unique.take(), push.id);
        if unique.is_some() && followed.is_some() {
            return Err(Error::invalid(
                "a message that follows another is added once as it is: leave out that it is to be unique",
            ));
        }
        let mut message = push.into_message(followed.unwrap_or(id), now)?;
        if let Some(unique) = &unique {
            unique.mark(&mut message)?;
        }
        #[cfg(feature = "otel")]
        crate::telemetry::otel::carry(&mut message.headers);
        self.log().capabilities().check(&message)?;
        if followed.is_some() && fault!(FollowerIdRandom) {
            message.id = id;
        }
        Ok(CheckedPush { message, unique, repeated: followed.is_some() })
    }

    /// Appends messages, and returns the id of each. A unique message whose name is taken gets the id of the
    /// present one.
    pub(crate) async fn append(
        &self,
        name: &TopicName,
        messages: Vec<CheckedPush>,
    ) -> Result<Vec<MessageId>> {
        let topic = self.find_cached(name).await?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        match self.append_to(&topic, messages.clone()).await {
            // The topic may have been deleted and created anew since it was cached.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let topic = self.find(name).await?;
                self.append_to(&topic, messages).await
            }
            answer => answer,
        }
    }

    async fn append_to(&self, topic: &Topic, mut messages: Vec<CheckedPush>) -> Result<Vec<MessageId>> {
        let there = match messages.iter().any(|checked| checked.unique.is_some()) {
            true => unique::reserve(self, topic, &mut messages).await?,
            false => Vec::new(),
        };
        let is_there = |nth: usize| there.get(nth).copied().unwrap_or(false);
        let ids: Vec<MessageId> = messages.iter().map(|checked| checked.message.id).collect();
        let mut reserved: Vec<(String, MessageId)> = Vec::new();
        let (first, count) = (self.next_shard(), messages.len());
        let mut records = Vec::with_capacity(count);
        for (nth, CheckedPush { message, unique, repeated }) in messages.into_iter().enumerate() {
            match (unique, &message.key) {
                (Some(_), _) if is_there(nth) => {}
                (Some(unique), _) => {
                    reserved.push((unique.name, message.id));
                    records.push(Record::repeatable_in(self.log(), topic, message));
                }
                (None, _) if repeated => {
                    records.push(Record::repeatable_in(self.log(), topic, message));
                }
                (None, Some(key)) => {
                    records.push(Record::once(self.log().shard_of(key, topic.shards), message));
                }
                (None, None) => {
                    records.push(Record::once(keyless_shard(first, nth, count, topic.shards), message));
                }
            }
        }
        if !records.is_empty() {
            let pushed: Vec<MessageId> = records.iter().map(|record| record.message.id).collect();
            self.log().append(topic, self.env().wall(), records).await?;
            self.telemetry().pushed(&topic.name, &pushed);
        }
        if !reserved.is_empty() {
            unique::confirm(self, topic, &reserved).await;
        }
        Ok(ids)
    }
}

/// The minimum number of consecutive messages that a large push puts into one shard.
const LONG_RUN: usize = 250;

/// Chooses the shard of the `nth` message without a key of a push.
///
/// Such messages are spread over the shards in runs, and each push begins at the next shard. A run is read
/// and claimed as a block, and a large push has work for many workers. A very large push makes fewer and
/// longer runs, which cost less to store than many short ones.
fn keyless_shard(first: usize, nth: usize, count: usize, shards: u16) -> u16 {
    let least = if count < 2 * LONG_RUN { 1 } else { LONG_RUN };
    let run = count.div_ceil(usize::from(shards)).max(least);
    (first.wrapping_add(nth / run) % usize::from(shards)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyless_messages_spread_in_runs() {
        let shards: Vec<u16> = (0..8).map(|nth| keyless_shard(1, nth, 8, 4)).collect();
        assert_eq!(shards, [1, 1, 2, 2, 3, 3, 0, 0]);
        assert_eq!(keyless_shard(usize::MAX, 3, 4, 4), (usize::MAX.wrapping_add(3) % 4) as u16);
        assert!((0..5).all(|nth| keyless_shard(7, nth, 5, 1) == 0));
        let shards: Vec<u16> = (0..1000).map(|nth| keyless_shard(14, nth, 1000, 16)).collect();
        assert_eq!(shards.iter().step_by(250).collect::<Vec<_>>(), [&14, &15, &0, &1], "in long runs");
        assert!(shards.chunk_by(|a, b| a == b).all(|run| run.len() == 250));
    }
}
