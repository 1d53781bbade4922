//! Checks that all messages of a key are in one shard of their topic, however they were pushed.

use sawmill::Message;
use sawmill::engine::model::Topic;

use super::book::Book;
use super::invariant::Invariant;

impl Book {
    /// Invariant 19.
    pub(super) fn in_its_shard(&mut self, topic: &Topic, shard: u16, message: &Message) {
        let Some(key) = message.key.clone() else { return };
        let index = self.topic(topic);
        let first = *self.key_shards.entry((index, key)).or_insert(shard);
        self.check(Invariant::OneShard, shard == first, |_| {
            let what = format!(
                "{} of key {:?} is in shard {shard} of {}, and the key's messages are in shard {first}",
                message.id, message.key, topic.name
            );
            (what, vec![message.id.to_string()])
        });
    }
}
