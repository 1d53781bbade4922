//! `sawmill deliver`: workers for the most common uses of messages: e-mail, webhooks and forwarding.
//!
//! They are ordinary workers like those of `sawmill work`, without a process per message. The queue schedules
//! the retries: a delivery only reports that a message is done, is to be retried, or can never succeed.

mod composer;
mod email;
mod forward;
mod guard;
mod mailbox;
mod post;
mod secret;
mod smtp;
mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use sawmill::engine::runtime::Env;
use sawmill::{Context, Outcome};

use crate::commands::work::task::Task;
use crate::commands::work::{self, OnFailure, Settings, WorkerSpec};
use crate::failure::Failure;
use crate::metrics::Address;
use crate::session::Session;
use crate::values::{Backoff, Span};

/// The default time limit of a delivery.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// The default number of retries. With the default backoff they take about eight hours, so that a receiver
/// may be down for a night without losing messages.
const RETRIES: u32 = 20;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send each message as an e-mail
    #[command(after_long_help = email::HELP)]
    Email(email::Args),
    /// Post each message to a URL, such as a service of your own or a chat
    #[command(after_long_help = webhook::HELP)]
    Webhook(webhook::Args),
    /// Push each message to another topic or another store
    #[command(after_long_help = forward::HELP, override_usage = forward::USAGE)]
    Forward(forward::Args),
}

/// Options of every delivery.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Work")]
struct WorkArgs {
    /// The group of this worker. Every group gets every message [default: default]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The number of messages to deliver at once [default: the number of cores]
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// Deliver the messages of a key strictly in order, across all workers of the group
    #[arg(long)]
    ordered: bool,
    /// The delivery guarantee [default: at-least-once]
    #[arg(long, value_enum, value_name = "HOW")]
    delivery: Option<work::Delivery>,
    /// The number of retries of a failed message [default: 20, which take about eight hours]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// The wait before retries, from the first to the longest. The first retry is immediate [default: 1s..1h]
    #[arg(long, value_name = "FIRST..LONGEST")]
    backoff: Option<Backoff>,
    /// The handling of messages that are out of retries: keep them as dead letters, or only log them
    /// [default: dead]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_failure: Option<OnFailure>,
    /// The time limit of one delivery [default: 30s]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// The name of the worker, for people [default: worker]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Exit with 0 when no messages are left that could run now
    #[arg(long)]
    drain: bool,
    /// Exit after this number of deliveries, retries included
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// How long this worker may be silent before others take over its messages [default: 10s]
    #[arg(long, value_name = "DURATION")]
    ttl: Option<Span>,
    /// Fail if a topic does not exist, instead of creating it
    #[arg(long)]
    no_create: bool,
    /// Log only warnings and errors
    #[arg(long)]
    quiet: bool,
    /// The file to append the log to, instead of stderr. SIGUSR1 reopens it
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// The address to serve Prometheus metrics at, under /metrics. A port alone listens on localhost only
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Address>,
}

impl WorkArgs {
    /// Returns the settings of a worker that starts no commands.
    fn settings(&self) -> Settings {
        let args = self.clone();
        let if_so = |flag: bool| flag.then_some(true);
        Settings {
            group: args.group,
            concurrency: args.concurrency,
            ordered: if_so(args.ordered),
            delivery: args.delivery,
            retries: args.retries,
            backoff: args.backoff,
            on_failure: args.on_failure,
            timeout: args.timeout,
            name: args.name,
            drain: if_so(args.drain),
            limit: args.limit,
            // No command is streamed to, even if the configuration file sets `stream` for other workers.
            stream: Some(false),
            ttl: args.ttl,
            no_create: if_so(args.no_create),
            quiet: if_so(args.quiet),
            log_file: args.log_file,
            metrics: args.metrics,
            ..Settings::default()
        }
    }
}

pub(crate) async fn run(command: Command, session: &Session) -> Result<(), Failure> {
    let (topics, work) = match &command {
        Command::Email(args) => (&args.topics, &args.work),
        Command::Webhook(args) => (&args.topics, &args.work),
        Command::Forward(args) => (&args.topics, &args.work),
    };
    let (topics, flags) = (topics.clone(), work.settings());
    let usual = Settings { retries: Some(RETRIES), ..Settings::default() };
    let plan = flags.clone().over(&session.file.work).over(&usual).resolve()?;
    let delivery = match command {
        Command::Email(args) => Delivery::Email(email::Email::new(&args)?),
        Command::Webhook(args) => Delivery::Webhook(webhook::Webhook::new(&args)?),
        Command::Forward(args) => {
            Delivery::Forward(forward::Forward::open(&args, session, plan.creates).await?)
        }
    };
    WorkerSpec { topics, flags, plan, task: Task::Delivery(delivery) }.run(session).await
}

/// The kind of delivery.
pub(crate) enum Delivery {
    Email(email::Email),
    Webhook(webhook::Webhook),
    Forward(forward::Forward),
}

impl Delivery {
    /// Delivers a message and returns its outcome. Dropping the future closes the connection.
    pub(crate) async fn deliver(&self, env: &Env, context: &Context) -> Outcome {
        match self {
            Self::Email(email) => email.deliver(env, context).await,
            Self::Webhook(webhook) => webhook.deliver(env, context).await,
            Self::Forward(forward) => forward.deliver(context).await,
        }
    }
}
