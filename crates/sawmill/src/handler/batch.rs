//! Batch handlers: they take several messages in one call.

use std::marker::PhantomData;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, ready};
use sawmill_engine::{Error, Result};

use super::{Context, FromContext, FromStates, Function, State, States};
use crate::handler::{IntoOutcomes, Outcome};

/// The size of batches, and how long to wait for a full one; see
/// [`start_batch`](crate::WorkerBuilder::start_batch).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batch {
    pub(crate) size: usize,
    pub(crate) linger: Duration,
}

impl Batch {
    /// Makes batches of as many messages as are ready, at most `size`. A size of zero keeps the worker from
    /// starting.
    pub fn of(size: usize) -> Self {
        Self { size, linger: Duration::ZERO }
    }

    /// Waits up to this long for a full batch, from when a slot is free and the first message is ready. The
    /// default is not to wait.
    #[must_use]
    pub fn linger(mut self, linger: Duration) -> Self {
        self.linger = linger;
        self
    }

    pub(crate) fn check(self) -> Result<()> {
        match self.size {
            0 => Err(Error::invalid("a batch of no messages makes no sense: choose one or more")),
            _ => Ok(()),
        }
    }
}

/// The arguments of a batch handler: a `Vec` of anything that is made [from a context](FromContext), with one
/// item for each message, followed by up to three [`State`]s.
#[diagnostic::on_unimplemented(
    message = "these cannot be the arguments of a batch handler",
    note = "the first is a `Vec` of what a handler of single messages could take, such as `Vec<Json<T>>` or `Vec<(Context, Json<T>)>`; up to three `State<T>` may follow"
)]
pub trait FromBatch: Sized + Send {
    /// The type of the items, each made from one message.
    type Each: FromContext;

    /// Makes the arguments from the items. Fails if a state is missing.
    fn from_batch(batch: Vec<Self::Each>, states: &States) -> Result<Self>;
}

macro_rules! from_batch {
    ($($A:ident)*) => {
        impl<T: FromContext, $($A: Send + Sync + 'static),*> FromBatch for (Vec<T>, $(State<$A>,)*) {
            type Each = T;

            fn from_batch(batch: Vec<T>, _states: &States) -> Result<Self> {
                Ok((batch, $(State::<$A>::from_states(_states)?,)*))
            }
        }
    };
}

from_batch!();
from_batch!(A);
from_batch!(A B);
from_batch!(A B C);

/// Handles batches of messages.
pub(crate) trait BatchHandler: Send + Sync {
    /// Handles a batch. Messages whose arguments cannot be made are refused: `refused` gets one item for each
    /// message, with the outcome of refused ones. The future returns the outcomes of the others, in their
    /// order.
    fn call(&self, batch: &[Context], refused: &mut Vec<Option<Outcome>>)
    -> BoxFuture<'static, Vec<Outcome>>;

    fn check(&self, states: &States) -> Result<()>;
}

/// Makes a function a batch handler.
pub(crate) fn batched<F, Args>(function: F) -> Box<dyn BatchHandler>
where
    F: Function<Args, Output: Future<Output: IntoOutcomes> + Send + 'static>,
    Args: FromBatch + 'static,
{
    Box::new(Batched { function, arguments: PhantomData })
}

struct Batched<F, Args> {
    function: F,
    arguments: PhantomData<fn(Args)>,
}

impl<F, Args> BatchHandler for Batched<F, Args>
where
    F: Function<Args, Output: Future<Output: IntoOutcomes> + Send + 'static>,
    Args: FromBatch + 'static,
{
    fn call(
        &self,
        batch: &[Context],
        refused: &mut Vec<Option<Outcome>>,
    ) -> BoxFuture<'static, Vec<Outcome>> {
        let mut accepted = Vec::with_capacity(batch.len());
        for context in batch {
            refused.push(match Args::Each::from_context(context) {
                Ok(each) => {
                    accepted.push(each);
                    None
                }
                Err(outcome) => Some(outcome),
            });
        }
        let (Some(first), count @ 1..) = (batch.first(), accepted.len()) else {
            return ready(Vec::new()).boxed();
        };
        match Args::from_batch(accepted, &first.source.site.states) {
            Ok(arguments) => self.function.call(arguments).map(move |said| said.into_outcomes(count)).boxed(),
            Err(error) => ready(vec![Outcome::stop(error); count]).boxed(),
        }
    }

    fn check(&self, states: &States) -> Result<()> {
        Args::Each::check(states)?;
        Args::from_batch(Vec::new(), states).map(drop)
    }
}

/// Merges the outcomes of refused messages with those that the handler returned for the others, in the order
/// of the batch.
pub(crate) fn share_out(refused: Vec<Option<Outcome>>, said: Vec<Outcome>) -> Vec<Outcome> {
    let (accepted, count) = (refused.iter().filter(|refused| refused.is_none()).count(), said.len());
    if accepted != count {
        tracing::warn!(
            messages = accepted,
            outcomes = count,
            "a batch handler returned a wrong number of outcomes"
        );
    }
    let mut said = said.into_iter();
    let mut next = || {
        said.next().unwrap_or_else(|| {
            Outcome::retry(format!(
                "the batch handler was given {accepted} messages and returned {count} outcomes: it has to return one for each"
            ))
        })
    };
    refused.into_iter().map(|refused| refused.unwrap_or_else(&mut next)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q24_what_was_refused_keeps_its_place() {
        let refused = vec![None, Some(Outcome::dead("broken")), None];
        let outcomes = share_out(refused, vec![Outcome::Done, Outcome::retry("busy")]);
        assert_eq!(outcomes, [Outcome::Done, Outcome::dead("broken"), Outcome::retry("busy")]);
    }

    #[test]
    fn q24_messages_without_an_outcome_fail() {
        let outcomes = share_out(vec![None, None, None], vec![Outcome::Done]);
        assert_eq!(outcomes[0], Outcome::Done);
        for outcome in &outcomes[1..] {
            let Outcome::Retry { error, .. } = outcome else { panic!("{outcome:?}") };
            assert!(error.contains("given 3 messages and returned 1 outcomes"), "{error}");
        }
        let outcomes = share_out(vec![None], vec![Outcome::Done, Outcome::dead("whose?")]);
        assert_eq!(outcomes, [Outcome::Done], "extra outcomes are ignored");
    }
}
