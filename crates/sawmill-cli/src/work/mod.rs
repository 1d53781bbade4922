//! `sawmill work`: runs a command for each message.

mod care;
mod child;
mod cleanup;
mod dump;
mod environment;
mod hooks;
mod last_words;
mod line;
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
mod stream;
mod talker;
pub(crate) mod task;

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use sawmill::clock::Moment;
use sawmill::{Context, Counts, Sawmill, Worker, WorkerBuilder};

use crate::failure::Failure;
use crate::log::Log;
use crate::session::Session;
use crate::{text, topic};
use care::Care;
use dump::Subject;
#[cfg(feature = "kafka")]
pub(crate) use environment::variables;
use program::Program;
use progress::Progress;
use reload::Reload;
use runner::Runner;
pub(crate) use settings::Settings;
pub(crate) use settings::{Delivery, OnFailure, Plan};
use signals::{Asked, Signals};
use stream::Stream;
use task::Task;

/// What `sawmill work` takes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    /// The topics to work, the first one having priority
    #[arg(required = true, value_name = "TOPIC")]
    topics: Vec<String>,
    #[command(flatten)]
    settings: Settings,
    /// The command to run for each message, and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

const HELP: &str = "\
The payload is on the command's stdin. There is no shell between: arguments are passed as they
are. The command has a process group of its own; what is left of it when the command ends is killed.

With --stream the command is started once per slot and stays. Each message is one line on its stdin:
  {\"id\":\"…\",\"topic\":\"…\",\"group\":\"…\",\"key\":\"…\",\"attempt\":1,\"token\":7,\"headers\":{…},\"payload\":\"…\"}
and what is not text comes in base64 as key_base64, headers_base64 and payload_base64 instead.
It answers each with one line on its stdout before it is given the next:
  {\"id\":\"…\",\"ok\":true}   or   {\"id\":\"…\",\"error\":\"…\",\"retry\":false}
An error is tried again unless retry is false: then the message is a dead letter at once. A
command that ends, or answers anything else, fails its message and is started again; exit code 78
stops the worker. After the last message its stdin ends, and it has 5 s to end too. Of the
environment it has SAWMILL_STATE alone.

Environment of the command:
  SAWMILL_ID        the message's id, the same at every attempt
  SAWMILL_TOPIC     the topic it was pushed to
  SAWMILL_GROUP     the group of the worker
  SAWMILL_KEY       its key, if it has one; SAWMILL_KEY_HEX instead, if that is not text
  SAWMILL_ATTEMPT   which attempt this is, from 1
  SAWMILL_TOKEN     the fencing number: it grows, so that other systems can refuse stale runs
  SAWMILL_HEADER_*  its headers that are text, in upper case, with _ for other signs
  SAWMILL_STATE     a folder that hooks and commands share as long as the worker lives

Exit codes of the command:
  0             done
  75            try again later; not counted as an attempt (under at-most-once: a dead letter)
  65            it can never succeed: a dead letter at once
  78            stop the worker, and leave the message untouched (under at-most-once: a dead letter)
  anything else, or a signal: failed; the last 4 KiB of its stderr are kept with the failure

Signals:
  SIGINT        finish what runs, then stop; the second time, abort
  SIGTERM       abort what runs (SIGTERM to it, SIGKILL 2 s later; it will run again, or becomes a dead letter
                under at-most-once), then stop
                Either ends an --on-start or --on-stop command that runs.
  SIGUSR1       reopen the log file
  SIGUSR2       write the state to the log
  SIGHUP        reload the --config file: the log says what changed, and what needs a restart
                (timeout, memory, quiet and log-level can change)

Exit codes of the worker: 0 if it was told to stop, or has come to its --limit or to the end of
--drain; 1 if it had to stop; 2 wrong usage or configuration; 3 the store could not be reached at
the start. While it runs it waits for a store that is down.

logrotate: `postrotate kill -USR1 PID endscript`, without `copytruncate`.
systemd:   `KillMode=mixed`, `ExecReload=kill -HUP $MAINPID`; with `KillSignal=SIGINT` a stop
           finishes what runs, within `TimeoutStopSec`.

Examples:
  sawmill work emails -- ./send-mail
  sawmill work urgent bulk --concurrency 8 --timeout 5m --memory 512M -- python3 resize.py
  sawmill work payments --ordered --delivery at-most-once --journal /var/lib/sawmill -- ./pay
  sawmill work emails --drain -- sh -c 'cat >> mails.txt'";

pub(crate) async fn run(args: Args, session: &Session) -> Result<(), Failure> {
    let plan = args.settings.clone().over(&session.file.work).resolve()?;
    let task = Task::Program(Program::find(&args.command)?);
    let shape = Shape { topics: args.topics, flags: args.settings, plan, task };
    shape.run(session).await
}

/// What a worker is to be.
pub(crate) struct Shape {
    pub(crate) topics: Vec<String>,
    /// What was said on the command line, which is stronger than what a configuration file says later.
    pub(crate) flags: Settings,
    pub(crate) plan: Plan,
    pub(crate) task: Task,
}

impl Shape {
    /// Works until the end.
    pub(crate) async fn run(self, session: &Session) -> Result<(), Failure> {
        let mut care = Care::take(session, &self.plan).await?;
        let worked = carry_out(self, session, &mut care).await;
        care.last_words(worked)
    }
}

async fn carry_out(shape: Shape, session: &Session, care: &mut Care) -> Result<(), Failure> {
    let Shape { topics, flags, plan, task } = shape;
    let mut signals = Signals::listen()?;
    let began = session.env.now();
    let opening = open(session, &plan, &topics);
    let Some(mill) = signals.unless_ended(opening).await.transpose()? else { return Ok(()) };
    let connect = session.env.now().since(began);

    let shared = tempfile::Builder::new().prefix("sawmill-").tempdir().map_err(|error| {
        Failure::failed(format!("no temporary folder can be made for SAWMILL_STATE: {error}"))
    })?;
    let runner = Runner::new(&plan, task, shared.path().to_owned(), session.env.clone())?;
    care.reload_by(Reload::new(session, flags, runner.clone(), care.quiet.clone()));
    if let Some(hook) = &plan.on_start {
        let starting = hooks::run("--on-start", hook, &runner);
        let Some(started) = signals.unless_ended(starting).await else { return Ok(()) };
        started?;
    }
    let shift = Shift { mill, plan, topics, runner, connect, since: session.env.now() };
    let worked = shift.work(&mut signals, care).await;
    if let Some(hook) = &shift.plan.on_stop {
        let stopped = signals.unless_ended(hooks::run("--on-stop", hook, &shift.runner)).await;
        worked?;
        if stopped.is_none() {
            tracing::warn!("the --on-stop command `{hook}` was ended by a signal before it was done");
        }
        return stopped.unwrap_or(Ok(()));
    }
    worked
}

/// Opens the store, and creates what topics are missing.
async fn open(session: &Session, plan: &Plan, topics: &[String]) -> Result<Sawmill, Failure> {
    let mill = session.open().await?;
    for name in topics {
        topic::ensure(&mill, name, plan.creates).await?;
    }
    Ok(mill)
}

/// A worker, and all that it needs.
struct Shift {
    mill: Sawmill,
    plan: Plan,
    topics: Vec<String>,
    runner: Arc<Runner>,
    /// How long it took to open the store.
    connect: Duration,
    since: Moment,
}

impl Shift {
    /// Works until the end, for whatever reason it comes.
    async fn work(&self, signals: &mut Signals, care: &Care) -> Result<(), Failure> {
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
            signals.unless_ended(starting).await.transpose().map_err(|error| self.refused(error))?;
        let Some(worker) = started else { return Ok(()) };
        let worker = Arc::new(worker);
        let progress = Progress::new(self, worker.clone(), care.quiet.clone());
        let counts = progress.shown_during(self.supervise(&worker, signals, care)).await;
        if let Some(stream) = stream {
            // Who asks once more does not want to wait for them.
            let _ = signals.unless_ended(stream.end()).await;
        }
        self.sum_up(&counts);
        match counts.stopped_because {
            Some(reason) => Err(Failure::failed(format!("the worker had to stop: {reason}"))),
            None => Ok(()),
        }
    }

    /// Why the worker does not start.
    fn refused(&self, error: sawmill::Error) -> Failure {
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
            .slots(plan.concurrency)
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
            builder = builder.unique_name(&plan.name).most_claimed(1);
        }
        if let Some(limit) = plan.limit {
            builder = builder.most_started(limit);
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

    /// Waits for the worker's end, and does what is asked meanwhile.
    async fn supervise(&self, worker: &Arc<Worker>, signals: &mut Signals, care: &Care) -> Counts {
        let (mut finishing, mut drained) = (false, !self.plan.drain);
        loop {
            tokio::select! {
                biased;
                counts = worker.ended() => return counts,
                asked = signals.next() => match asked {
                    Asked::Finish if !finishing => {
                        finishing = true;
                        self.finish(worker);
                    }
                    Asked::Finish | Asked::Abort => self.abort(worker),
                    Asked::Dump => self.dump(worker, care.log.clone()),
                },
                () = worker.drained(), if !drained => {
                    drained = true;
                    self.stop(worker);
                }
            }
        }
    }

    /// Writes the state to the log. The store may take its time to say where the topics stand: nobody waits for that.
    fn dump(&self, worker: &Arc<Worker>, log: Log) {
        let subject = Subject {
            mill: self.mill.clone(),
            worker: worker.clone(),
            runner: self.runner.clone(),
            topics: self.topics.clone(),
            group: self.plan.group.clone(),
            connect: self.connect,
            since: self.since,
        };
        self.runner.env.spawn(async move { log.write(&subject.dump().await) });
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

    /// Nothing starts any more, what runs is asked to end, and what then still runs is killed.
    fn abort(&self, worker: &Arc<Worker>) {
        self.stop(worker);
        let (worker, runner) = (worker.clone(), self.runner.clone());
        self.runner.env.spawn(async move {
            runner.terminate().await;
            worker.abort().await;
        });
    }

    fn sum_up(&self, counts: &Counts) {
        let (done, failed, dead) = (counts.done, counts.failed, counts.dead);
        tracing::info!("stopped: {done} done, {failed} failed, {dead} dead letters");
    }
}
