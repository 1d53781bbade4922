//! Planted bugs: mistakes that can be switched on, to show that the simulation finds them.
//!
//! Each hook is at the one place in the core where the mistake would be made. Each bug names the invariant
//! that must detect it, by its number in ARCHITECTURE.md. Without the feature `planted` every hook is the
//! constant `false`, and the compiler removes it.

/// True if this [`Bug`] is planted: `fault!(HintsOnly)`. Without the feature `planted` it is the constant `false`.
#[macro_export]
macro_rules! fault {
    ($bug:ident) => {
        $crate::fault_injection::injected($crate::fault_injection::Bug::$bug)
    };
}

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident by $invariant:literal,)+) => {
        /// The bugs that are planted in the core.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Bug {
            /// All bugs, each with its description and the number of the invariant that must detect it.
            pub const ALL: &[(Bug, &str, u8)] = &[$((Bug::$name, concat!($($doc),+), $invariant),)+];
        }
    };
}

bugs! {
    /// A worker writes its progress into a claim that another has taken over.
    DroppedFence by 7,
    /// A message is marked done before its handler has run.
    AckBeforeEffect by 1,
    /// Messages are started without a check that the lease is still valid.
    NoLeaseCheck by 4,
    /// The lease is counted from the answer to a heartbeat instead of from before it was sent.
    LeaseFromAnswer by 4,
    /// A worker is declared dead after half the TTL.
    HastyDeath by 11,
    /// A worker is declared dead even if its entry has a newer version.
    UncheckedDeath by 11,
    /// Claims are adopted on the basis of a member list that is older than the claims.
    StaleMembers by 7,
    /// A failed message is marked done before its retry is in the log.
    RetryAfterMark by 1,
    /// In an ordered group, a shard is claimed although another worker holds a claim on it.
    OrderedClaimsAnyway by 6,
    /// In an ordered group, a shard is handed over while its handlers still run.
    HandoverWhileRunning by 4,
    /// Messages that a dead worker claimed under at-most-once are run again.
    LostRunsAgain by 3,
    /// A commit with an unknown outcome is treated as failed.
    UnknownMeansNo by 11,
    /// A commit with an unknown outcome is treated as successful.
    UnknownMeansYes by 4,
    /// A conflict is treated as a success.
    ConflictMeansYes by 4,
    /// Messages of one key run at the same time.
    NoKeyQueue by 6,
    /// The cursor moves past messages that were read but not taken.
    CursorTooFar by 8,
    /// An adopted block skips one message more than was done.
    SkipsOneMore by 11,
    /// The worker waits only for hints, and never polls.
    HintsOnly by 11,
    /// A worker that was removed continues with the messages that it held.
    RemovedGoesOn by 4,
    /// A block is claimed without a check for cancelled messages.
    CancelUnseen by 13,
    /// After a seek, a message that fails again gets the same copy as before.
    SameCopyAgain by 1,
    /// In-flight messages are started although the group is paused.
    PauseForgotten by 14,
    /// A worker uses a larger share of a limit before it has seen that the other workers leave it that much.
    ShareGrowsAtOnce by 15,
    /// The name of a unique message whose push may still be under way is given to the next push.
    UniqueForgotten by 12,
    /// The id of a schedule's tick does not derive from its time.
    TickTwice by 2,
    /// A program that is older than the format of an entry rewrites it without the fields that it does not
    /// know.
    OldRewritesNew by 16,
    /// The store's format is raised although a living member does not understand the new one.
    FormatTooSoon by 16,
    /// A worker that joins does not check that it understands the store's format.
    FormatNotChecked by 16,
    /// A message is given up one failure before its retries are exhausted.
    GivesUpEarly by 17,
    /// Messages that were given back under at-most-once, and never started, are treated as lost.
    GivenBackIsLost by 17,
    /// A claim goes to the dead letters after two deaths of its workers.
    BuriedTooSoon by 17,
    /// A message is retried once more than its group allows.
    OneRetryMore by 18,
    /// A retry is due at once, regardless of the backoff.
    RetriedAtOnce by 18,
    /// A retry is due after four times its backoff.
    RetriedLate by 18,
    /// A message that snoozes in place is ready again at once.
    SnoozeIgnored by 18,
    /// Repeatable messages are spread by their ids even if they have a key.
    ShardIgnoresKey by 19,
    /// Retries are counted as dead letters.
    CountsSwapped by 10,
    /// A worker is declared dead after twice its TTL and four seconds.
    SlowDeath by 11,
    /// The name of a unique message is not released when the message becomes a dead letter.
    DeadNameNotFreed by 12,
    /// A name is released only if its pusher could confirm that the message is in the log.
    UnsureNameNotFreed by 12,
    /// A reserved name is treated as one whose message is in the log.
    ReservedNameIsPushed by 1,
    /// In-flight messages are not checked when messages are cancelled.
    CancelledInHandRuns by 13,
    /// A seek does not move the cursor of the last shard.
    SeekForgetsAShard by 8,
    /// A seek to a time moves to the end.
    SeekTooFar by 8,
    /// Nothing is ever trimmed.
    TrimsNothing by 20,
    /// A topic is trimmed without regard to its retention.
    TrimIgnoresRetention by 20,
    /// A topic is trimmed up to the cursors, without regard to open claims.
    TrimsClaimed by 1,
    /// Messages that are done but not reported do not count as claimed.
    ClaimsTooMany by 15,
    /// A rate is treated as half as much again.
    RateTooHigh by 15,
    /// A dead letter that is resent a second time gets the same copy as before.
    ResentSameCopy by 1,
    /// A producer acknowledges messages before they are appended.
    AckBeforeAppend by 1,
    /// A message that follows from another gets a new id each time.
    FollowerIdRandom by 2,
    /// A message whose handler timed out stays in flight, and is neither run again nor settled.
    TimedOutStaysInHand by 11,
    /// The lease lasts as long as the TTL, without a margin for the speed of clocks.
    NoLeaseMargin by 4,
    /// A claim that a crash of the store has restored is left to its worker, which has closed it.
    ReopenedClaimIgnored by 11,
    /// A worker with a journal takes over the claims of its previous incarnation as if nothing had been
    /// started.
    RecoveredRunsAgain by 3,
    /// A name that is taken for a period stays taken after the period.
    PeriodNeverEnds by 12,
    /// The limit per key is ignored.
    KeyLimitIgnored by 15,
    /// All missed ticks are pushed, where only the latest should be.
    AllMissedTicksPushed by 2,
    /// A claim that kills its workers is run again without end.
    NeverBuried by 4,
    /// A topic is deleted without the lanes of its groups.
    LanesOutliveTheirTopic by 2,
    /// A topic is deleted without the lanes that a worker created again in the meantime.
    RecreatedLanesRemain by 2,
    /// A worker reports that it is drained although it has messages in flight.
    DrainedTooEarly by 11,
    /// No missed tick is pushed, where the latest should be.
    NoMissedTickPushed by 1,
    /// The oldest missed tick is pushed, where the latest should be.
    OldestTickPushed by 2,
    /// Every message is given up instead of being started.
    GivesEverythingUp by 17,
    /// The deaths of the workers that held a claim are not counted.
    DeathsUncounted by 4,
    /// Cancelled messages are counted as dropped.
    CancelledCountsAsDropped by 10,
    /// Dead letters are counted as dropped.
    DeadCountsAsDropped by 10,
    /// A message other than the requested one is cancelled.
    CancelsAnother by 13,
    /// All dead letters are resent, where one should be.
    ResendsAll by 1,
    /// A dead letter is resent without a record of it.
    ResendUnnoted by 1,
    /// A dead letter that should be resent is dropped.
    ResendDrops by 1,
    /// When all dead letters are resent, those that the log has not read yet are treated as absent.
    EmptyBlockEndsResend by 1,
    /// A retry has no due time.
    RetryWithoutDue by 18,
    /// A failed message that waits in place is ready again at once.
    WaitsInVain by 18,
    /// A claim that was adopted is never run.
    AdoptedIsNotRun by 11,
    /// A worker judges others by its own TTL.
    OwnTtlForAll by 11,
    /// Claims under at-most-once are written in such a way that a crash of the store may undo them.
    LightUnderOnce by 3,
    /// A name that is taken for a period is free after half of it.
    PeriodEndsEarly by 12,
    /// A worker announces a newer format than it understands.
    OverstatesFormat by 16,
    /// A schedule stops after a missed tick.
    StopsTicking by 1,
    /// Ticks that are older than a minute are pushed, where they should be skipped.
    OldTicksPushed by 2,
}

#[cfg(feature = "planted")]
mod switch {
    use super::Bug;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static ON: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// Switches on one bug, or switches off all bugs with `None`. The switch applies to the whole process.
    pub fn plant(bug: Option<Bug>) {
        ON.store(bug.map_or(usize::MAX, |bug| bug as usize), Ordering::SeqCst);
    }

    /// Returns true if this bug is switched on.
    pub fn injected(bug: Bug) -> bool {
        ON.load(Ordering::Relaxed) == bug as usize
    }
}

#[cfg(not(feature = "planted"))]
mod switch {
    use super::Bug;

    /// Returns false: this program is built without the feature `planted`, so no bug can be switched on.
    #[inline(always)]
    pub const fn injected(_bug: Bug) -> bool {
        false
    }
}

pub use switch::injected;
#[cfg(feature = "planted")]
pub use switch::plant;
