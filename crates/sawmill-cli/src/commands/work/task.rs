//! The task of a worker: the same command for every message, the order in the message, or a delivery.

use bytes::Bytes;
use sawmill::{Context, Outcome};

use super::program::Program;
use super::runner::Runner;
#[cfg(any(feature = "deliver", feature = "kafka"))]
use super::runner::unwanted;
#[cfg(feature = "deliver")]
use crate::commands::deliver::Delivery;
#[cfg(feature = "kafka")]
use crate::commands::pool::Orders;

/// The task of a worker.
#[allow(clippy::large_enum_variant, reason = "there is one in a process")]
pub(crate) enum Task {
    /// Runs this command, with the payload on its stdin.
    Program(Program),
    /// Runs the order that each message contains.
    #[cfg(feature = "kafka")]
    Orders(Orders),
    /// Delivers each message, without a process.
    #[cfg(feature = "deliver")]
    Delivery(Delivery),
}

/// One run.
pub(crate) struct Job {
    pub(crate) program: Program,
    /// Additional environment variables.
    pub(crate) variables: Vec<(String, String)>,
    /// The input for its stdin.
    pub(crate) input: Bytes,
    /// Cleans up what killing the command does not end, such as a container.
    pub(crate) cleanup: Option<Program>,
}

impl Task {
    /// Returns the job for a message, or its outcome if there is nothing to run.
    #[cfg_attr(
        not(any(feature = "deliver", feature = "kafka")),
        allow(clippy::unused_async, unused_variables, reason = "with more to do it is not")
    )]
    pub(super) async fn job(&self, runner: &Runner, context: &Context) -> Result<Job, Outcome> {
        match self {
            Self::Program(program) => Ok(Job::of(program, context)),
            // Fetching an order may take time, so the run can be cancelled meanwhile.
            #[cfg(feature = "kafka")]
            Self::Orders(orders) => tokio::select! {
                biased;
                outcome = unwanted(context) => Err(outcome),
                job = orders.job(&runner.env, context) => job,
            },
            #[cfg(feature = "deliver")]
            Self::Delivery(delivery) => {
                let limit = runner.limits().timeout.unwrap_or(crate::commands::deliver::TIMEOUT);
                let _entry = runner.runs.begin(context, None);
                Err(tokio::select! {
                    biased;
                    outcome = unwanted(context) => outcome,
                    delivered = runner.env.within(limit, delivery.deliver(&runner.env, context)) => {
                        delivered.unwrap_or_else(|| Outcome::retry(runner.timeout_error(limit)))
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
