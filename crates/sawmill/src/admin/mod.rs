//! Operator calls: inspect topics, groups and workers, and control them. See
//! [`Sawmill::admin`](crate::Sawmill::admin).

mod access;
mod dead_letters;
mod doctor;
mod health;
mod peek;
mod replay;
mod show;
mod snapshot;
mod status;
mod workers;

use std::sync::Arc;

use sawmill_engine::Result;
pub use sawmill_engine::model::RunningMessage;
use sawmill_engine::model::Topic;
pub use sawmill_engine::storage::Finding;

use crate::store::{Store, deletion, pause, trim};
pub use access::{Access, AccessKey};
pub use dead_letters::{DeadLetter, DeadLetterSelection, DeadLetters};
pub use replay::ReplayFrom;
pub use show::{MessageState, MessageStatus};
pub use snapshot::{GroupReport, GroupSnapshot};
pub use status::GroupStatus;
pub use workers::WorkerInfo;

/// Operator calls on a store: inspect topics, groups and workers, and control them. Returned by
/// [`Sawmill::admin`](crate::Sawmill::admin).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
/// # let mill = sawmill::Sawmill::open("memory:").await?;
/// mill.create_topic("emails").await?;
/// mill.push("emails", "Hello").await?;
/// assert_eq!(mill.admin().status("emails", "default").await?.waiting, 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Admin<'a> {
    store: &'a Arc<Store>,
}

impl<'a> Admin<'a> {
    pub(crate) fn new(store: &'a Arc<Store>) -> Self {
        Self { store }
    }

    /// Lists all topics. The lanes of their groups are not included.
    pub async fn topics(self) -> Result<Vec<Topic>> {
        self.store.topics().await
    }

    /// Deletes a topic, its messages, and everything its groups keep. Its workers stop. Until a worker
    /// notices the deletion, for at most its TTL, it may still start messages that it already holds.
    ///
    /// Fails with [`NotFound`](crate::ErrorKind::NotFound) if there is no such topic. After any other error,
    /// call it again before you create a topic of the same name: otherwise the new topic may take over lanes
    /// of the old one, with their messages.
    pub async fn delete_topic(self, name: &str) -> Result<()> {
        deletion::delete_topic(self.store, name).await
    }

    /// Trims a topic and its groups' lanes now, and returns how many messages were dropped. Workers also do
    /// this, about once a minute.
    ///
    /// A message is dropped if it is older than the topic's retention, every group has read it, and it is in
    /// no open claim. A topic without groups is not trimmed. A topic that [drops unread
    /// messages](crate::TopicSpec::drops_unread) drops all messages older than its retention, read or not.
    pub async fn trim(self, topic: &str) -> Result<u64> {
        trim::trim(self.store, topic).await
    }

    /// Pauses a group of a topic: its workers stop claiming and starting its messages. Running handlers end
    /// normally, and open claims stay.
    ///
    /// Workers notice at their next refresh: at least every [`poll`](crate::WorkerBuilder::poll), and four
    /// times per TTL. About that long after this call returns, nothing starts any more. A worker that cannot
    /// reach the store starts nothing once a TTL has passed since its last refresh. The pause lasts until
    /// [`resume`](Admin::resume), even if all workers leave and others join. A group may be paused before its
    /// first worker.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = sawmill::Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// mill.admin().pause("emails", "default").await?;
    /// assert!(mill.admin().status("emails", "default").await?.paused);
    /// mill.admin().resume("emails", "default").await?;
    /// # Ok(()) }
    /// ```
    pub async fn pause(self, topic: &str, group: &str) -> Result<()> {
        pause::set_paused(self.store, topic, group, true).await
    }

    /// Resumes a [paused](Admin::pause) group. Does nothing if the group is not paused.
    pub async fn resume(self, topic: &str, group: &str) -> Result<()> {
        pause::set_paused(self.store, topic, group, false).await
    }
}
