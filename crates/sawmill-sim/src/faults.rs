//! Which faults a run may meet, and which it really met.
//!
//! A simulation that never struck proves nothing, so every fault counts itself in a [`Tally`] at the moment it takes
//! effect: an unknown outcome is counted by what became of the write, a lost race when the ledger refused it.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

/// How often something happens, in ten-thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chance(u32);

impl Chance {
    /// It does not happen.
    pub const NEVER: Chance = Chance(0);
    /// It happens each time.
    pub const ALWAYS: Chance = Chance(Self::ALL as u32);
    pub(crate) const ALL: u64 = 10_000;

    /// So many times in a hundred.
    pub const fn percent(percent: u32) -> Self {
        Self::per_ten_thousand(percent * 100)
    }

    /// So many times in ten thousand.
    pub const fn per_ten_thousand(parts: u32) -> Self {
        if parts > Self::ALWAYS.0 { Self::ALWAYS } else { Self(parts) }
    }

    pub(crate) fn parts(self) -> u64 {
        u64::from(self.0)
    }
}

/// How long something takes: any duration from the shortest to the longest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delay {
    /// The shortest.
    pub from: Duration,
    /// The longest.
    pub to: Duration,
}

impl Delay {
    /// From so many to so many milliseconds.
    pub const fn millis(from: u64, to: u64) -> Self {
        Self { from: Duration::from_millis(from), to: Duration::from_millis(to) }
    }

    /// From so many to so many microseconds.
    pub const fn micros(from: u64, to: u64) -> Self {
        Self { from: Duration::from_micros(from), to: Duration::from_micros(to) }
    }
}

/// What may go wrong on the way to the store and in it. The chances are per call; those of the outcomes of one call
/// add up, so together they should stay below one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// How long every call travels, each way.
    pub latency: Delay,
    /// How often a way takes longer…
    pub slow: Chance,
    /// …and by how much.
    pub slow_by: Delay,
    /// How often a call is refused before it has any effect.
    pub unavailable: Chance,
    /// How often a write takes effect and its caller is told that the outcome is unknown.
    pub unknown_applied: Chance,
    /// How often a write never takes effect and its caller is told that the outcome is unknown.
    pub unknown_lost: Chance,
    /// How often a write takes effect only after its caller was told that the outcome is unknown…
    pub unknown_late: Chance,
    /// …and how long after.
    pub late_by: Delay,
    /// How often an append takes effect for a part of its messages, and its outcome is told as unknown.
    pub unknown_partial: Chance,
    /// How long a caller waits for an answer that does not come.
    pub timeout: Delay,
    /// How often an append is acknowledged before its messages can be read…
    pub late_visible: Chance,
    /// How often an append is held back, like a transaction left open, and acknowledged when it can be read…
    pub held_back: Chance,
    /// …and by how much, for both.
    pub visible_by: Delay,
    /// How often a hint does not reach a node.
    pub lost_hint: Chance,
    /// How often a read answers less than there is, or nothing of a shard.
    pub short_read: Chance,
    /// How often a promotion adds a message twice; only on a log that cannot tell.
    pub doubled_promotion: Chance,
    /// How often a trim leaves for later what it may drop, or a part of it.
    pub late_trim: Chance,
    /// How often an acknowledged append adds its messages twice; only on a log that cannot tell.
    pub doubled: Chance,
    /// How often an append of unknown outcome that took effect adds its messages twice; only on a log that cannot tell.
    pub doubled_unknown: Chance,
}

impl Faults {
    /// A store that is quick and does nothing wrong. The bounds of what does not happen are set to sensible values, so
    /// that a scenario needs to set chances only.
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
            lost_hint: Chance::NEVER,
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
        /// A kind of fault, as it is counted when it strikes.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum FaultKind {
            $($(#[$doc])* $kind,)*
        }

        impl FaultKind {
            /// All kinds, in the order in which they are printed.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$kind,)*];

            /// What it is called in a report.
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
    /// A commit lost its race: the entry was not as expected.
    Conflict = "conflict",
    /// A write took effect, and its caller was told that the outcome is unknown.
    UnknownApplied = "unknown-applied",
    /// A write never took effect, and its caller was told that the outcome is unknown.
    UnknownLost = "unknown-lost",
    /// A write took effect after its caller was told that the outcome is unknown.
    UnknownLate = "unknown-late",
    /// A write came after its caller was told that the outcome is unknown, and was refused: the entry had moved on.
    UnknownLateRefused = "unknown-late-refused",
    /// An append took effect in part, and its caller was told that the outcome is unknown.
    UnknownPartial = "unknown-partial",
    /// A call was refused before it had any effect.
    Unavailable = "unavailable",
    /// An append was acknowledged before its messages could be read.
    LateVisibility = "late-visibility",
    /// An append was held back, and acknowledged when its messages could be read.
    HeldBack = "held-back",
    /// A message became readable before one that reached the store earlier, in the same shard.
    Overtaken = "overtaken",
    /// A hint did not reach a node.
    LostHint = "lost-hint",
    /// A message was added twice.
    DoubledAppend = "doubled-append",
    /// A read answered less than there was.
    ShortRead = "short-read",
    /// A promotion added a message twice.
    DoubledPromotion = "doubled-promotion",
    /// A trim left for later what it could have dropped.
    LateTrim = "late-trim",
    /// A call failed because the store was out.
    StoreOutage = "store-outage",
    /// A call failed because its node was cut off from the store.
    Partition = "partition",
    /// The store crashed, and undid what was written lightly.
    StoreCrash = "store-crash",
    /// A node crashed.
    Crash = "crash",
    /// A node stood still for a while.
    Freeze = "freeze",
    /// A node's wall clock was set wrong.
    Skew = "skew",
}

/// How often each kind of fault struck.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally([u64; FaultKind::ALL.len()]);

impl Tally {
    /// Counts one more of this kind.
    pub fn strike(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// How often this kind struck.
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
