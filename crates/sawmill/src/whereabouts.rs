//! Where a message is: what each group has made of it, as far as that can be told from the log and the ledger.
//!
//! Nothing is written down per message, so this is found out by looking. A message lies before or after a group's cursor, in
//! an open claim or in none. What it was copied to on the group's lanes has an id that follows from its own, from copy to copy.

use crate::claim::WorkerId;
use crate::clock::Timestamp;
use crate::error::{ErrorKind, Result};
use crate::ledger::EntryKey;
use crate::log::Found;
use crate::message::{Message, MessageId};
use crate::mill::Sawmill;
use crate::retry::{Copies, Failure};
use crate::shard::ShardState;
use crate::topic::{GroupName, Lane, Topic};

/// A message, and where it stands; see [`Sawmill::whereabouts`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Whereabouts {
    /// The topic it was pushed to.
    pub topic: Topic,
    /// The message. If it is gone from the topic, a copy that a group keeps of it.
    pub message: Message,
    /// What each group of the topic has made of it. If it is gone from the topic, only groups that keep a copy.
    pub groups: Vec<(GroupName, Standing)>,
}

/// What a group has made of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Standing {
    /// It is not due yet.
    Scheduled,
    /// It waits to be handed out.
    Waiting,
    /// A worker has it in hand, or has given it back for others to take over.
    Claimed {
        /// The worker, if it was not given back.
        worker: Option<WorkerId>,
        /// How often it failed while it was in hand.
        failed: u32,
    },
    /// It failed, or was resent, and waits for its next attempt or is in the middle of it.
    Retrying {
        /// How many attempts have failed.
        failed: u32,
        /// When the next attempt is due.
        due: Option<Timestamp>,
        /// The latest failures, oldest first.
        failures: Vec<Failure>,
        /// The worker that has it in hand.
        worker: Option<WorkerId>,
    },
    /// It is done.
    Done,
    /// It was given up.
    Dead {
        /// Why.
        reason: String,
        /// How many attempts have failed.
        failed: u32,
        /// The latest failures, oldest first.
        failures: Vec<Failure>,
    },
    /// A person has cancelled it.
    Cancelled,
    /// The group is past it. Most likely it is done, but the group has also skipped or dropped messages, and which they were
    /// is not kept.
    Past,
}

impl Standing {
    /// True if the group will do nothing more about it by itself.
    pub fn is_settled(&self) -> bool {
        matches!(self, Self::Done | Self::Dead { .. } | Self::Cancelled | Self::Past)
    }
}

/// How far a chain of copies is followed of which some may have been trimmed.
const LONGEST_GAP: usize = 32;

/// Where a message, or a copy of it, is on its way through one topic or lane.
enum Place {
    Aside,
    Waiting,
    Claimed { worker: Option<WorkerId>, failed: u32 },
    Settled,
}

impl Sawmill {
    /// Where a message stands in each group of its topic; nothing if it is neither in a topic nor on a lane (any more).
    ///
    /// It may have to be searched for; see [`crate::log::Log::find`]. What workers do meanwhile may or may not be seen.
    ///
    /// ```
    /// use sawmill::{Context, Sawmill, Standing};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("emails").await?;
    /// let id = mill.push("emails", "Hello").await?;
    /// let worker = mill.worker("emails").start(|_mail: Context| async {}).await?;
    /// worker.drained().await;
    /// worker.stop().await;
    /// let mail = mill.whereabouts(id).await?.expect("topics keep their messages for a day");
    /// assert_eq!(mail.groups[0].1, Standing::Done);
    /// # Ok(()) }
    /// ```
    pub async fn whereabouts(&self, id: MessageId) -> Result<Option<Whereabouts>> {
        if let Some((topic, found)) = self.find_message(id).await? {
            let cancelled = self.ledger().get(&EntryKey::cancel(&topic, id)).await?.is_some();
            let mut groups = Vec::new();
            for group in self.groups_of(&topic).await? {
                let standing = self.standing(&topic, &group, &found, cancelled).await?;
                groups.push((group, standing));
            }
            return Ok(Some(Whereabouts { topic, message: found.message, groups }));
        }
        // Dead letters outlive what they are copies of.
        for topic in self.topics().await? {
            let (mut groups, mut message) = (Vec::new(), None);
            for group in self.groups_of(&topic).await? {
                let passes = self.shard_states(&topic, &group).await?.iter().map(|state| state.pass).max();
                let lanes = self.on_lanes(&topic, &group, id, passes.unwrap_or(0)).await?;
                if let Some((copy, standing)) = lanes.open {
                    groups.push((group, standing));
                    message = Some(copy);
                }
            }
            if let Some(message) = message {
                return Ok(Some(Whereabouts { topic, message, groups }));
            }
        }
        Ok(None)
    }

    async fn standing(
        &self,
        topic: &Topic,
        group: &GroupName,
        found: &Found,
        cancelled: bool,
    ) -> Result<Standing> {
        let states = self.shard_states(topic, group).await?;
        let state = states.get(usize::from(found.shard)).cloned().unwrap_or_default();
        match self.place(topic, &state, found).await? {
            Place::Aside | Place::Waiting if cancelled => return Ok(Standing::Cancelled),
            Place::Aside => return Ok(Standing::Scheduled),
            Place::Waiting => return Ok(Standing::Waiting),
            Place::Claimed { worker, failed } => return Ok(Standing::Claimed { worker, failed }),
            Place::Settled => {}
        }
        let lanes = self.on_lanes(topic, group, found.message.id, state.pass).await?;
        Ok(match lanes.open {
            Some((_, Standing::Retrying { worker: None, .. })) if cancelled => Standing::Cancelled,
            Some((_, standing)) => standing,
            None if cancelled && state.tally.cancelled + lanes.cancelled > 0 => Standing::Cancelled,
            None if state.pass == 0 && state.tally.dropped + lanes.dropped == 0 => Standing::Done,
            None => Standing::Past,
        })
    }

    /// True if a message is not due or lies after a cursor. Positions cannot be compared, but what lies after them can be counted.
    async fn is_ahead(&self, topic: &Topic, state: &ShardState, found: &Found) -> Result<bool> {
        let Some(before) = &found.before else { return Ok(true) };
        let after = [(found.shard, before.clone()), (found.shard, state.cursor.clone())];
        let ready = self.log().backlog(topic, &after).await?.ready;
        Ok(matches!(ready[..], [from_it_on, after_cursor] if from_it_on <= after_cursor))
    }

    /// Where a message of a shard is.
    async fn place(&self, topic: &Topic, state: &ShardState, found: &Found) -> Result<Place> {
        if self.is_ahead(topic, state, found).await? {
            return Ok(if found.before.is_none() { Place::Aside } else { Place::Waiting });
        }
        for claim in &state.claims {
            let messages = match self.log().reread(topic, found.shard, &claim.span).await {
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

    /// What a group keeps of a message on its lanes. `passes` is how often the group was sent elsewhere.
    async fn on_lanes(
        &self,
        topic: &Topic,
        group: &GroupName,
        id: MessageId,
        passes: u32,
    ) -> Result<OnLanes> {
        let mut answer = OnLanes::default();
        let (retry, dead) = (topic.name.lane(group, Lane::Retry), topic.name.lane(group, Lane::Dead));
        let (Some(retry), Some(dead)) = (self.log().topic(&retry).await?, self.log().topic(&dead).await?)
        else {
            return Ok(answer);
        };
        let retries = self.shard_states(&retry, group).await?;
        let letters = self.shard_states(&dead, &crate::dead::readers()?).await?;
        answer.dropped = retries.iter().chain(&letters).map(|state| state.tally.dropped).sum();
        answer.cancelled = retries.iter().map(|state| state.tally.cancelled).sum();
        // Within the retention no copy is missing, so that the chain ends with the first that is not there.
        let may_be_trimmed = id.created() + retry.retention < self.env().wall();
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
                    // Lanes are not sent elsewhere: copies of copies are made in their first reading.
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

    /// A copy on a lane, and where it is there.
    async fn copy(
        &self,
        lane: &Topic,
        states: &[ShardState],
        id: MessageId,
    ) -> Result<Option<(Found, Place)>> {
        let Some(found) = self.log().find(lane, id).await? else { return Ok(None) };
        let state = states.get(usize::from(found.shard)).cloned().unwrap_or_default();
        let place = self.place(lane, &state, &found).await?;
        Ok(Some((found, place)))
    }
}

/// What was found on a group's lanes.
#[derive(Default)]
struct OnLanes {
    /// A copy that is not settled, and what that says of the message.
    open: Option<(Message, Standing)>,
    /// How many messages were dropped there, whichever they were.
    dropped: u64,
    /// How many were cancelled there.
    cancelled: u64,
}

impl Place {
    /// Who has a copy on the retry lane in hand; none if it is settled.
    fn retrying(self) -> Option<Option<WorkerId>> {
        match self {
            Place::Aside | Place::Waiting => Some(None),
            Place::Claimed { worker, .. } => Some(worker),
            Place::Settled => None,
        }
    }
}

fn retrying(copy: Message, worker: Option<WorkerId>) -> (Message, Standing) {
    let (failed, failures) = (copy.failed_attempts(), copy.failures());
    let standing = Standing::Retrying { failed, due: copy.due, failures, worker };
    (copy, standing)
}

fn dead_letter(copy: Message) -> (Message, Standing) {
    let reason = copy.dead_reason().unwrap_or_default().to_owned();
    let standing = Standing::Dead { reason, failed: copy.failed_attempts(), failures: copy.failures() };
    (copy, standing)
}
