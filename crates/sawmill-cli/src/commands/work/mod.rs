//! `sawmill work`: runs a command for each message.

mod child;
mod cleanup;
mod controls;
mod dump;
mod environment;
mod hooks;
pub(crate) mod minder;
mod process_group;
pub(crate) mod program;
mod progress;
mod relay;
mod reload;
mod runner;
mod running;
pub(crate) mod settings;
mod signals;
mod stderr_tail;
mod stream;
mod stream_process;
mod stream_protocol;
pub(crate) mod task;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use sawmill::engine::runtime::Moment;
use sawmill::worker::Counts;
use sawmill::{Context, Sawmill, Worker, WorkerBuilder};

use crate::commands::topic;
use crate::failure::Failure;
use crate::session::Session;
use crate::terminal::log::Log;
use crate::terminal::text;
use controls::Controls;
use dump::StateDump;
#[cfg(feature = "kafka")]
pub(crate) use environment::variables;
use program::Program;
use progress::Progress;
use reload::Reload;
use runner::Runner;
pub(crate) use settings::Settings;
pub(crate) use settings::{Delivery, OnFailure, Plan};
use signals::{Request, Signals};
use stream::Stream;
use task::Task;

/// Arguments of `sawmill work`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// The topics to work. The first has the highest priority
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    #[command(flatten)]
    settings: Settings,
    /// The command to run for each message, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const HELP: &str = "\
The payload is on the stdin of the command. No shell is involved: arguments are passed as they are.
The command runs in its own process group, and what is left of the group when it ends is killed.

With --stream the command is started once per slot and keeps running. Each message is one line on
its stdin:
  {\"id\":\"…\",\"topic\":\"…\",\"group\":\"…\",\"key\":\"…\",\"attempt\":1,\"token\":7,\"headers\":{…},\"payload\":\"…\"}
Values that are not text are in base64 in key_base64, headers_base64 and payload_base64 instead.
The command answers each message with one line on its stdout before it gets the next:
  {\"id\":\"…\",\"ok\":true}   or   {\"id\":\"…\",\"error\":\"…\",\"retry\":false}
An error is retried, unless retry is false: then the message becomes a dead letter at once. If the
command exits or gives any other answer, its message fails and the command is started again; exit
code 78 stops the worker. After the last message its stdin is closed, and it has 5 s to exit. Of the
variables below, a streaming command gets only SAWMILL_STATE.

Environment of the command:
  SAWMILL_ID        the id of the message, the same at every attempt
  SAWMILL_TOPIC     the topic that the message was pushed to
  SAWMILL_GROUP     the group of the worker
  SAWMILL_KEY       the key, if there is one; SAWMILL_KEY_HEX instead if it is not text
  SAWMILL_ATTEMPT   the number of the attempt, from 1
  SAWMILL_TOKEN     the fencing token: it grows, so that other systems can refuse stale runs
  SAWMILL_HEADER_*  the headers that are text, in upper case, with _ for other characters
  SAWMILL_STATE     a folder that hooks and commands share during the life of the worker

Exit codes of the command:
  0             done
  75            try again later, not counted as an attempt (with at-most-once: a dead letter)
  65            the message can never succeed: a dead letter at once
  78            stop the worker and leave the message untouched (with at-most-once: a dead letter)
  anything else, or a signal: failed; the last 4 KiB of stderr are kept with the failure

Signals:
  SIGINT        finish running commands, then stop; the second SIGINT aborts
  SIGTERM       abort running commands (SIGTERM, then SIGKILL 2 s later), then stop; their messages
                run again, or become dead letters with at-most-once
                Both signals also end a running --on-start or --on-stop command.
  SIGUSR1       reopen the log file
  SIGUSR2       write the state to the log
  SIGHUP        reload the --config file; the log tells what changed and what needs a restart
                (timeout, memory, quiet and log-level can change)

Exit codes of the worker: 0 if it was told to stop, or reached its --limit or the end of --drain;
1 if an error stopped it; 2 wrong usage or configuration; 3 the store could not be reached at the
start. A running worker waits for a store that is down.

logrotate: `postrotate kill -USR1 PID endscript`, without `copytruncate`.
systemd:   `KillMode=mixed`, `ExecReload=kill -HUP $MAINPID`; with `KillSignal=SIGINT` a stop
           finishes running commands, within `TimeoutStopSec`.

Examples:
  sawmill work emails -- ./send-mail
  sawmill work urgent bulk --concurrency 8 --timeout 5m --memory 512M -- python3 resize.py
  sawmill work payments --ordered --delivery at-most-once --journal /var/lib/sawmill -- ./pay
  sawmill work emails --drain -- sh -c 'cat >> mails.txt'";

pub(crate) async fn run(args: Args, session: &Session) -> Result<(), Failure> {
    let plan = args.settings.clone().over(&session.file.work).resolve()?;
    let task = Task::Program(Program::find(&args.command)?);
    let spec = WorkerSpec { topics: args.topics, flags: args.settings, plan, task };
    spec.run(session).await
}

/// The specification of a worker.
pub(crate) struct WorkerSpec {
    pub(crate) topics: Vec<String>,
    /// The flags, which take precedence over the configuration file, also after a reload.
    pub(crate) flags: Settings,
    pub(crate) plan: Plan,
    pub(crate) task: Task,
}

impl WorkerSpec {
    /// Runs the worker to its end.
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let mut controls = Controls::start(session, &self.plan).await?;
        let worked = run_worker(self, session, &mut controls).await;
        controls.log_failure(worked)
    }
}

async fn run_worker(spec: WorkerSpec, session: &Session, controls: &mut Controls) -> Result<(), Failure> {
    let WorkerSpec { topics, flags, plan, task } = spec;
    let mut signals = Signals::listen()?;
    let began = session.env.now();
    let opening = open(session, &plan, &topics);
    let Some(mill) = signals.unless_ended(opening).await.transpose()? else { return Ok(()) };
    let connect = session.env.now().since(began);

    let shared = tempfile::Builder::new().prefix("sawmill-").tempdir().map_err(|error| {
        Failure::failed(format!("no temporary folder can be made for SAWMILL_STATE: {error}"))
    })?;
    let runner = Runner::new(&plan, task, shared.path().to_owned(), session.env.clone())?;
    controls.reload_by(Reload::new(session, flags, runner.clone(), controls.quiet.clone()));
    if let Some(hook) = &plan.on_start {
        let starting = hooks::run("--on-start", hook, &runner);
        let Some(started) = signals.unless_ended(starting).await else { return Ok(()) };
        started?;
    }
    let active = ActiveWorker { mill, plan, topics, runner, connect, since: session.env.now() };
    let worked = active.work(&mut signals, controls).await;
    if let Some(hook) = &active.plan.on_stop {
        let stopped = signals.unless_ended(hooks::run("--on-stop", hook, &active.runner)).await;
        worked?;
        if stopped.is_none() {
            tracing::warn!("the --on-stop command `{hook}` was ended by a signal before it was done");
        }
        return stopped.unwrap_or(Ok(()));
    }
    worked
}

/// Opens the store, and creates missing topics if that is allowed.
async fn open(session: &Session, plan: &Plan, topics: &[String]) -> Result<Sawmill, Failure> {
    let mill = session.open().await?;
    for name in topics {
        topic::ensure(&mill, name, plan.creates).await?;
    }
    Ok(mill)
}

/// A running worker and what it needs.
struct ActiveWorker {
    mill: Sawmill,
    plan: Plan,
    topics: Vec<String>,
    runner: Arc<Runner>,
    /// How long opening the store took.
    connect: Duration,
    since: Moment,
}

impl ActiveWorker {
    /// Runs the worker to its end, whatever ends it.
    async fn work(&self, signals: &mut Signals, controls: &Controls) -> Result<(), Failure> {
        let stream = match &self.runner.task {
            Task::Program(program) if self.plan.stream => {
                Some(Stream::new(self.runner.clone(), program.clone()))
            }
            _ => None,
        };
        let handler = {
            let (runner, stream) = (self.runner.clone(), stream.clone());
            move |context: Context| {
                let (runner, stream) = (runner.clone(), stream.clone());
                async move {
                    match stream {
                        Some(stream) => stream.run(context).await,
                        None => child::run(runner, context).await,
                    }
                }
            }
        };
        let starting = self.builder()?.start(handler);
        let started =
            signals.unless_ended(starting).await.transpose().map_err(|error| self.start_failure(error))?;
        let Some(worker) = started else { return Ok(()) };
        let worker = Arc::new(worker);
        let progress = Progress::new(self, worker.clone(), controls.quiet.clone());
        let counts = progress.shown_during(self.supervise(&worker, signals, controls)).await;
        if let Some(stream) = stream {
            // A further signal skips the wait for the commands.
            let _ = signals.unless_ended(stream.end()).await;
        }
        self.log_summary(&counts);
        match counts.stopped_because {
            Some(reason) => Err(Failure::failed(format!("the worker had to stop: {reason}"))),
            None => Ok(()),
        }
    }

    /// Returns the failure of a worker that does not start.
    fn start_failure(&self, error: sawmill::Error) -> Failure {
        let has_number = self.plan.sole && error.kind() == sawmill::ErrorKind::InUse;
        let failure = Failure::from(error);
        if has_number { failure.and("; the name comes from INSTANCE_NUMBER") } else { failure }
    }

    fn builder(&self) -> Result<WorkerBuilder, Failure> {
        let plan = &self.plan;
        let mut builder = self
            .mill
            .worker_for(self.topics.iter())
            .group(&plan.group)
            .name(&plan.name)
            .concurrency(plan.concurrency)
            .retry(plan.retry)
            .ttl(plan.ttl)
            .delivery(match plan.delivery {
                Delivery::AtLeastOnce => sawmill::Delivery::AtLeastOnce,
                Delivery::AtMostOnce => sawmill::Delivery::AtMostOnce,
            })
            .on_failure(match plan.on_failure {
                OnFailure::Dead => sawmill::OnFailure::Dead,
                OnFailure::Log => sawmill::OnFailure::Log,
            });
        if plan.ordered {
            builder = builder.ordered();
        }
        if plan.sole {
            builder = builder.unique_name(&plan.name).max_in_flight(1);
        }
        if let Some(limit) = plan.limit {
            builder = builder.max_messages(limit);
        }
        if let Some(folder) = &plan.journal {
            std::fs::create_dir_all(folder).map_err(|error| {
                Failure::failed(format!(
                    "the folder {} for the journal cannot be made: {error}",
                    folder.display()
                ))
            })?;
            builder = builder.journal(folder.join(format!("{}.journal", plan.name)));
        }
        Ok(builder)
    }

    /// Waits for the worker's end, and handles signals meanwhile.
    async fn supervise(&self, worker: &Arc<Worker>, signals: &mut Signals, controls: &Controls) -> Counts {
        let (mut finishing, mut drained) = (false, !self.plan.drain);
        loop {
            tokio::select! {
                biased;
                counts = worker.ended() => return counts,
                request = signals.next() => match request {
                    Request::Finish if !finishing => {
                        finishing = true;
                        self.finish(worker);
                    }
                    Request::Finish | Request::Abort => self.abort(worker),
                    Request::Dump => self.dump(worker, controls.log.clone()),
                },
                () = worker.drained(), if !drained => {
                    drained = true;
                    self.stop(worker);
                }
            }
        }
    }

    /// Writes the state to the log, in the background: the store may take its time for the status of the
    /// topics.
    fn dump(&self, worker: &Arc<Worker>, log: Log) {
        let state = StateDump {
            mill: self.mill.clone(),
            worker: worker.clone(),
            runner: self.runner.clone(),
            topics: self.topics.clone(),
            group: self.plan.group.clone(),
            connect: self.connect,
            since: self.since,
        };
        self.runner.env.spawn(async move { log.write(&state.text().await) });
    }

    fn finish(&self, worker: &Arc<Worker>) {
        let busy = worker.state().busy;
        if busy > 0 {
            tracing::info!("finishing {} (once more to abort)", text::counted(busy as u64, "run"));
        }
        self.stop(worker);
    }

    fn stop(&self, worker: &Arc<Worker>) {
        let worker = worker.clone();
        self.runner.env.spawn(async move {
            worker.stop().await;
        });
    }

    /// Stops the worker at once: nothing starts, running commands get SIGTERM, and those that are left are
    /// killed.
    fn abort(&self, worker: &Arc<Worker>) {
        self.stop(worker);
        let (worker, runner) = (worker.clone(), self.runner.clone());
        self.runner.env.spawn(async move {
            runner.terminate().await;
            worker.abort().await;
        });
    }

    fn log_summary(&self, counts: &Counts) {
        let (done, failed, dead) = (counts.done, counts.failed, counts.dead);
        tracing::info!("stopped: {done} done, {failed} failed, {dead} dead letters");
    }
}
