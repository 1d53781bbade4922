//! The features of the core that a run has used.
//!
//! An invariant about a feature that no history uses is not tested. Each use is therefore counted in
//! [`Features`] when it takes effect in the store, or when its caller is told so.

use std::fmt;
use std::ops::AddAssign;

macro_rules! features {
    ($($(#[$doc:meta])* $feature:ident = $name:literal,)*) => {
        /// A feature, counted when it takes effect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Feature {
            $($(#[$doc])* $feature,)*
        }

        impl Feature {
            /// All features, in printing order.
            pub const ALL: &[Feature] = &[$(Feature::$feature,)*];

            /// Returns its name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(Feature::$feature => $name,)*
                }
            }
        }
    };
}

features! {
    /// A message was kept aside until its due time.
    Delayed = "delayed",
    /// A schedule pushed a message.
    Tick = "tick",
    /// A push returned the id of an earlier message of the same name.
    UniqueRefused = "unique-refused",
    /// A failed message was copied to the retry lane.
    Retry = "retry",
    /// A message became a dead letter.
    DeadLetter = "dead-letter",
    /// A message became a dead letter because its worker died under at-most-once.
    Lost = "lost",
    /// A dead letter was sent back to its group.
    Resend = "resend",
    /// A dead letter was dropped.
    LetterDropped = "letter-dropped",
    /// The dead letters of a group were listed, and there were some.
    LettersListed = "letters-listed",
    /// A worker was declared dead.
    DeclaredDead = "declared-dead",
    /// A claim of a worker that was gone was taken over.
    Adoption = "adoption",
    /// A claim of a previous incarnation was recovered from its journal.
    Recovery = "recovery",
    /// A claim was given back.
    GivenBack = "given-back",
    /// A claim that was given back was taken by another worker.
    TakenUp = "taken-up",
    /// A seek moved a group in a shard.
    Seek = "seek",
    /// A message was cancelled.
    Cancel = "cancel",
    /// A group was paused.
    Pause = "pause",
    /// A worker reported that it is drained while others were at work.
    Drain = "drain",
    /// A message was pushed by a producer.
    Produced = "produced",
    /// A push was repeated after an unknown outcome.
    Repeated = "repeated",
    /// A handler pushed a message that follows from the one it handled.
    Followed = "followed",
    /// A handler took several messages at once.
    Batch = "batch",
    /// A message was pulled.
    Pull = "pull",
    /// A pulled message was given back.
    PullGivenBack = "pull-given-back",
    /// A pulled message got more time.
    PullExtended = "pull-extended",
    /// A handler exceeded its timeout and was dropped.
    Timeout = "timeout",
    /// A worker had a TTL of its own.
    OwnTtl = "own-ttl",
    /// A worker's clock ran at a rate of its own.
    OwnPace = "own-pace",
    /// A tick was pushed after the next one was due.
    TickMissed = "tick-missed",
    /// A missed tick was skipped because it was older than a minute.
    TickSkipped = "tick-skipped",
    /// Twenty workers or more were at work.
    Crowd = "crowd",
    /// A worker read past a trimmed position.
    TrimPassed = "trim-passed",
    /// A message became a dead letter because ten workers died holding it.
    Burial = "burial",
    /// A closed claim was open again after a crash of the store.
    Reopened = "reopened",
    /// A worker died while nothing else was wrong, and another started its messages.
    CalmDeath = "calm-death",
    /// A push returned the id of an earlier message whose name was taken for a period.
    UniqueFor = "unique-for",
    /// A message waited because of the rate limit of its key.
    KeyLimited = "key-limited",
    /// The store got a newer format.
    FormatRaised = "format-raised",
    /// A topic was deleted, and created again under the same name.
    TopicDeleted = "topic-deleted",
    /// A message was trimmed.
    Trim = "trim",
    /// A message was settled because it was cancelled.
    Cancelled = "cancelled",
    /// A message was given up in a group that only logs failures.
    OnlyLogged = "only-logged",
    /// A worker was refused because its program does not understand the store's format.
    Outdated = "outdated",
}

/// How often each feature was used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features([u64; Feature::ALL.len()]);

impl Features {
    /// Counts one use.
    pub fn count(&mut self, feature: Feature) {
        self.0[feature as usize] += 1;
    }

    /// Returns how often this feature was used.
    pub fn of(&self, feature: Feature) -> u64 {
        self.0[feature as usize]
    }
}

impl Default for Features {
    fn default() -> Self {
        Self([0; Feature::ALL.len()])
    }
}

impl AddAssign<&Features> for Features {
    fn add_assign(&mut self, other: &Features) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Feature::ALL
            .iter()
            .try_for_each(|feature| writeln!(f, "{:<22}{:>12}", feature.name(), self.of(*feature)))
    }
}
