//! `sawmill pool-worker`: one of several instances that share the orders of a Kafka topic. It runs one order
//! and exits; a supervisor starts it again.
//!
//! An instance is an ordinary worker with a unique name (its instance number), one message at a time, and a
//! limit of one message. After a restart it finds unfinished orders in the ledger, which is the coordination
//! topic.

mod command_line;
mod configuration;
mod container;
mod fetch;
mod order;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::runtime::Env;
use sawmill::{Context, Outcome};

pub(crate) use configuration::Configuration;

use crate::commands::work::program::Program;
use crate::commands::work::task::{Job, Task};
use crate::commands::work::{Delivery, OnFailure, Settings, WorkerSpec};
use crate::failure::Failure;
use crate::metrics::Address;
use crate::session::Session;
use crate::values::{Backoff, Size, Span};
use container::Containers;
use fetch::Fetch;
use order::{Kind, Order};

/// Arguments of `sawmill pool-worker`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    pool: PoolArgs,
    #[command(flatten)]
    orders: OrderArgs,
    /// The command to run for each order, with the order on its stdin. The order itself is not interpreted
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Options of the worker.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Pool")]
struct PoolArgs {
    /// The group of the pool. Every group gets every order [default: default]
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// The delivery guarantee [default: at-least-once]
    #[arg(long, value_enum, value_name = "HOW")]
    delivery: Option<Delivery>,
    /// The number of retries of a failed order [default: 5]
    #[arg(long, value_name = "N")]
    retries: Option<u32>,
    /// The wait before retries, from the first to the longest [default: 1s..1h]
    #[arg(long, value_name = "FIRST..LONGEST")]
    backoff: Option<Backoff>,
    /// The handling of orders that are out of retries: keep them as dead letters, or only log them [default:
    /// dead]
    #[arg(long, value_enum, value_name = "WHAT")]
    on_failure: Option<OnFailure>,
    /// The time limit of an order. Then its process group gets SIGTERM, and SIGKILL 2 s later [default: no
    /// limit]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<Span>,
    /// The memory limit of each process (Linux only) [default: no limit]
    #[arg(long, value_name = "SIZE")]
    memory: Option<Size>,
    /// How long the instance may be silent before others take over its order [default: 10s]
    #[arg(long, value_name = "DURATION")]
    ttl: Option<Span>,
    /// Fail if the topic of the orders does not exist, instead of creating it
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

/// Options for orders.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Orders")]
struct OrderArgs {
    /// The kinds of orders to run; others become dead letters [default: command,image,url]
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',', conflicts_with = "command")]
    accept: Vec<Kind>,
    /// The container program and its options [default: docker or podman, if installed]
    #[arg(long, value_name = "COMMAND", env = "SAWMILL_CONTAINER")]
    container: Option<String>,
    /// Options for each container, such as '--network=none --memory=1g'
    #[arg(long, value_name = "OPTIONS", env = "SAWMILL_CONTAINER_OPTIONS", allow_hyphen_values = true)]
    container_options: Option<String>,
    /// The time limit for fetching an order [default: 30s]
    #[arg(long, value_name = "DURATION")]
    fetch_timeout: Option<Span>,
    /// The size limit of a fetched order [default: 1M]
    #[arg(long, value_name = "SIZE")]
    fetch_most: Option<Size>,
}

const HELP: &str = "\
An instance runs one order and exits; a supervisor starts it again (systemd: Restart=always,
RestartSec=0). If there is no order, it waits for one. The environment configures it:

  ORDERS_TOPIC        the Kafka topic of the orders; created if it does not exist
  COORDINATION_TOPIC  the compacted topic that coordinates instances; created if it does not exist
  INSTANCE_NUMBER     the number of this instance: 0, 1, 2, …; unique among running instances
  KAFKA_BROKERS       host:port,host:port; or kafka://USER:PASSWORD@HOST:PORT?tls=on&sasl=plain

One instance runs each order, and a completed order does not run again. If an instance dies, another
one takes over its order after --ttl, or the instance itself resumes it first when it is restarted.
A command cannot be fenced: part of its work may have been done before the instance died. With
--delivery at-most-once such an order becomes a dead letter.

An order is text:
  convert in.png 'out file.jpg'
or JSON, one of:
  {\"command\": \"convert in.png out.jpg\", \"env\": {\"QUALITY\": \"90\"}}
  {\"command\": [\"convert\", \"in.png\", \"out file.jpg\"]}
  {\"image\": \"resize:2\", \"args\": [\"--fast\"], \"env\": {\"SIZE\": \"50%\"}}
  {\"url\": \"https://example.org/orders/17\"}
No shell is involved: quotes hold words together, and nothing is expanded. A container gets the same
variables, such as SAWMILL_ID; it is named sawmill-ID and removed at the end. A URL leads to an order
that is not a URL itself. It must be https, or http on this machine; redirects are not followed.
Messages that are not orders become dead letters. Anybody who can write to the topic can run commands
as this user; --accept limits that. With -- COMMAND, that command runs instead of the order, as with
`sawmill work`, and gets the order on stdin.

The environment, exit codes and signals of commands are those of `sawmill work`; see its --help.
Exit codes of the instance: 0 after an order with any result, or when it was told to stop; 1 if an
error stopped it, or another instance uses its number; 2 wrong usage or configuration; 3 Kafka could
not be reached.

Other commands access the pool with --store 'kafka://BROKERS?coordination=COORDINATION_TOPIC'.

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
    // An instance exits after one attempt, so retries are never immediate: another start runs them later.
    plan.retry = plan.retry.immediate(0);
    let task = match args.command.is_empty() {
        false => Task::Program(Program::find(&args.command)?),
        true => Task::Orders(Orders::new(&args.orders)?),
    };
    let spec = WorkerSpec { topics: vec![orders], flags, plan, task };
    spec.run(session).await
}

impl PoolArgs {
    /// Returns the worker settings of one instance.
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

/// Turns orders into runs.
pub(crate) struct Orders {
    /// The accepted kinds; empty means all.
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

    /// Returns the run for an order.
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
                let pairs = [pairs, crate::commands::work::variables(context)].concat();
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
