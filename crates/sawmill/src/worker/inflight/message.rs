//! A message in hand, and the stages that it goes through.

use std::sync::Arc;
use std::time::Duration;

use sawmill_engine::model::{Failure, Fate, Message, Token};
use tokio_util::sync::CancellationToken;

use super::key_queue::QueueKey;

/// Where a message in hand is. ARCHITECTURE.md draws this.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It waits behind another message of its key.
    Queued,
    /// It may start as soon as a slot, the lease and the group's limits allow it.
    Ready,
    /// It waits in place: for its next attempt, or for the rate of its key.
    Waiting,
    /// Its handler runs.
    Running,
    /// No handler will run for it any more, but a copy has to be appended or a name given back before it
    /// counts as settled.
    Settling,
    /// Its fate only needs to be reported.
    Settled,
    /// It is left to other workers: its claim is about to be given back.
    Released,
}

impl Stage {
    /// True if a message may go from this stage to that one.
    pub(crate) fn may_become(self, next: Stage) -> bool {
        use Stage::*;
        match self {
            Queued => matches!(next, Ready | Settling | Settled | Released),
            Ready => matches!(next, Running | Waiting | Settling | Settled | Released),
            Waiting => matches!(next, Ready | Settling | Settled | Released),
            Running => matches!(next, Ready | Waiting | Settling | Settled | Released),
            Settling => next == Settled,
            Settled | Released => false,
        }
    }
}

/// The number of a claim in hand. Unlike a token it differs between shards, and it is never used again.
pub(crate) type Ticket = u64;

/// A message in hand.
#[derive(Debug, Clone)]
pub(crate) struct HeldMessage {
    pub(crate) ticket: Ticket,
    /// Its index in the block.
    pub(crate) index: u32,
    /// Which of the worker's topics it belongs to.
    pub(crate) topic: usize,
    /// How many attempts have failed.
    pub(crate) failed: u32,
    /// The pass of the group over the shard in which it was claimed.
    pub(crate) pass: u32,
    /// How many workers died while they held it.
    pub(crate) deaths: u32,
    pub(crate) message: Arc<Message>,
    pub(crate) failures: Vec<Failure>,
    /// The queue of its key, which it holds or waits in.
    pub(crate) queue_key: Option<QueueKey>,
}

impl HeldMessage {
    /// Returns the number of the next attempt, from 1. A worker's death counts as one, because it may have
    /// happened in the middle of an attempt.
    pub(crate) fn attempt(&self) -> u32 {
        self.failed.saturating_add(self.deaths).saturating_add(1)
    }
}

/// A message that may start now.
pub(crate) struct Start {
    pub(crate) held: HeldMessage,
    pub(crate) source: usize,
    pub(crate) token: Token,
    pub(crate) cancelled: Arc<CancellationToken>,
}

/// The fate of a message whose handler has ended.
#[derive(Debug)]
pub(crate) enum Disposition {
    /// The message is settled.
    Settled(Fate),
    /// The message stays in its place and runs again after this time.
    Again { after: Duration, failure: Option<Failure> },
    /// A copy of the message must be in the log before it counts as settled.
    OnLane(LaneCopy, Option<Failure>),
    /// The message counts as never started.
    Untouched,
}

/// The writes that come before a message counts as settled. The name of a unique message that is settled for
/// good is given back as well.
#[derive(Debug, Clone)]
pub(crate) enum LaneCopy {
    /// A copy on the retry lane.
    Retry { after: Duration, counted: bool },
    /// A copy on the dead-letter lane.
    Dead { reason: String },
    /// No copy: only the name must be given back.
    None { fate: Fate },
}

/// A message that counts as settled once its copy is appended, or its name given back.
#[derive(Clone)]
pub(crate) struct Settling {
    pub(crate) held: HeldMessage,
    pub(crate) source: usize,
    pub(crate) copy: LaneCopy,
}

#[cfg(test)]
mod tests {
    use super::Stage::*;

    #[test]
    fn settled_and_released_messages_stay_so_and_only_ready_ones_run() {
        let all = [Queued, Ready, Waiting, Running, Settling, Settled, Released];
        for stage in all {
            assert!(!Settled.may_become(stage) && !Released.may_become(stage), "{stage:?}");
            assert_eq!(stage.may_become(Running), stage == Ready, "{stage:?}");
            assert!(!stage.may_become(Queued), "{stage:?}");
            assert!(!stage.may_become(stage), "{stage:?}");
        }
    }
}
