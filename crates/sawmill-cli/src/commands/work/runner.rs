//! The state that all runs of a worker share, and the start of commands.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill::{Context, Outcome};
use tokio::process::{Child, Command};

use super::environment::is_of_message;
use super::minder::Minder;
use super::process_group::ProcessGroup;
use super::program::Program;
use super::running::Runs;
use super::settings::{Delivery, Plan};
use super::task::Task;
use crate::terminal::live;
use crate::values::Size;

/// The time between SIGTERM and SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// Attempts and pauses for starting a command while resources are short.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// The limits of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory: Option<Size>,
}

pub(crate) struct Runner {
    /// The task that runs for a message.
    pub(crate) task: Task,
    limits: Mutex<Limits>,
    /// The stdout of commands goes through this process, so that it does not garble the live line.
    relays: bool,
    /// A message that was given to a run is never given to another (at-most-once).
    pub(crate) once: bool,
    /// How long to wait after exit code 75.
    pub(crate) snooze: Duration,
    /// The folder that hooks and commands share.
    pub(crate) shared: PathBuf,
    pub(crate) env: Env,
    pub(crate) runs: Arc<Runs>,
    pub(crate) minder: Arc<Minder>,
    /// The worker is being aborted, so failures of runs do not count.
    aborting: AtomicBool,
}

impl Runner {
    pub(crate) fn new(
        plan: &Plan,
        task: Task,
        shared: PathBuf,
        env: Env,
    ) -> Result<Arc<Self>, crate::failure::Failure> {
        Ok(Arc::new(Self {
            task,
            limits: Mutex::new(Limits { timeout: plan.timeout, memory: plan.memory }),
            relays: !plan.quiet && live::is_seen() && io::stdout().is_terminal(),
            once: plan.delivery == Delivery::AtMostOnce,
            snooze: plan.snooze,
            minder: Arc::new(Minder::start(shared.clone())?),
            shared,
            runs: Runs::new(env.clone()),
            env,
            aborting: AtomicBool::new(false),
        }))
    }

    /// Returns the limits for a run that begins now.
    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.limits.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = limits;
    }

    /// Sends SIGTERM to all runs, and waits up to `GRACE` for them. Runs that do not end successfully are not
    /// settled.
    pub(crate) async fn terminate(&self) {
        self.aborting.store(true, Ordering::SeqCst);
        self.runs.terminate();
        let _ = self.env.within(GRACE, self.runs.idle()).await;
    }

    /// Returns the outcome, unless the message failed while the worker is being aborted: then this waits
    /// until the worker drops it.
    pub(crate) async fn report(&self, outcome: Outcome) -> Outcome {
        if self.is_aborting() && outcome != Outcome::Done {
            std::future::pending::<()>().await;
        }
        outcome
    }

    pub(crate) fn is_aborting(&self) -> bool {
        self.aborting.load(Ordering::SeqCst)
    }

    /// Prepares a command.
    pub(crate) fn command(&self, program: &Program) -> Command {
        let mut command = Command::new(&program.path);
        command.args(&program.args).env("SAWMILL_STATE", &self.shared);
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(is_of_message) {
                command.env_remove(name);
            }
        }
        command.stdin(Stdio::piped()).stderr(Stdio::piped());
        if self.relays {
            command.stdout(Stdio::piped());
        }
        command
    }

    /// Starts a command. If that is impossible, the worker stops: the message is not at fault.
    pub(crate) async fn start(&self, command: &mut Command) -> Result<(Arc<ProcessGroup>, Child), Outcome> {
        let mut tries = 0;
        loop {
            let error = match ProcessGroup::start(command, self.limits().memory, &self.minder) {
                Ok((group, child)) => return Ok((Arc::new(group), child)),
                Err(error) => error,
            };
            tries += 1;
            if !is_retryable(&error) || tries == TRIES {
                let program = command.as_std().get_program().display();
                return Err(Outcome::stop(format!("the command {program} cannot be started: {error}")));
            }
            self.env.sleep(PAUSE).await;
        }
    }

    /// Returns the error of a run that exceeded its time limit.
    pub(crate) fn timeout_error(&self, limit: Duration) -> String {
        format!("it took longer than its timeout of {limit:?}")
    }

    /// Returns a hint for an error that the memory limit may have caused. A process that gets no memory is
    /// not killed; it has to report that itself.
    pub(crate) fn memory_hint(&self, stderr: &str, killed: bool) -> String {
        let mentions_memory = stderr.to_lowercase().contains("memory") || stderr.contains("bad_alloc");
        match self.limits().memory {
            Some(limit) if killed || mentions_memory => {
                format!(" (it may have reached its memory limit of {limit})")
            }
            _ => String::new(),
        }
    }
}

/// True for temporary errors: too many processes or files, or a script that is still being written.
fn is_retryable(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::TXTBSY];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

/// Waits until the run is no longer wanted; nobody uses its outcome then.
pub(crate) async fn unwanted(context: &Context) -> Outcome {
    context.cancelled().await;
    Outcome::retry("it was not wanted any more")
}
