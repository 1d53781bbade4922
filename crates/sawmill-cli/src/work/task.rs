//! What runs for a message: always the same command, or what the message itself says.

use bytes::Bytes;
use sawmill::{Context, Outcome};

use super::program::Program;
#[cfg(feature = "kafka")]
use super::runner::{Runner, unwanted};
#[cfg(feature = "kafka")]
use crate::pool::Orders;

/// How a worker finds out what to run.
pub(crate) enum Task {
    /// This command, with the payload on its stdin.
    Program(Program),
    /// Each message is an order.
    #[cfg(feature = "kafka")]
    Orders(Orders),
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
    /// What to run for this message, or what becomes of one for which there is nothing.
    #[cfg(feature = "kafka")]
    pub(super) async fn job(&self, runner: &Runner, context: &Context) -> Result<Job, Outcome> {
        match self {
            Self::Program(program) => Ok(Job::of(program, context)),
            // An order may have to be fetched, which takes its time.
            Self::Orders(orders) => tokio::select! {
                biased;
                outcome = unwanted(context) => Err(outcome),
                job = orders.job(&runner.env, context) => job,
            },
        }
    }

    /// What to run for this message.
    #[cfg(not(feature = "kafka"))]
    #[allow(clippy::unused_async, reason = "with orders it is not")]
    pub(super) async fn job(&self, _: &super::runner::Runner, context: &Context) -> Result<Job, Outcome> {
        let Self::Program(program) = self;
        Ok(Job::of(program, context))
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
