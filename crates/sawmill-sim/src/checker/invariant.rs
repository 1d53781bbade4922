//! The invariants, by number and description, and how often each was checked.

use std::fmt;
use std::ops::AddAssign;

macro_rules! invariants {
    ($($name:ident = $number:literal, $words:literal;)*) => {
        /// An invariant. The numbers are those of the design.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Invariant {
            $(#[doc = $words] $name,)*
        }

        impl Invariant {
            /// All invariants.
            pub const ALL: &[Invariant] = &[$(Invariant::$name,)*];

            /// Returns its number.
            pub fn number(self) -> u8 {
                match self { $(Invariant::$name => $number,)* }
            }

            /// Returns the invariant with this number.
            pub fn numbered(number: u8) -> Option<Self> {
                Self::ALL.iter().copied().find(|invariant| invariant.number() == number)
            }

            /// Returns its description.
            pub fn words(self) -> &'static str {
                match self { $(Invariant::$name => $words,)* }
            }
        }
    };
}

invariants! {
    NothingLost = 1, "nothing acknowledged is lost";
    NothingInvented = 2, "only pushed messages of existing topics are delivered, with their payload, key and headers unchanged";
    AtMostOnce = 3, "at-most-once: one start at most";
    AtLeastOnce = 4, "a second start only after the first failed, or its worker died or lost its claim";
    Ordered = 6, "ordered: starts follow the log, and the next waits until this one is done or dead";
    StaleWriter = 7, "a stale writer changes nothing";
    Cursor = 8, "a cursor never moves back, and all before it is done, claimed, retrying or dead";
    DueTime = 9, "no start before the due time";
    CountsConserve = 10, "counts conserve";
    Drains = 11, "the backlog drains when faults end; only silent workers are declared dead; a drained worker holds nothing";
    Unique = 12, "of messages with one name no two are live, and no name stays taken";
    Cancelled = 13, "what was cancelled while it waited is not started";
    Paused = 14, "a paused group starts nothing";
    Limited = 15, "a limited group runs, starts and claims no more than it may";
    Formats = 16, "no program drops data of a newer one, and every living member understands the store's format";
    GivenUp = 17, "a message becomes a dead letter only for a known reason";
    Retried = 18, "a failed message is retried as often as its policy says, and not before its backoff is over";
    OneShard = 19, "the messages of a key lie in one shard";
    Trimmed = 20, "a message that no group needs is trimmed after the retention, and not before";
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant {} ({})", self.number(), self.words())
    }
}

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// What happened.
    pub what: String,
    /// Texts that identify the relevant lines of a history: message ids and entry keys.
    pub about: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// How often each invariant was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checks([u64; Invariant::ALL.len()]);

impl Default for Checks {
    fn default() -> Self {
        Self([0; Invariant::ALL.len()])
    }
}

impl Checks {
    /// Counts one check of this invariant.
    pub(crate) fn count(&mut self, invariant: Invariant) {
        self.0[invariant as usize] += 1;
    }

    /// Returns how often it was checked.
    pub fn of(&self, invariant: Invariant) -> u64 {
        self.0[invariant as usize]
    }
}

impl AddAssign<&Checks> for Checks {
    fn add_assign(&mut self, other: &Checks) {
        for (sum, count) in self.0.iter_mut().zip(other.0) {
            *sum += count;
        }
    }
}

impl fmt::Display for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Invariant::ALL.iter().try_for_each(|invariant| {
            writeln!(f, "{:>2}  {:>12}  {}", invariant.number(), self.of(*invariant), invariant.words())
        })
    }
}
