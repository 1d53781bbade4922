//! `sawmill deliver`: workers for what is most often done with messages: e-mail, webhooks, and passing them on.
//!
//! They are workers as `sawmill work` has them, with no process per message. When to try again is the queue's matter: a delivery
//! says that a message is done, is to be tried again, or can never succeed.

mod email;
mod forward;
mod guard;
mod letter;
mod mailbox;
mod post;
mod postman;
mod secret;
mod webhook;

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use sawmill::env::Env;
use sawmill::{Context, Outcome};

use crate::failure::Failure;
use crate::metrics::Address;
use crate::session::Session;
use crate::work::task::Task;
use crate::work::{self, OnFailure, Settings, Shape};
use crate::written::{Backoff, Span};

/// How long a delivery may take if nobody says otherwise.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// How often a delivery is tried again if nobody says otherwise. With the usual backoff that takes some eight hours: whom messages go to
/// may be away for a night, and that costs none of them.
const RETRIES: u32 = 20;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Send each message as an e-mail
    #[command(after_long_help = email::HELP)]
    Email(email::Args),
    /// Post each message to a URL: a service of one's own, or a chat
    #[command(after_long_help = webhook::HELP)]
    Webhook(webhook::Args),
    /// Push each message to another topic, or to another store
    #[command(after_long_help = forward::HELP, override_usage = forward::USAGE)]
    Forward(forward::Args),
}

/// What every delivery takes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Work")]
struct WorkArgs {
    /// The group that this worker belongs to; every group sees every message [default: default]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// How many messages to deliver at once [default: the number of cores]
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// Strict order per key, across all workers of the group
    #[arg(long)]
    ordered: bool,
    /// How often a message may be delivered [default: at-least-once]
    #[arg(long, value_enum, value_name = "HOW")]
    delivery: Option<work::Delivery>,
    /// How often a failed message is tried again before it is given up [default: 20, which takes some eight hours]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// How long to wait before retries: the first of them comes at once, then from the one to the other [default: 1s..1h]
    #[arg(long, value_name = "FIRST..LONGEST")]
    backoff: Option<Backoff>,
    /// What to do with a message that is out of retries: keep it as a dead letter, or only log it [default: dead]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_failure: Option<OnFailure>,
    /// How long one delivery may take [default: 30s]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// What the worker is called, for people [default: worker]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Exit with 0 when nothing is left to do now
    #[arg(long)]
    drain: bool,
    /// Exit after so many deliveries, retries included; no more than that are started
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// How long this worker may be silent before others take over what it holds [default: 10s]
    #[arg(long, value_name = "DURATION")]
    ttl: Option<Span>,
    /// Do not create topics that are missing; it is an error then
    #[arg(long)]
    no_create: bool,
    /// Say nothing that is not a warning or an error
    #[arg(long)]
    quiet: bool,
    /// Log to the end of this file, and not to stderr; SIGUSR1 reopens it
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Serve metrics for Prometheus at http://ADDRESS/metrics; only a port is open to this machine alone
    #[arg(long, value_name = "ADDRESS")]
    metrics: Option<Address>,
}

impl WorkArgs {
    /// The settings of a worker that starts no command for a message.
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
            // There is none to talk to, whatever the configuration file says of other workers.
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
    Shape { topics, flags, plan, task: Task::Delivery(delivery) }.run(session).await
}

/// How messages are delivered.
pub(crate) enum Delivery {
    Email(email::Email),
    Webhook(webhook::Webhook),
    Forward(forward::Forward),
}

impl Delivery {
    /// Delivers a message, and says what became of it. To drop this is to hang up.
    pub(crate) async fn deliver(&self, env: &Env, context: &Context) -> Outcome {
        match self {
            Self::Email(email) => email.deliver(env, context).await,
            Self::Webhook(webhook) => webhook.deliver(env, context).await,
            Self::Forward(forward) => forward.deliver(context).await,
        }
    }
}
