//! Outcomes of handlers. They are values, not errors, because not every outcome is a failure: a snooze is
//! none.

use std::fmt::Display;
use std::time::Duration;

/// The outcome of a handler: what becomes of its message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The message is done.
    Done,
    /// The attempt failed: retry the message after `after`, or when the group's
    /// [`RetryPolicy`](crate::RetryPolicy) says. A message that is out of attempts becomes a dead letter.
    Retry {
        /// The error, for people.
        error: String,
        /// How long to wait; with `None`, the policy decides.
        after: Option<Duration>,
    },
    /// Handle the message again after this time. This does not count as an attempt. Under at-most-once, which
    /// never starts a message again, it becomes a dead letter.
    Snooze(Duration),
    /// The message can never succeed: make it a dead letter at once, for this reason.
    Dead(String),
    /// The worker has a problem, not the message: stop the worker for this reason, and leave the message
    /// untouched for another worker. Under at-most-once the message becomes a dead letter.
    Stop(String),
}

impl Outcome {
    /// Returns [`Retry`](Outcome::Retry): the attempt failed, retry as the group's policy says.
    pub fn retry(error: impl Display) -> Self {
        Self::Retry { error: error.to_string(), after: None }
    }

    /// Returns [`Retry`](Outcome::Retry): the attempt failed, retry after this time.
    pub fn retry_after(error: impl Display, after: Duration) -> Self {
        Self::Retry { error: error.to_string(), after: Some(after) }
    }

    /// Returns [`Dead`](Outcome::Dead): the message can never succeed.
    pub fn dead(reason: impl Display) -> Self {
        Self::Dead(reason.to_string())
    }

    /// Returns [`Stop`](Outcome::Stop): stop the worker, and leave the message untouched.
    pub fn stop(reason: impl Display) -> Self {
        Self::Stop(reason.to_string())
    }
}

/// The result of a handler: an [`Outcome`], `()` for done, or a `Result` whose error means retry.
pub trait IntoOutcome {
    /// Converts into the outcome.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl IntoOutcome for () {
    fn into_outcome(self) -> Outcome {
        Outcome::Done
    }
}

impl<T: IntoOutcome, E: Display> IntoOutcome for Result<T, E> {
    fn into_outcome(self) -> Outcome {
        match self {
            Ok(value) => value.into_outcome(),
            // The alternate form includes the causes, for errors that keep them.
            Err(error) => Outcome::retry(format!("{error:#}")),
        }
    }
}

/// The result of a batch handler: one [outcome](IntoOutcome) for the whole batch, or a `Vec` with one outcome
/// for each message, in their order.
///
/// If the `Vec` is too short, the remaining messages fail. A `Result` with a `Vec` is possible too: its error
/// fails every message.
pub trait IntoOutcomes {
    /// Converts into the outcomes of a batch of `count` messages.
    fn into_outcomes(self, count: usize) -> Vec<Outcome>;
}

impl<T: IntoOutcome> IntoOutcomes for T {
    fn into_outcomes(self, count: usize) -> Vec<Outcome> {
        vec![self.into_outcome(); count]
    }
}

impl IntoOutcomes for Vec<Outcome> {
    fn into_outcomes(self, _count: usize) -> Vec<Outcome> {
        self
    }
}

impl<E: Display> IntoOutcomes for Result<Vec<Outcome>, E> {
    fn into_outcomes(self, count: usize) -> Vec<Outcome> {
        match self {
            Ok(outcomes) => outcomes,
            Err(error) => Err::<(), E>(error).into_outcomes(count),
        }
    }
}
