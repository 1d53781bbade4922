//! What a handler says became of a message. Outcomes are values, not errors: a snooze is no failure.

use std::fmt::Display;
use std::time::Duration;

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// It is done.
    Done,
    /// It failed and is to be tried again, when the group's [`RetryPolicy`](crate::RetryPolicy) says or after this
    /// time. It counts as an attempt: out of attempts, it goes to the dead letters.
    Retry {
        /// Why, for the people who will look at it.
        error: String,
        /// How long to wait; the policy decides if this is `None`.
        after: Option<Duration>,
    },
    /// Not now: to be tried again after this time, without counting as an attempt.
    Snooze(Duration),
    /// It can never succeed: to the dead letters at once.
    Dead(String),
    /// Something is wrong with this worker, not with the message: stop the worker and leave the message untouched, for
    /// another to take.
    Stop(String),
}

impl Outcome {
    /// It failed: try again as the group's policy says.
    pub fn retry(error: impl Display) -> Self {
        Self::Retry { error: error.to_string(), after: None }
    }

    /// It failed: try again after this time.
    pub fn retry_after(error: impl Display, after: Duration) -> Self {
        Self::Retry { error: error.to_string(), after: Some(after) }
    }

    /// It can never succeed.
    pub fn dead(reason: impl Display) -> Self {
        Self::Dead(reason.to_string())
    }

    /// Stop the worker, and leave the message untouched.
    pub fn stop(reason: impl Display) -> Self {
        Self::Stop(reason.to_string())
    }
}

/// What a handler may return: an [`Outcome`], nothing at all (done), or a `Result` whose error means "try again".
pub trait IntoOutcome {
    /// The outcome it stands for.
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
            // The alternate form shows the causes, for errors that keep them.
            Err(error) => Outcome::retry(format!("{error:#}")),
        }
    }
}

/// What a batch handler may return: one thing that stands for an outcome, meant for every message of the batch, or a `Vec`
/// of outcomes, one for each message in their order.
///
/// Messages that a too short `Vec` does not cover fail. A `Result` with a `Vec` may be returned too: its error fails every
/// message.
pub trait IntoOutcomes {
    /// The outcomes it stands for, in a batch of this many messages.
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
