//! Peeking: what a group will be given next, seen without taking it.

use crate::cancel::Unwanted;
use crate::error::Result;
use crate::ledger::EntryKey;
use crate::log::Want;
use crate::message::Message;
use crate::mill::Sawmill;
use crate::topic::GroupName;

impl Sawmill {
    /// The messages of a topic that wait for a group, oldest first, at most this many: those that are due and that no worker
    /// has taken. They stay where they are. Shards have no order among them, so workers may take them in another one.
    ///
    /// A group that has not begun yet has the whole topic before it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// mill.push_many("emails", ["one", "two"]).await?;
    /// assert_eq!(mill.peek("emails", "default", 1).await?[0].payload, "one");
    /// # Ok(()) }
    /// ```
    pub async fn peek(&self, topic: &str, group: &str, limit: usize) -> Result<Vec<Message>> {
        self.peek_with(topic, group, limit, Message::clone).await
    }

    /// As [`peek`](Sawmill::peek), with what is wanted of each message in its place: of long messages no more is held in memory.
    pub async fn peek_with<T>(
        &self,
        topic: &str,
        group: &str,
        limit: usize,
        mut wanted: impl FnMut(&Message) -> T,
    ) -> Result<Vec<T>> {
        let topic = self.find_topic(topic).await?;
        let group: GroupName = group.parse()?;
        let unwanted = Unwanted::named_by(&self.ledger().list(&EntryKey::cancels(&topic)).await?);
        let states = self.shard_states(&topic, &group).await?;
        let mut waiting = Vec::new();
        for (shard, state) in (0..).zip(states) {
            let mut want = Want { shard, after: state.cursor, limit };
            while want.limit > 0 {
                let blocks = self.log().read(&topic, std::slice::from_ref(&want)).await?;
                let Some(block) = blocks.into_iter().next() else { break };
                let before = waiting.len();
                for message in
                    block.messages.iter().filter(|message| !unwanted.contains(message)).take(want.limit)
                {
                    waiting.push((message.created, message.id, wanted(message)));
                }
                want.limit -= waiting.len() - before;
                want.after = block.end;
                if !block.more {
                    break;
                }
            }
            // No more is kept than is asked for, however many shards there are.
            waiting.sort_by_key(|(created, id, _)| (*created, *id));
            waiting.truncate(limit);
        }
        Ok(waiting.into_iter().map(|(_, _, wanted)| wanted).collect())
    }
}
