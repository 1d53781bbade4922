//! What runs for a message: always the same command, or what the message itself says.

use bytes::Bytes;
use sawmill::{Context, Outcome};

use super::program::Program;
use super::runner::Runner;
#[cfg(any(feature = "deliver", feature = "kafka"))]
use super::runner::unwanted;
#[cfg(feature = "deliver")]
use crate::deliver::Delivery;
#[cfg(feature = "kafka")]
use crate::pool::Orders;

/// How a worker finds out what to run.
#[allow(clippy::large_enum_variant, reason = "there is one in a process")]
pub(crate) enum Task {
    /// This command, with the payload on its stdin.
    Program(Program),
    /// Each message is an order.
    #[cfg(feature = "kafka")]
    Orders(Orders),
    /// Nothing runs: each message is delivered.
    #[cfg(feature = "deliver")]
    Delivery(Delivery),
}

/// One run.
pub(crate) struct Job {
    pub(crate) program: Program,
    /// More variables for its environment.
    pub(crate) variables: Vec<(String, String)>,
    /// What is on its stdin.
    pub(crate) input: Bytes,
    /// Ends what killing the command does not end, such as a container.
    pub(crate) cleanup: Option<Program>,
}

impl Task {
    /// What to run for this message, or what becomes of one for which there is nothing to run.
    #[cfg_attr(
        not(any(feature = "deliver", feature = "kafka")),
        allow(clippy::unused_async, unused_variables, reason = "with more to do it is not")
    )]
    pub(super) async fn job(&self, runner: &Runner, context: &Context) -> Result<Job, Outcome> {
        match self {
            Self::Program(program) => Ok(Job::of(program, context)),
            // An order may have to be fetched, which takes its time.
            #[cfg(feature = "kafka")]
            Self::Orders(orders) => tokio::select! {
                biased;
                outcome = unwanted(context) => Err(outcome),
                job = orders.job(&runner.env, context) => job,
            },
            #[cfg(feature = "deliver")]
            Self::Delivery(delivery) => {
                let limit = runner.limits().timeout.unwrap_or(crate::deliver::TIMEOUT);
                let _entry = runner.runs.begin(context, None);
                Err(tokio::select! {
                    biased;
                    outcome = unwanted(context) => outcome,
                    delivered = runner.env.within(limit, delivery.deliver(&runner.env, context)) => {
                        delivered.unwrap_or_else(|| Outcome::retry(runner.late(limit)))
                    }
                })
            }
        }
    }
}

impl Job {
    fn of(program: &Program, context: &Context) -> Self {
        Self {
            program: program.clone(),
            variables: Vec::new(),
            input: context.payload().clone(),
            cleanup: None,
        }
    }
}
