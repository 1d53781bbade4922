//! Messages in hand, on their way over the bench.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::line::LineKey;
use crate::cancel::Unwanted;
use crate::claim::{Claim, Token};
use crate::message::Message;
use crate::retry::Failure;
use crate::shard::Fate;

/// The number of a claim on this bench. Unlike a token it differs between shards, and it is never used again.
pub(crate) type Ticket = u64;

/// A message in hand.
#[derive(Debug, Clone)]
pub(crate) struct Item {
    pub(crate) ticket: Ticket,
    pub(crate) index: u32,
    /// Which of the worker's topics it belongs to.
    pub(super) topic: usize,
    /// How many attempts have failed.
    pub(crate) failed: u32,
    /// Which reading of the shard it was handed out in.
    pub(crate) pass: u32,
    /// How many workers died holding it.
    pub(super) deaths: u32,
    pub(crate) message: Arc<Message>,
    pub(crate) failures: Vec<Failure>,
    pub(super) line: Option<LineKey>,
}

impl Item {
    /// Which attempt is next, from 1. A worker's death counts, because it may have been in the middle of one.
    pub(crate) fn attempt(&self) -> u32 {
        self.failed.saturating_add(self.deaths).saturating_add(1)
    }
}

/// A message that may start now.
pub(crate) struct Start {
    pub(crate) item: Item,
    pub(crate) source: usize,
    pub(crate) token: Token,
    pub(crate) cancelled: Arc<CancellationToken>,
}

/// What follows when a handler has ended.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// Nothing more is to be done.
    Settled(Fate),
    /// It stays in its place and runs again, after this time.
    Again { after: Duration, failure: Option<Failure> },
    /// A copy of it must be in the log before it counts as settled.
    Copy(Copy, Option<Failure>),
    /// As if it had never been started.
    Untouched,
}

/// What must happen before a message counts as settled: mostly the copy of a failed one is to be appended to a lane. The
/// name of a unique message that is settled for good is given back as well.
#[derive(Debug, Clone)]
pub(crate) enum Copy {
    Retry {
        after: Duration,
        counted: bool,
    },
    Dead {
        reason: String,
    },
    /// No copy: only its name is to be given back.
    None {
        fate: Fate,
    },
}

/// A message whose handler has ended and which does not count as settled yet.
#[derive(Clone)]
pub(crate) struct Failed {
    pub(crate) item: Item,
    pub(crate) source: usize,
    pub(crate) copy: Copy,
}

/// A claim that has come into hand.
pub(crate) struct Incoming {
    pub(crate) source: usize,
    /// The index of the topic, lanes counting as the topic they belong to.
    pub(crate) topic: usize,
    pub(crate) claim: Claim,
    pub(crate) messages: Vec<Message>,
    /// Those of them that a person has cancelled.
    pub(crate) unwanted: Arc<Unwanted>,
    /// Shared, because cloning a token takes a lock.
    pub(crate) cancelled: Arc<CancellationToken>,
}
