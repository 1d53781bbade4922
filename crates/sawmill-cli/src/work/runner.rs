//! What all runs of a worker have in common, and how a command is started.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::env::Env;
use sawmill::{Context, Outcome};
use tokio::process::{Child, Command};

use super::environment::is_of_message;
use super::minder::Minder;
use super::process_group::ProcessGroup;
use super::program::Program;
use super::running::Runs;
use super::settings::{Delivery, Plan};
use super::task::Task;
use crate::live;
use crate::written::Size;

/// How long a group has between SIGTERM and SIGKILL.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// How often, and after what time, a command is tried again that could not be started for want of means.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(250);

/// What a run may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) memory: Option<Size>,
}

pub(crate) struct Runner {
    /// What runs for a message.
    pub(crate) task: Task,
    limits: Mutex<Limits>,
    /// What commands say on stdout goes through this process, so that it does not garble the live line.
    relays: bool,
    /// A message that was given to a run is never given to another.
    pub(crate) once: bool,
    /// How long a message waits whose command said "later".
    pub(crate) snooze: Duration,
    /// The folder that hooks and commands share.
    pub(crate) shared: PathBuf,
    pub(crate) env: Env,
    pub(crate) runs: Arc<Runs>,
    pub(crate) minder: Arc<Minder>,
    /// Whatever fails from now on fails because it was made to end.
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

    /// What a run that begins now may take.
    pub(crate) fn limits(&self) -> Limits {
        *self.limits.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn set_limits(&self, limits: Limits) {
        *self.limits.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = limits;
    }

    /// Asks all that runs to end, and waits for that, but not for long. What does not end well by itself is not to be settled.
    pub(crate) async fn terminate(&self) {
        self.aborting.store(true, Ordering::SeqCst);
        self.runs.terminate();
        let _ = self.env.within(GRACE, self.runs.idle()).await;
    }

    /// Says what became of a message, unless it failed because the worker is being aborted: then the worker will drop this.
    pub(crate) async fn said(&self, outcome: Outcome) -> Outcome {
        if self.is_aborting() && outcome != Outcome::Done {
            std::future::pending::<()>().await;
        }
        outcome
    }

    pub(crate) fn is_aborting(&self) -> bool {
        self.aborting.load(Ordering::SeqCst)
    }

    /// A command, ready to be started.
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

    /// Starts a command. If that is not possible at all, it is the worker that is broken, and not the message.
    pub(crate) async fn start(&self, command: &mut Command) -> Result<(Arc<ProcessGroup>, Child), Outcome> {
        let mut tries = 0;
        loop {
            let error = match ProcessGroup::start(command, self.limits().memory, &self.minder) {
                Ok((group, child)) => return Ok((Arc::new(group), child)),
                Err(error) => error,
            };
            tries += 1;
            if !may_pass(&error) || tries == TRIES {
                let program = command.as_std().get_program().display();
                return Err(Outcome::stop(format!("the command {program} cannot be started: {error}")));
            }
            self.env.sleep(PAUSE).await;
        }
    }

    /// The error of a run that took too long.
    pub(crate) fn late(&self, limit: Duration) -> String {
        format!("it took longer than its timeout of {limit:?}")
    }

    /// What is to be said beside an error if the limit on memory may be the cause. A process that gets no more memory is not
    /// killed: it is for itself to say so.
    pub(crate) fn memory_hint(&self, said: &str, killed: bool) -> String {
        let speaks_of_it = said.to_lowercase().contains("memory") || said.contains("bad_alloc");
        match self.limits().memory {
            Some(limit) if killed || speaks_of_it => {
                format!(" (it may have reached its memory limit of {limit})")
            }
            _ => String::new(),
        }
    }
}

/// True if a moment later it may be possible: there are too many processes or files, or a script is just being written.
fn may_pass(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let passing = [Errno::AGAIN, Errno::NOMEM, Errno::MFILE, Errno::NFILE, Errno::TXTBSY];
    Errno::from_io_error(error).is_some_and(|errno| passing.contains(&errno))
}

/// Runs that are not wanted any more: nobody waits for what they say.
pub(crate) async fn unwanted(context: &Context) -> Outcome {
    context.cancelled().await;
    Outcome::retry("it was not wanted any more")
}
