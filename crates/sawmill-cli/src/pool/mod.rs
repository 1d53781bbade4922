//! `sawmill pool-worker`: one of several instances that share the orders of a Kafka topic. It takes one order, works it, and
//! exits; whoever supervises it starts it again.
//!
//! It is a worker like any other, with a name that nobody else may have (its instance number), room for one message, and the
//! end after that. What it had begun in a former life it finds in the ledger, which is the coordination topic.

mod configuration;
mod container;
mod fetch;
mod order;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use sawmill::env::Env;
use sawmill::{Context, Outcome};

pub(crate) use configuration::Configuration;

use crate::failure::Failure;
use crate::metrics::Address;
use crate::session::Session;
use crate::work::program::Program;
use crate::work::task::{Job, Task};
use crate::work::{Delivery, OnFailure, Settings, Shape};
use crate::written::{Backoff, Size, Span};
use container::Containers;
use fetch::Fetch;
use order::{Kind, Order};

/// What `sawmill pool-worker` takes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    orders: OrderArgs,
    /// Run this for each order, with the order on its stdin, whatever it says
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// What it is as a worker.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Pool")]
struct PoolArgs {
    /// The group that the pool is; every group sees every order [default: default]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// How often an order may be worked [default: at-least-once]
    #[arg(long, value_enum, value_name = "HOW")]
    delivery: Option<Delivery>,
    /// How often a failed order is tried again before it is given up [default: 5]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// How long to wait before retries: from the one to the other [default: 1s..1h]
    #[arg(long, value_name = "FIRST..LONGEST")]
    backoff: Option<Backoff>,
    /// What to do with an order that is out of retries: keep it as a dead letter, or only log it [default: dead]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_failure: Option<OnFailure>,
    /// How long an order may take; then its process group gets SIGTERM, and SIGKILL 2 s later [default: no limit]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// How much memory each process may have (Linux) [default: no limit]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// How long an instance may be silent before others take over its order [default: 10s]
    #[arg(long, value_name = "DURATION")]
    ttl: Option<Span>,
    /// Do not create the topic of the orders if it is missing; it is an error then
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

/// How it deals with orders.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Orders")]
struct OrderArgs {
    /// Which kinds of orders are worked; others become dead letters [default: command,image,url]
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',', conflicts_with = "command")]
    accept: Vec<Kind>,
    /// The program that runs containers, and options of it [default: docker or podman, if it is there]
    #[arg(long, value_name = "COMMAND", env = "SAWMILL_CONTAINER")]
    container: Option<String>,
    /// Options for each container, like '--network=none --memory=1g'
    #[arg(long, value_name = "OPTIONS", env = "SAWMILL_CONTAINER_OPTIONS", allow_hyphen_values = true)]
    container_options: Option<String>,
    /// How long fetching an order may take [default: 30s]
    #[arg(long, value_name = "DURATION")]
    fetch_timeout: Option<Span>,
    /// How large an order that is fetched may be [default: 1M]
    #[arg(long, value_name = "SIZE")]
    fetch_most: Option<Size>,
}

const HELP: &str = "\
It takes one order, works it, and exits; a supervisor starts it again (systemd: Restart=always,
RestartSec=0). Without an order it waits for one. All is set by the environment:

  ORDERS_TOPIC        the topic with the orders, in Kafka; made if it is not there
  COORDINATION_TOPIC  the topic on which instances agree, compacted; made if it is not there
  INSTANCE_NUMBER     which instance this is: 0, 1, 2, … Two that live must not have the same one
  KAFKA_BROKERS       host:port,host:port; or kafka://USER:PASSWORD@HOST:PORT?tls=on&sasl=plain

Each order is worked by one instance, and not again once it is completed. An instance that dies
is found silent after --ttl: then another takes its order over, or it does so itself when it is
started again, before anything else. A command cannot be fenced: what an instance was doing when it
died may have been done in part. With --delivery at-most-once such an order becomes a dead letter.

An order is text:
  convert in.png 'out file.jpg'
or JSON, one of:
  {\"command\": \"convert in.png out.jpg\", \"env\": {\"QUALITY\": \"90\"}}
  {\"command\": [\"convert\", \"in.png\", \"out file.jpg\"]}
  {\"image\": \"resize:2\", \"args\": [\"--fast\"], \"env\": {\"SIZE\": \"50%\"}}
  {\"url\": \"https://example.org/orders/17\"}
There is no shell between: quotes hold words together, and nothing is expanded. A container gets
SAWMILL_ID and the like, too; it is called sawmill-ID, and removed at the end. What is at a URL is
an order itself, but not another URL: https, or http on this machine; redirects are not followed.
What is no order becomes a dead letter. Who may write to the topic may run what this user may: see
--accept. With -- COMMAND that is run instead, as `sawmill work` does, with the order on stdin.

Environment, exit codes and signals of what runs are those of `sawmill work`: see its --help.
Exit codes of the instance: 0 after an order, whatever became of it, or if it was told to stop; 1 if
it had to stop, or its number is another's; 2 wrong usage or configuration; 3 Kafka could not be
reached.

Other commands see the pool by --store 'kafka://BROKERS?coordination=COORDINATION_TOPIC'.

Examples:
  sawmill pool-worker
  sawmill pool-worker --accept image --container 'podman --log-level=error' --timeout 1h
  sawmill pool-worker --container-options '--network=none --memory=1g'
  sawmill pool-worker --ttl 5s -- ./work-order";

pub(crate) async fn run(args: Args, session: &Session) -> Result<(), Failure> {
    let Configuration { orders, instance, .. } = Configuration::read()?;
    let flags = args.pool.settings(instance);
    let mut plan = flags.clone().resolve()?;
    plan.sole = true;
    // An instance ends after an attempt: the next one is made later, by whoever comes to it.
    plan.retry = plan.retry.immediate(0);
    let task = match args.command.is_empty() {
        false => Task::Program(Program::find(&args.command)?),
        true => Task::Orders(Orders::new(&args.orders)?),
    };
    let shape = Shape { topics: vec![orders], flags, plan, task };
    shape.run(session).await
}

impl PoolArgs {
    /// The settings of a worker that is one instance of a pool.
    fn settings(&self, instance: u32) -> Settings {
        let pool = self.clone();
        Settings {
            group: pool.group,
            concurrency: Some(1),
            delivery: pool.delivery,
            retries: pool.retries,
            backoff: pool.backoff,
            on_failure: pool.on_failure,
            timeout: pool.timeout,
            memory: pool.memory,
            name: Some(format!("instance-{instance}")),
            limit: Some(1),
            ttl: pool.ttl,
            no_create: Some(pool.no_create),
            quiet: Some(pool.quiet),
            log_file: pool.log_file,
            metrics: pool.metrics,
            ..Settings::default()
        }
    }
}

/// How orders become runs.
pub(crate) struct Orders {
    /// Those that are worked; all if it is empty.
    accepted: Vec<Kind>,
    containers: Option<Containers>,
    fetch: Fetch,
}

impl Orders {
    fn new(args: &OrderArgs) -> Result<Self, Failure> {
        let timeout = args.fetch_timeout.map_or(Duration::from_secs(30), |timeout| timeout.0);
        if timeout.is_zero() {
            return Err(Failure::usage("--fetch-timeout 0s lets nothing be fetched: choose a longer time"));
        }
        let containers = Containers::find(args.container.as_deref(), args.container_options.as_deref())?;
        if args.accept == [Kind::Image] && containers.is_none() {
            return Err(Failure::usage(no_container_program()));
        }
        let fetch = Fetch { timeout, most: args.fetch_most.unwrap_or(Size(1 << 20)) };
        Ok(Self { accepted: args.accept.clone(), containers, fetch })
    }

    /// What to run for an order.
    pub(crate) async fn job(&self, env: &Env, context: &Context) -> Result<Job, Outcome> {
        match self.read(context.payload())? {
            Order::Url(url) => {
                let fetched = self.fetch.get(&url, env, context).await?;
                match self.read(&fetched)? {
                    Order::Url(_) => {
                        Err(Outcome::dead("the order that was fetched is a URL again: name the last one"))
                    }
                    order => self.run(order, env, context).await,
                }
            }
            order => self.run(order, env, context).await,
        }
    }

    fn read(&self, payload: &[u8]) -> Result<Order, Outcome> {
        let order =
            Order::parse(payload).map_err(|what| Outcome::dead(format!("this is no order: {what}")))?;
        match self.accepted.is_empty() || self.accepted.contains(&order.kind()) {
            true => Ok(order),
            false => {
                let kind = order.kind().name();
                Err(Outcome::dead(format!("orders with `{kind}` are not accepted here (--accept)")))
            }
        }
    }

    async fn run(&self, order: Order, env: &Env, context: &Context) -> Result<Job, Outcome> {
        match order {
            Order::Command { words, env } => {
                let words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
                let program = Program::find(&words).map_err(|failure| Outcome::retry(failure.to_string()))?;
                Ok(Job { program, variables: env, input: Bytes::new(), cleanup: None })
            }
            Order::Image { image, args, env: pairs } => {
                let containers =
                    self.containers.as_ref().ok_or_else(|| Outcome::retry(no_container_program()))?;
                let name = format!("sawmill-{}", context.id());
                containers.remove(&name, env).await;
                let pairs = [pairs, crate::work::variables(context)].concat();
                Ok(Job {
                    program: containers.run(&name, &image, &args, &pairs),
                    variables: Vec::new(),
                    input: Bytes::new(),
                    cleanup: Some(containers.removal(&name)),
                })
            }
            Order::Url(_) => Err(Outcome::dead("a URL is fetched, not run")),
        }
    }
}

fn no_container_program() -> String {
    "the order names an image, and there is no program here that runs containers: install docker or podman, or name one \
     with --container"
        .to_owned()
}
