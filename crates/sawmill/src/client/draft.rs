//! Drafts: messages that the user pushes within a transaction of their own.

use std::sync::Arc;

use sawmill_engine::model::{MessageId, Push, TopicName, base_name};
use sawmill_engine::storage::{Draft, Record};
use sawmill_engine::{Error, ErrorKind, Result};

use super::Sawmill;

impl Sawmill {
    /// Prepares messages for a transaction of your own: an order and its e-mail in one commit. Write the
    /// draft with the engine's `push_within`.
    ///
    /// Fails with [`NotFound`](ErrorKind::NotFound) if the topic does not exist, and with
    /// [`Unsupported`](ErrorKind::Unsupported) for messages that are [unique](Push::unique) or
    /// [follow](Push::follows) others: make a column of your own unique instead.
    pub async fn draft<M: Into<Push>>(
        &self,
        topic: &str,
        messages: impl IntoIterator<Item = M>,
    ) -> Result<Draft> {
        let name = base_name(topic)?;
        let messages: Vec<Push> = messages.into_iter().map(Into::into).collect();
        let store = &self.store;
        let (ids, now) = (store.new_ids(messages.len()), store.env().wall());
        // Not from the cache: a deleted topic would be noticed only within the transaction.
        let topic = store.find(&name).await?;
        // Messages without a key share one shard, so that a long transaction locks few shards.
        let keyless = (store.next_shard() % usize::from(topic.shards)) as u16;
        let mut records = Vec::with_capacity(messages.len());
        for (push, id) in messages.into_iter().zip(ids) {
            let checked = store.check(push, id, now)?;
            if checked.unique.is_some() || checked.repeated {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    "a message that is unique, or follows another, cannot be pushed within a transaction, which may be \
                     rolled back: push it by itself, or make a column of your own unique",
                ));
            }
            let shard =
                checked.message.key.as_deref().map_or(keyless, |key| store.log().shard_of(key, topic.shards));
            records.push(Record::once(shard, checked.message));
        }
        let telemetry = store.clone();
        let on_pushed =
            Arc::new(move |name: &TopicName, ids: &[MessageId]| telemetry.telemetry().pushed(name, ids));
        Ok(Draft::new(store.shared_log(), topic, now, records, on_pushed))
    }
}
