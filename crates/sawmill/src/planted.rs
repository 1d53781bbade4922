//! Bugs that can be switched on, to show that the simulation would find them.
//!
//! Each stands at the one place in the core where the mistake would be made, and names the invariant that must find it, by its number in
//! ARCHITECTURE.md. Without the feature `planted` every hook is
//! the constant `false`, and nothing of this is left in the program.

macro_rules! bugs {
    ($($(#[doc = $doc:literal])+ $name:ident by $invariant:literal,)+) => {
        /// The bugs that are planted in the core.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Bug {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Bug {
            /// All of them, each with what is wrong and the number of the invariant that must find it.
            pub const ALL: &[(Bug, &str, u8)] = &[$((Bug::$name, concat!($($doc),+), $invariant),)+];
        }
    };
}

bugs! {
    /// A worker writes its progress into a claim that another has taken over.
    DroppedFence by 7,
    /// A message is marked done before its handler has run.
    AckBeforeEffect by 1,
    /// Messages are started without looking whether the lease is still good.
    NoLeaseCheck by 4,
    /// The lease is counted from the answer of the renewal, not from before it was sent.
    LeaseFromAnswer by 4,
    /// A worker is declared dead after half the TTL.
    HastyDeath by 11,
    /// A worker is declared dead whatever its version is by now.
    UncheckedDeath by 11,
    /// Claims are adopted by a list of members that is older than the claims.
    StaleMembers by 7,
    /// A failed message is marked done before its retry is in the log.
    RetryAfterMark by 1,
    /// In ordered groups a shard is grabbed although another worker holds a claim on it.
    OrderedGrabsAnyway by 6,
    /// In ordered groups a shard is handed over while its handlers still run.
    HandoverWhileRunning by 4,
    /// What a dead worker claimed under at-most-once is run again.
    LostRunsAgain by 3,
    /// A commit with an unknown outcome is taken for one that failed.
    UnknownMeansNo by 11,
    /// A commit with an unknown outcome is taken for one that succeeded.
    UnknownMeansYes by 4,
    /// A conflict is taken for a success.
    ConflictMeansYes by 4,
    /// Messages of one key run at the same time.
    NoKeyQueue by 6,
    /// The cursor moves past messages that were read but not taken.
    CursorTooFar by 8,
    /// An adopted block skips one message more than was done.
    SkipsOneMore by 11,
    /// The worker waits for hints alone, and never polls.
    HintsOnly by 11,
    /// A worker that was removed goes on with what it held.
    RemovedGoesOn by 4,
    /// A block is grabbed without looking which of its messages were cancelled.
    CancelUnseen by 13,
    /// After a seek a message that fails again gets the same copy as before.
    SameCopyAgain by 1,
    /// Messages in hand are started although the group is paused.
    PauseForgotten by 14,
    /// A worker uses a larger share of a limit before it has seen that others leave it so much.
    ShareGrowsAtOnce by 15,
    /// The name of a unique message whose push may still be under way is given to the next push.
    UniqueForgotten by 12,
    /// The id of a schedule's tick does not follow from its time.
    TickTwice by 2,
    /// A program that is older than the format of an entry rewrites it, without what it does not know.
    OldRewritesNew by 16,
    /// The store's format is raised although a living member does not understand the new one.
    FormatTooSoon by 16,
    /// A worker that joins does not look whether it understands the store's format.
    FormatNotChecked by 16,
    /// A message is given up one failure before its retries are used up.
    GivesUpEarly by 17,
    /// What was given back under at-most-once, and never started, is taken for lost.
    GivenBackIsLost by 17,
    /// A claim is buried after two deaths of its workers.
    BuriedTooSoon by 17,
    /// A message is tried once more than its group retries.
    OneRetryMore by 18,
    /// A retry is due at once, whatever the backoff says.
    RetriedAtOnce by 18,
    /// A retry is due after four times its backoff.
    RetriedLate by 18,
    /// A message that snoozes in place is ready again at once.
    SnoozeIgnored by 18,
    /// Messages that may be appended twice are spread by their ids, also if they have a key.
    ShardIgnoresKey by 19,
    /// Retries count as dead letters.
    CountsSwapped by 10,
    /// A worker is declared dead after twice its TTL and four seconds.
    SlowDeath by 11,
    /// The name of a unique message that became a dead letter is not given back.
    DeadNameNotFreed by 12,
    /// A name is given back only if its pusher could say that the message is in the log.
    UnsureNameNotFreed by 12,
    /// A name that is reserved is taken for one whose message is in the log.
    ReservedNameIsPushed by 1,
    /// What is in hand is not looked through when messages are cancelled.
    CancelledInHandRuns by 13,
    /// A seek leaves the last shard where it is.
    SeekForgetsAShard by 8,
    /// A seek to a time goes to the end.
    SeekTooFar by 8,
    /// Nothing is ever trimmed.
    TrimsNothing by 20,
    /// A topic is trimmed without regard to its retention.
    TrimIgnoresRetention by 20,
    /// A topic is trimmed up to the cursors, without regard to open claims.
    TrimsClaimed by 1,
    /// What is done and not reported does not count as claimed.
    ClaimsTooMany by 15,
    /// A rate is taken for half as much again.
    RateTooHigh by 15,
    /// A dead letter that is sent back a second time gets the same copy as before.
    ResentSameCopy by 1,
    /// A producer acknowledges messages before they are appended.
    AckBeforeAppend by 1,
    /// A message that follows from another gets a new id each time.
    FollowerIdRandom by 2,
    /// A message whose handler took too long stays in hand, and is neither run again nor settled.
    TimedOutStaysInHand by 11,
    /// The lease lasts as long as the TTL, whatever the speed of clocks.
    NoLeaseMargin by 4,
    /// A claim that a crash of the store has brought back is left to its worker, who has closed it.
    ReopenedClaimIgnored by 11,
    /// A worker with a journal takes over what its former life had claimed as if nothing had been started.
    RecoveredRunsAgain by 3,
    /// A name that is taken for a time stays taken when that is over.
    PeriodNeverEnds by 12,
    /// The limit of each key is not looked at.
    KeyLimitIgnored by 15,
    /// Of the ticks that were missed all are pushed, where only the latest should be.
    AllMissedTicksPushed by 2,
    /// A claim that kills its workers is run again and again.
    NeverBuried by 4,
    /// A topic is deleted without the lanes of its groups.
    LanesOutliveTheirTopic by 2,
    /// A topic is deleted without the lanes that a worker made anew meanwhile.
    RecreatedLanesRemain by 2,
    /// A worker says that it is drained although it has messages in hand.
    DrainedTooEarly by 11,
    /// Of the ticks that were missed none is pushed, where the latest should be.
    NoMissedTickPushed by 1,
    /// Of the ticks that were missed the oldest is pushed, where the latest should be.
    OldestTickPushed by 2,
    /// Every message is given up instead of being started.
    GivesEverythingUp by 17,
    /// The deaths of the workers that held a claim are not counted.
    DeathsUncounted by 4,
    /// Cancelled messages count as dropped.
    CancelledCountsAsDropped by 10,
    /// Dead letters count as dropped.
    DeadCountsAsDropped by 10,
    /// Another message is cancelled than the one that was asked for.
    CancelsAnother by 13,
    /// Where one dead letter is to be sent back, all are.
    ResendsAll by 1,
    /// A dead letter is sent back, and that is not noted.
    ResendUnnoted by 1,
    /// A dead letter that is to be sent back is dropped.
    ResendDrops by 1,
    /// Letters that the log has not looked for yet are taken for none when all are to be sent back.
    EmptyBlockEndsResend by 1,
    /// A retry has no due time.
    RetryWithoutDue by 18,
    /// A failed message that waits in place is ready again at once.
    WaitsInVain by 18,
    /// A claim that was adopted is never run.
    AdoptedIsNotRun by 11,
    /// A worker judges others by its own TTL.
    OwnTtlForAll by 11,
    /// Claims under at-most-once are written so that a crash of the store may undo them.
    LightUnderOnce by 3,
    /// A name that is taken for a time is free after half of it.
    PeriodEndsEarly by 12,
    /// A worker says that it understands a newer format than it does.
    OverstatesFormat by 16,
    /// A schedule stops when a tick was missed.
    StopsTicking by 1,
    /// Ticks that are older than a minute are pushed, where they should be left out.
    OldTicksPushed by 2,
}

#[cfg(feature = "planted")]
mod switch {
    use super::Bug;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static ON: AtomicUsize = AtomicUsize::new(usize::MAX);

    /// Switches one bug on, or all off. For the whole process.
    pub fn plant(bug: Option<Bug>) {
        ON.store(bug.map_or(usize::MAX, |bug| bug as usize), Ordering::SeqCst);
    }

    pub(crate) fn is(bug: Bug) -> bool {
        ON.load(Ordering::Relaxed) == bug as usize
    }
}

#[cfg(not(feature = "planted"))]
mod switch {
    use super::Bug;

    #[inline(always)]
    pub(crate) const fn is(_bug: Bug) -> bool {
        false
    }
}

pub(crate) use switch::is;
#[cfg(feature = "planted")]
pub use switch::plant;
