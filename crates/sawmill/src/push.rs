//! Pushing: messages are checked, made unique where that is asked for, spread over the shards, and appended.

use crate::clock::Timestamp;
use crate::error::{Error, ErrorKind, Result};
use crate::log::Record;
use crate::message::{Message, MessageId, Push};
use crate::mill::Sawmill;
use crate::planted::{self, Bug};
use crate::topic::{Topic, TopicName};
use crate::trace::PushSpan;
use crate::unique::{self, Unique};
use crate::worker::base_name;

/// A message that has passed every check and can be appended.
#[derive(Clone)]
pub(crate) struct Checked {
    pub(crate) message: Message,
    pub(crate) unique: Option<Unique>,
    /// It may have been appended before, under the same id.
    pub(crate) repeated: bool,
}

impl Sawmill {
    /// Pushes a message and returns its id. When this returns, the message is durable.
    ///
    /// Those who push many messages one by one, from many tasks, will like a [`Producer`](crate::Producer).
    pub async fn push(&self, topic: &str, message: impl Into<Push>) -> Result<MessageId> {
        let ids = self.push_many(topic, [message]).await?;
        ids.first().copied().ok_or_else(|| Error::invalid("nothing was pushed"))
    }

    /// Pushes messages and returns their ids, in the same order. When this returns, all are durable. If one of them
    /// cannot be pushed at all, none is.
    pub async fn push_many<M: Into<Push>>(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Vec<MessageId>> {
        let name = base_name(topic)?;
        let messages: Vec<Push> = messages.into_iter().map(Into::into).collect();
        let (ids, now) = (self.new_ids(messages.len()), self.env().wall());
        let span = PushSpan::new(&name, messages.len());
        let checked: Result<Vec<Checked>> = span
            .within(|| messages.into_iter().zip(ids).map(|(push, id)| self.check(push, id, now)).collect());
        let pushed = match checked {
            Ok(checked) => self.append(&name, checked).await,
            Err(error) => Err(error),
        };
        span.end(pushed.as_deref());
        pushed
    }

    /// The message with this id, ready to be appended, or why it cannot be.
    pub(crate) fn check(&self, mut push: Push, id: MessageId, now: Timestamp) -> Result<Checked> {
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
        crate::otel::carry(&mut message.headers);
        self.log().capabilities().check(&message)?;
        if followed.is_some() && planted::is(Bug::FollowerIdRandom) {
            message.id = id;
        }
        Ok(Checked { message, unique, repeated: followed.is_some() })
    }

    /// Appends messages, and returns the id of each: its own, or for a unique one that of the message that is there.
    pub(crate) async fn append(&self, name: &TopicName, messages: Vec<Checked>) -> Result<Vec<MessageId>> {
        let topic = self.find_cached(name).await?;
        if messages.is_empty() {
            return Ok(Vec::new());
        }
        match self.append_to(&topic, messages.clone()).await {
            // The topic may have been deleted and created anew since it was looked up.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let topic = self.find(name).await?;
                self.append_to(&topic, messages).await
            }
            answer => answer,
        }
    }

    async fn append_to(&self, topic: &Topic, mut messages: Vec<Checked>) -> Result<Vec<MessageId>> {
        let there = match messages.iter().any(|checked| checked.unique.is_some()) {
            true => unique::reserve(self, topic, &mut messages).await?,
            false => Vec::new(),
        };
        let is_there = |nth: usize| there.get(nth).copied().unwrap_or(false);
        let ids: Vec<MessageId> = messages.iter().map(|checked| checked.message.id).collect();
        let mut reserved: Vec<(String, MessageId)> = Vec::new();
        let (first, count) = (self.next_shard(), messages.len());
        let mut records = Vec::with_capacity(count);
        for (nth, Checked { message, unique, repeated }) in messages.into_iter().enumerate() {
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
            self.door().pushed(&topic.name, &pushed);
        }
        if !reserved.is_empty() {
            unique::confirm(self, topic, &reserved).await;
        }
        Ok(ids)
    }
}

/// How many messages of a large push follow one another in a shard, at least.
const LONG_RUN: usize = 250;

/// Messages without a key are spread over the shards in runs, each push beginning at the next shard: a block of a run
/// is read and claimed at once, and a large push has work for many workers. A very large one makes few long runs, which
/// cost less to store than many short ones.
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
