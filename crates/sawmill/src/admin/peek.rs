//! Peeking: shows the next messages of a group without claiming them.

use sawmill_engine::Result;
use sawmill_engine::model::{GroupName, Message};
use sawmill_engine::storage::ReadRequest;

use super::Admin;
use crate::store::cancel::cancelled_messages;

impl Admin<'_> {
    /// Returns at most `limit` messages of a topic that wait for a group, oldest first: due, and not claimed.
    /// They stay where they are. Workers may take them in another order, since shards have no order among
    /// them.
    ///
    /// For a group that has had no worker yet, the whole topic waits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// mill.push_many("emails", ["one", "two"]).await?;
    /// assert_eq!(mill.admin().peek("emails", "default", 1).await?[0].payload, "one");
    /// # Ok(()) }
    /// ```
    pub async fn peek(self, topic: &str, group: &str, limit: usize) -> Result<Vec<Message>> {
        self.peek_with(topic, group, limit, Message::clone).await
    }

    /// Like [`peek`](Admin::peek), but returns what `wanted` extracts from each message. Only that is kept in
    /// memory.
    pub async fn peek_with<T>(
        self,
        topic: &str,
        group: &str,
        limit: usize,
        mut wanted: impl FnMut(&Message) -> T,
    ) -> Result<Vec<T>> {
        let topic = self.store.find_topic(topic).await?;
        let group: GroupName = group.parse()?;
        let cancelled = cancelled_messages(self.store, &topic).await?;
        let states = self.store.shard_states(&topic, &group).await?;
        let mut waiting = Vec::new();
        for (shard, state) in (0..).zip(states) {
            let mut want = ReadRequest { shard, after: state.cursor, limit };
            while want.limit > 0 {
                let blocks = self.store.log().read(&topic, std::slice::from_ref(&want)).await?;
                let Some(block) = blocks.into_iter().next() else { break };
                let before = waiting.len();
                for message in
                    block.messages.iter().filter(|message| !cancelled.contains(message)).take(want.limit)
                {
                    waiting.push((message.created, message.id, wanted(message)));
                }
                want.limit -= waiting.len() - before;
                want.after = block.end;
                if !block.more {
                    break;
                }
            }
            // Bounds the memory: never more than `limit` for all shards together.
            waiting.sort_by_key(|(created, id, _)| (*created, *id));
            waiting.truncate(limit);
        }
        Ok(waiting.into_iter().map(|(_, _, wanted)| wanted).collect())
    }
}
