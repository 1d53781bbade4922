//! Findings: the problems that a check of a store reports. A store with problems may still work.

use std::time::Duration;

use serde::Serialize;

use crate::humanize;
use crate::runtime::Timestamp;

/// The largest tolerated difference between two clocks. Due times are wrong by as much as the clocks differ.
pub const SKEW: Duration = Duration::from_secs(2);
/// The advice for clocks that differ.
pub const KEEP_TIME: &str =
    "have both machines keep the time (NTP): messages are started too early or too late";
/// The name of the check in findings about checks that could not run.
const NOT_CHECKED: &str = "not-checked";

/// A problem, or a check that could not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The name of the check: `stuck-claim`, `blocked-key`, `hot-key`, `clock-skew` or `held-back-trim`.
    /// Engines report `durability`, `held-transaction`, `rights` and `no-hints`. A check that could not run
    /// is `not-checked`.
    pub check: &'static str,
    /// The topic, if the finding concerns one.
    pub topic: Option<String>,
    /// The group, if the finding concerns one.
    pub group: Option<String>,
    /// A description of the problem.
    pub what: String,
    /// The advice: what to do about the problem.
    pub what_to_do: String,
    /// The subject of the finding, if its description may differ from one check to the next.
    #[serde(skip)]
    subject: Option<String>,
}

impl Finding {
    /// Creates a finding about the store itself. If a log and a ledger are in the same place, both are
    /// checked: their descriptions of the same problem must be equal.
    pub fn new(check: &'static str, what: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self {
            check,
            topic: None,
            group: None,
            what: what.into(),
            what_to_do: what_to_do.into(),
            subject: None,
        }
    }

    /// Says that the finding is about this group of this topic.
    #[must_use]
    pub fn about(mut self, topic: &str, group: &str) -> Self {
        (self.topic, self.group) = (Some(topic.to_owned()), Some(group.to_owned()));
        self
    }

    /// Creates a finding about a check that could not run, with advice on how to make it run. It does not
    /// claim that anything is wrong.
    pub fn not_checked(what: impl Into<String>, what_to_do: impl Into<String>) -> Self {
        Self::new(NOT_CHECKED, what, what_to_do)
    }

    /// Returns true for a problem, and false for a check that could not run.
    ///
    /// ```
    /// use sawmill_engine::storage::Finding;
    ///
    /// assert!(Finding::new("durability", "the disk is full of holes", "buy another").is_problem());
    /// assert!(!Finding::not_checked("nobody may look at the disk", "allow it").is_problem());
    /// ```
    pub fn is_problem(&self) -> bool {
        self.check != NOT_CHECKED
    }

    /// Compares a store's clock with this machine's clock. The store's clock was read between the times
    /// `before` and `after` of this machine. Returns a finding if the clocks differ by more than [`SKEW`].
    pub fn of_clock(store: &str, clock: Timestamp, (before, after): (Timestamp, Timestamp)) -> Option<Self> {
        let (apart, which) = apart(clock, (before, after));
        (apart > SKEW).then(|| {
            let what = format!("the clock of {store} is {} {which} this machine's", humanize::span(apart));
            Self { subject: Some(store.to_owned()), ..Self::new("clock-skew", what, KEEP_TIME) }
        })
    }

    /// Returns true if both report the same problem, even in different words.
    pub fn repeats(&self, other: &Self) -> bool {
        let place = |finding: &Self| (finding.check, finding.topic.clone(), finding.group.clone());
        let is_one = match (&self.subject, &other.subject) {
            (Some(one), Some(two)) => one == two,
            _ => self.what == other.what,
        };
        is_one && place(self) == place(other)
    }
}

/// Returns how far a time lies outside the span between two others, and on which side. The distance is zero
/// within the span.
pub fn apart(time: Timestamp, (before, after): (Timestamp, Timestamp)) -> (Duration, &'static str) {
    let (ahead, behind) = (time.since(after), before.since(time));
    if ahead > behind { (ahead, "ahead of") } else { (behind, "behind") }
}
