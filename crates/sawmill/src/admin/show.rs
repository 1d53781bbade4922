//! The status of one message: its state in each group, as far as the log and the ledger can tell.
//!
//! Nothing is stored per message, so the state is derived. A message lies before or after a group's cursor,
//! in an open claim or in none. Its copies on the group's lanes have ids that are derived from its own, from
//! copy to copy.

use sawmill_engine::model::{
    Copies, Failure, GroupName, Lane, Message, MessageId, ShardState, Topic, WorkerId,
};
use sawmill_engine::runtime::Timestamp;
use sawmill_engine::storage::{EntryKey, FoundMessage};
use sawmill_engine::{ErrorKind, Result};

use super::Admin;
use crate::store::dead_letter_readers;

/// A message, and its state in each group; returned by [`Admin::show`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MessageStatus {
    /// The topic it was pushed to.
    pub topic: Topic,
    /// The message. If the topic no longer has it, a copy that a group keeps.
    pub message: Message,
    /// The state of the message in each group. If the topic no longer has it, only groups that keep a copy.
    pub groups: Vec<(GroupName, MessageState)>,
}

/// The state of a message in a group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageState {
    /// It is not due yet.
    Scheduled,
    /// It is due, and waits for a worker.
    Waiting,
    /// A worker holds it, or has given it back for others to take over.
    Claimed {
        /// The worker; `None` if the claim was given back.
        worker: Option<WorkerId>,
        /// How often it failed in this claim.
        failed: u32,
    },
    /// It failed, or was retried as a dead letter, and waits for its next attempt or is in it.
    Retrying {
        /// How many attempts have failed.
        failed: u32,
        /// When the next attempt is due.
        due: Option<Timestamp>,
        /// The latest failures, oldest first.
        failures: Vec<Failure>,
        /// The worker that holds it, if one does.
        worker: Option<WorkerId>,
    },
    /// It is done.
    Done,
    /// It is a dead letter.
    Dead {
        /// Why it was given up.
        reason: String,
        /// How many attempts have failed.
        failed: u32,
        /// The latest failures, oldest first.
        failures: Vec<Failure>,
    },
    /// It was cancelled.
    Cancelled,
    /// The group is past it. Most likely it is done, but the group has also skipped or dropped messages, and
    /// does not keep which ones.
    Past,
}

impl MessageState {
    /// Returns true if the group does nothing more with the message by itself.
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Done | Self::Dead { .. } | Self::Cancelled | Self::Past)
    }
}

/// How many missing copies in a row are skipped in a chain from which copies may have been trimmed.
const LONGEST_GAP: usize = 32;

/// The place of a message, or of a copy of it, in one topic or lane.
enum Place {
    NotDue,
    Waiting,
    Claimed { worker: Option<WorkerId>, failed: u32 },
    Settled,
}

impl Admin<'_> {
    /// Finds a message by its id, in any topic; `None` if no topic has it. Engines may have to search for it;
    /// see [`Log::find`](sawmill_engine::storage::Log::find).
    pub async fn find_message(self, id: MessageId) -> Result<Option<(Topic, FoundMessage)>> {
        for topic in self.store.topics().await? {
            match self.store.log().find(&topic, id).await {
                Ok(Some(found)) => return Ok(Some((topic, found))),
                Ok(None) => {}
                // Deleted since it was listed.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Returns the state of a message in each group of its topic; `None` if it is neither in a topic nor on a
    /// lane (any more).
    ///
    /// Engines may have to search for the message; see [`Log::find`](sawmill_engine::storage::Log::find).
    /// Changes that workers make during the call may or may not be seen.
    ///
    /// ```
    /// use sawmill::{Context, Sawmill};
    /// use sawmill::admin::MessageState;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// let id = mill.push("emails", "Hello").await?;
    /// let worker = mill.worker("emails").start(|_mail: Context| async {}).await?;
    /// worker.drained().await;
    /// worker.stop().await;
    /// let mail = mill.admin().show(id).await?.expect("topics keep their messages for a day");
    /// assert_eq!(mail.groups[0].1, MessageState::Done);
    /// # Ok(()) }
    /// ```
    pub async fn show(self, id: MessageId) -> Result<Option<MessageStatus>> {
        if let Some((topic, found)) = self.find_message(id).await? {
            let cancelled = self.store.ledger().get(&EntryKey::cancel(&topic, id)).await?.is_some();
            let mut groups = Vec::new();
            for group in self.store.groups_of(&topic).await? {
                let state = self.state_in(&topic, &group, &found, cancelled).await?;
                groups.push((group, state));
            }
            return Ok(Some(MessageStatus { topic, message: found.message, groups }));
        }
        // Dead letters may outlive the messages that they are copies of.
        for topic in self.topics().await? {
            let (mut groups, mut message) = (Vec::new(), None);
            for group in self.store.groups_of(&topic).await? {
                let passes =
                    self.store.shard_states(&topic, &group).await?.iter().map(|state| state.pass).max();
                let lanes = self.on_lanes(&topic, &group, id, passes.unwrap_or(0)).await?;
                if let Some((copy, state)) = lanes.open {
                    groups.push((group, state));
                    message = Some(copy);
                }
            }
            if let Some(message) = message {
                return Ok(Some(MessageStatus { topic, message, groups }));
            }
        }
        Ok(None)
    }

    /// Returns the state of a message in one group.
    async fn state_in(
        self,
        topic: &Topic,
        group: &GroupName,
        found: &FoundMessage,
        cancelled: bool,
    ) -> Result<MessageState> {
        let states = self.store.shard_states(topic, group).await?;
        let state = states.get(usize::from(found.shard)).cloned().unwrap_or_default();
        match self.place(topic, &state, found).await? {
            Place::NotDue | Place::Waiting if cancelled => return Ok(MessageState::Cancelled),
            Place::NotDue => return Ok(MessageState::Scheduled),
            Place::Waiting => return Ok(MessageState::Waiting),
            Place::Claimed { worker, failed } => return Ok(MessageState::Claimed { worker, failed }),
            Place::Settled => {}
        }
        let lanes = self.on_lanes(topic, group, found.message.id, state.pass).await?;
        Ok(match lanes.open {
            Some((_, MessageState::Retrying { worker: None, .. })) if cancelled => MessageState::Cancelled,
            Some((_, state)) => state,
            None if cancelled && state.tally.cancelled + lanes.cancelled > 0 => MessageState::Cancelled,
            None if state.pass == 0 && state.tally.dropped + lanes.dropped == 0 => MessageState::Done,
            None => MessageState::Past,
        })
    }

    /// Returns true if a message is not due or lies after the cursor. Positions cannot be compared, but the
    /// messages after them can be counted.
    async fn is_ahead(self, topic: &Topic, state: &ShardState, found: &FoundMessage) -> Result<bool> {
        let Some(before) = &found.before else { return Ok(true) };
        let after = [(found.shard, before.clone()), (found.shard, state.cursor.clone())];
        let ready = self.store.log().backlog(topic, &after).await?.ready;
        Ok(matches!(ready[..], [from_it_on, after_cursor] if from_it_on <= after_cursor))
    }

    /// Returns the place of a message of a shard.
    async fn place(self, topic: &Topic, state: &ShardState, found: &FoundMessage) -> Result<Place> {
        if self.is_ahead(topic, state, found).await? {
            return Ok(if found.before.is_none() { Place::NotDue } else { Place::Waiting });
        }
        for claim in &state.claims {
            let messages = match self.store.log().reread(topic, found.shard, &claim.span).await {
                Err(error) if error.kind() == ErrorKind::Gone => continue,
                messages => messages?,
            };
            let index = (0..).zip(&messages).find(|(_, message)| message.id == found.message.id);
            if let Some((index, _)) = index.filter(|(index, _)| !claim.done.contains(*index)) {
                let failed = claim.failures.get(&index).copied().unwrap_or(0);
                return Ok(Place::Claimed { worker: claim.owner.clone(), failed });
            }
        }
        Ok(Place::Settled)
    }

    /// Returns what a group keeps of a message on its lanes. `passes` is how often the group was replayed.
    async fn on_lanes(self, topic: &Topic, group: &GroupName, id: MessageId, passes: u32) -> Result<OnLanes> {
        let mut answer = OnLanes::default();
        let (retry, dead) = (topic.name.lane(group, Lane::Retry), topic.name.lane(group, Lane::Dead));
        let (Some(retry), Some(dead)) =
            (self.store.log().topic(&retry).await?, self.store.log().topic(&dead).await?)
        else {
            return Ok(answer);
        };
        let retries = self.store.shard_states(&retry, group).await?;
        let letters = self.store.shard_states(&dead, &dead_letter_readers()?).await?;
        answer.dropped = retries.iter().chain(&letters).map(|state| state.tally.dropped).sum();
        answer.cancelled = retries.iter().map(|state| state.tally.cancelled).sum();
        // Within the retention no copy was trimmed, so the chain ends with the first missing copy.
        let may_be_trimmed = id.created() + retry.retention < self.store.env().wall();
        let mut links: Vec<Copies> = (0..=passes).map(|pass| Copies::of(id, pass)).collect();
        let mut gap = 0;
        while !links.is_empty() && gap < LONGEST_GAP {
            let (mut next, mut missing) = (Vec::new(), Vec::new());
            for copies in links {
                if let Some((found, place)) = self.copy(&dead, &letters, copies.dead).await?
                    && !matches!(place, Place::Settled)
                {
                    answer.open = Some(dead_letter(found.message));
                    return Ok(answer);
                }
                for id in [copies.retry, copies.resent] {
                    // Lanes are never replayed: copies of copies are made in pass 0.
                    match self.copy(&retry, &retries, id).await? {
                        Some((found, place)) => {
                            if let Some(worker) = place.retrying() {
                                answer.open = Some(retrying(found.message, worker));
                                return Ok(answer);
                            }
                            next.push(Copies::of(id, 0));
                        }
                        None if may_be_trimmed && id == copies.retry => missing.push(Copies::of(id, 0)),
                        None => {}
                    }
                }
            }
            gap = if next.is_empty() { gap + 1 } else { 0 };
            next.append(&mut missing);
            links = next;
        }
        Ok(answer)
    }

    /// Finds a copy on a lane, and its place there.
    async fn copy(
        self,
        lane: &Topic,
        states: &[ShardState],
        id: MessageId,
    ) -> Result<Option<(FoundMessage, Place)>> {
        let Some(found) = self.store.log().find(lane, id).await? else { return Ok(None) };
        let state = states.get(usize::from(found.shard)).cloned().unwrap_or_default();
        let place = self.place(lane, &state, &found).await?;
        Ok(Some((found, place)))
    }
}

/// The messages found on a group's lanes.
#[derive(Default)]
struct OnLanes {
    /// A copy that is not settled, and the state of the message that follows from it.
    open: Option<(Message, MessageState)>,
    /// How many messages in all were dropped there.
    dropped: u64,
    /// How many messages in all were cancelled there.
    cancelled: u64,
}

impl Place {
    /// Returns the worker that holds a copy on the retry lane, if one does; `None` if the copy is settled.
    fn retrying(self) -> Option<Option<WorkerId>> {
        match self {
            Place::NotDue | Place::Waiting => Some(None),
            Place::Claimed { worker, .. } => Some(worker),
            Place::Settled => None,
        }
    }
}

fn retrying(copy: Message, worker: Option<WorkerId>) -> (Message, MessageState) {
    let (failed, failures) = (copy.failed_attempts(), copy.failures());
    let state = MessageState::Retrying { failed, due: copy.due, failures, worker };
    (copy, state)
}

fn dead_letter(copy: Message) -> (Message, MessageState) {
    let reason = copy.dead_reason().unwrap_or_default().to_owned();
    let state = MessageState::Dead { reason, failed: copy.failed_attempts(), failures: copy.failures() };
    (copy, state)
}
