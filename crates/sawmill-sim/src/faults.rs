//! The faults that a run may have, and those that took effect.
//!
//! A fault that never takes effect tests nothing. Each fault is therefore counted in a [`Tally`] when it
//! takes effect: an unknown outcome by what happened to the write, a lost race when the ledger refused it.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// The probability of an event, in ten-thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chance(u32);

impl Chance {
    /// Never.
    pub const NEVER: Chance = Chance(0);
    /// Always.
    pub const ALWAYS: Chance = Chance(Self::ALL as u32);
    pub(crate) const ALL: u64 = 10_000;

    /// A probability in percent.
    pub const fn percent(percent: u32) -> Self {
        Self::per_ten_thousand(percent * 100)
    }

    /// A probability in ten-thousandths.
    pub const fn per_ten_thousand(parts: u32) -> Self {
        if parts > Self::ALWAYS.0 { Self::ALWAYS } else { Self(parts) }
    }

    pub(crate) fn parts(self) -> u64 {
        u64::from(self.0)
    }
}

/// A random duration between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// The shortest.
    pub from: Duration,
    /// The longest.
    pub to: Duration,
}

impl Delay {
    /// Bounds in milliseconds.
    pub const fn millis(from: u64, to: u64) -> Self {
        Self { from: Duration::from_millis(from), to: Duration::from_millis(to) }
    }

    /// Bounds in microseconds.
    pub const fn micros(from: u64, to: u64) -> Self {
        Self { from: Duration::from_micros(from), to: Duration::from_micros(to) }
    }
}

/// The faults between the nodes and the store, and in the store. Probabilities are per call. Those of the
/// outcomes of one call add up, so their sum should stay below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// The latency of every call, each way.
    pub latency: Delay,
    /// How often one way takes longer…
    pub slow: Chance,
    /// …and by how much.
    pub slow_by: Delay,
    /// How often a call is refused before it has any effect.
    pub unavailable: Chance,
    /// How often a write takes effect but returns an unknown outcome.
    pub unknown_applied: Chance,
    /// How often a write never takes effect and returns an unknown outcome.
    pub unknown_lost: Chance,
    /// How often a write takes effect only after its caller got an unknown outcome…
    pub unknown_late: Chance,
    /// …and how much later.
    pub late_by: Delay,
    /// How often an append takes effect for a part of its messages and returns an unknown outcome.
    pub unknown_partial: Chance,
    /// How long a caller waits for an answer that does not arrive.
    pub timeout: Delay,
    /// How often an append is acknowledged before its messages are readable…
    pub late_visible: Chance,
    /// How often an append is delayed, like an open transaction, and acknowledged when it is readable…
    pub held_back: Chance,
    /// …and by how much, for both.
    pub visible_by: Delay,
    /// How often a notification does not reach a node.
    pub lost_notification: Chance,
    /// How often a read returns less than exists, or nothing of a shard.
    pub short_read: Chance,
    /// How often a promotion adds a message twice; only on a log without duplicate detection.
    pub doubled_promotion: Chance,
    /// How often a trim leaves messages for later that it could drop.
    pub late_trim: Chance,
    /// How often an acknowledged append adds its messages twice; only on a log without duplicate detection.
    pub doubled: Chance,
    /// How often an applied append of unknown outcome adds its messages twice; only on a log without
    /// duplicate detection.
    pub doubled_unknown: Chance,
}

impl Faults {
    /// A fast store without faults. The durations of disabled faults have sensible values, so that a scenario
    /// needs to set probabilities only.
    pub const fn calm() -> Self {
        Self {
            latency: Delay::micros(200, 2_000),
            slow: Chance::NEVER,
            slow_by: Delay::millis(20, 2_000),
            unavailable: Chance::NEVER,
            unknown_applied: Chance::NEVER,
            unknown_lost: Chance::NEVER,
            unknown_late: Chance::NEVER,
            late_by: Delay::millis(1, 5_000),
            unknown_partial: Chance::NEVER,
            timeout: Delay::millis(100, 3_000),
            late_visible: Chance::NEVER,
            held_back: Chance::NEVER,
            visible_by: Delay::millis(1, 3_000),
            lost_notification: Chance::NEVER,
            short_read: Chance::NEVER,
            doubled_promotion: Chance::NEVER,
            late_trim: Chance::NEVER,
            doubled: Chance::NEVER,
            doubled_unknown: Chance::NEVER,
        }
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal,)*) => {
        /// A kind of fault, counted when it takes effect.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind {
            $($(#[$doc])* $kind,)*
        }

        impl FaultKind {
            /// All kinds, in printing order.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$kind,)*];

            /// Returns its name in reports.
            pub fn name(self) -> &'static str {
                match self {
                    $(FaultKind::$kind => $name,)*
                }
            }
        }
    };
}

kinds! {
    /// A call or an answer travelled for longer than usual.
    Delay = "delay",
    /// A commit lost a race: the entry was not as expected.
    Conflict = "conflict",
    /// A write took effect but returned an unknown outcome.
    UnknownApplied = "unknown-applied",
    /// A write never took effect and returned an unknown outcome.
    UnknownLost = "unknown-lost",
    /// A write took effect after it had returned an unknown outcome.
    UnknownLate = "unknown-late",
    /// A write arrived after it had returned an unknown outcome, and was refused because the entry had
    /// changed.
    UnknownLateRefused = "unknown-late-refused",
    /// An append took effect in part and returned an unknown outcome.
    UnknownPartial = "unknown-partial",
    /// A call was refused before it had any effect.
    Unavailable = "unavailable",
    /// An append was acknowledged before its messages were readable.
    LateVisibility = "late-visibility",
    /// An append was delayed, and acknowledged when its messages were readable.
    HeldBack = "held-back",
    /// A message became readable before one that reached the store earlier, in the same shard.
    Overtaken = "overtaken",
    /// A notification did not reach a node.
    LostNotification = "lost-hint",
    /// A message was added twice.
    DoubledAppend = "doubled-append",
    /// A read returned less than existed.
    ShortRead = "short-read",
    /// A promotion added a message twice.
    DoubledPromotion = "doubled-promotion",
    /// A trim left messages for later that it could have dropped.
    LateTrim = "late-trim",
    /// A call failed because of a store outage.
    StoreOutage = "store-outage",
    /// A call failed because its node was cut off from the store.
    Partition = "partition",
    /// The store crashed and undid light writes.
    StoreCrash = "store-crash",
    /// A node crashed.
    Crash = "crash",
    /// A node was frozen for a while.
    Freeze = "freeze",
    /// A node's wall clock was offset.
    Skew = "skew",
}

/// How often each kind of fault took effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally([u64; FaultKind::ALL.len()]);

impl Tally {
    /// Counts one fault of this kind.
    pub fn strike(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// Returns how often this kind took effect.
    pub fn count(&self, kind: FaultKind) -> u64 {
        self.0[kind as usize]
    }
}

impl Default for Tally {
    fn default() -> Self {
        Self([0; FaultKind::ALL.len()])
    }
}

impl AddAssign<&Tally> for Tally {
    fn add_assign(&mut self, other: &Tally) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        FaultKind::ALL.iter().try_for_each(|kind| writeln!(f, "{:<22}{:>12}", kind.name(), self.count(*kind)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_add_up() {
        let mut sum = Tally::default();
        let mut one = Tally::default();
        one.strike(FaultKind::Crash);
        one.strike(FaultKind::Skew);
        sum += &one;
        sum += &one;
        assert_eq!(sum.count(FaultKind::Crash), 2);
        assert!(sum.to_string().contains("crash                            2\n"), "{sum}");
    }
}
