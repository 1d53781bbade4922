//! The manual of the library: one section, with a program that runs, for each way to use it.
//!
//! # Words
//!
//! A **message** has an id, a payload, and if you like a key, headers and a due time. A **topic** is a named log of messages,
//! split into **shards**; messages with the same key share a shard. A **group** is one reader of a topic: every group sees
//! every message, and groups share nothing. A **worker** is a running member of a group, with a **concurrency**: how many
//! handlers it runs at once. A worker claims the next block of messages of a shard and holds a **claim** on it until all of
//! them are settled; the **token** of the claim is the fencing number that a handler can pass on.
//!
//! # Pushing
//!
//! When a push returns, the message is durable. [`push`](crate::Sawmill::push) takes one, [`push_many`](crate::Sawmill::push_many) many at
//! once, and a [`Producer`](crate::Producer) gathers the single pushes of many tasks. A [`Push`](crate::Push) says what goes with the payload; a [unique
//! one](crate::Push::unique) is not added while another of its name is live.
//!
//! ```
//! use std::time::Duration;
//! use sawmill::{Push, Sawmill};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! # let mill = Sawmill::open("memory:").await?;
//! # mill.create_topic("calls").await?;
//! mill.push("calls", "a payload alone").await?;
//! mill.push("calls", Push::new("Bob").key("bob").header("lang", "en").after(Duration::from_secs(60))).await?;
//!
//! let first = mill.push("calls", Push::new("Carol").unique("carol")).await?;
//! let again = mill.push("calls", Push::new("Carol").unique("carol")).await?;
//! assert_eq!(first, again);
//! # Ok(()) }
//! ```
//!
//! A [typed topic](crate::TypedTopic) is created if it is not there, and pushes values of one type as JSON.
//!
//! # Working
//!
//! A handler is an `async` function, and its arguments say what it wants to know: the [`Context`](crate::Context) of the message, its payload
//! as [`Json`](crate::Json) (or `String`, `Bytes`, a protocol buffer with the feature `prost`), what all handlers share as [`State`](crate::State), or
//! [something of one's own](crate::handler::FromContext). A payload that cannot be read becomes a dead letter at once.
//!
//! ```
//! use sawmill::{Context, Json, Push, Sawmill, State};
//!
//! struct Server { name: String }
//!
//! async fn call(context: Context, Json(number): Json<u32>, server: State<Server>) -> Result<(), std::io::Error> {
//!     println!("{} calls {number}, attempt {}", server.name, context.attempt());
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! # let mill = Sawmill::open("memory:").await?;
//! # mill.create_topic("calls").await?;
//! # mill.push("calls", Push::json(&110)?).await?;
//! let worker = mill.worker("calls").state(Server { name: "pbx1".to_owned() }).start(call).await?;
//! # worker.drained().await;
//! assert_eq!(worker.stop().await.done, 1);
//! # Ok(()) }
//! ```
//!
//! What is shared can also be [opened before the first message](crate::WorkerBuilder::on_start) and [closed after the
//! last](crate::WorkerBuilder::on_stop). [Layers](crate::WorkerBuilder::layer) wrap code around every handler. Handlers that block their
//! thread are for [`start_blocking`](crate::WorkerBuilder::start_blocking). A handler may [note](crate::Context::note) how far it is,
//! which [`workers`](crate::admin::Admin::workers) shows to others.
//!
//! # Stopping
//!
//! [`run_until`](crate::Worker::run_until) works until a signal comes, and then stops. [`stop`](crate::Worker::stop) waits for
//! handlers that run, and gives the rest back; [`abort`](crate::Worker::abort) does not wait for handlers. Dropping a
//! [`Worker`](crate::Worker) or a [`Puller`](crate::Puller) tells it to stop, and returns at once.
//! [`detach`](crate::Worker::detach) lets a worker run on without its handle.
//!
//! # Failure
//!
//! A handler returns anything that [stands for an outcome](crate::handler::IntoOutcome): nothing (done), a `Result` (an error means: try
//! again), or an [`Outcome`](crate::Outcome) itself.
//!
//! ```
//! use std::time::Duration;
//! use sawmill::{Context, Outcome};
//!
//! async fn send(mail: Context) -> Outcome {
//!     match mail.payload().as_ref() {
//!         b"" => Outcome::dead("there is nothing to send"),
//!         _ if mail.attempt() == 1 => Outcome::retry("the server is busy"),
//!         _ if mail.attempt() == 2 => Outcome::Snooze(Duration::from_secs(60)),
//!         _ => Outcome::Done,
//!     }
//! }
//! # let _ = send;
//! ```
//!
//! A handler that panics, or takes longer than its [timeout](crate::WorkerBuilder::timeout), fails its message, not the worker. What
//! fails is tried again as the group's [`RetryPolicy`](crate::RetryPolicy) says, and out of attempts it becomes a [dead letter](crate::admin::DeadLetters),
//! which a person can look at, retry or drop.
//!
//! # Order and delivery
//!
//! [`ordered`](crate::WorkerBuilder::ordered) gives strict order per key across all workers of the group, with parallelism across
//! keys. [`Delivery`](crate::Delivery) says how often a message may be run: at least once (the default), or at most once; or, on SQL engines, that
//! the handler's own writes and the mark that the message is done are one transaction, so that it has exactly one effect. What must not be
//! done by a worker that was declared dead and woke up again can be guarded by the [token](crate::Context::token).
//!
//! ```
//! use sawmill::{Context, Delivery, Sawmill};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! # let mill = Sawmill::open("memory:").await?;
//! # mill.create_topic("payments").await?;
//! let worker = mill
//!     .worker("payments")
//!     .ordered()
//!     .delivery(Delivery::AtMostOnce)
//!     .start(|payment: Context| async move { println!("{} under {}", payment.id(), payment.token()) })
//!     .await?;
//! worker.stop().await;
//! # Ok(()) }
//! ```
//!
//! # Time and schedules
//!
//! A message may be [due at a time](crate::Push::at) or [after one](crate::Push::after), and a handler may put it off by
//! [`Outcome::Snooze`](crate::Outcome::Snooze). A [`Schedule`](crate::Schedule) pushes a message again and again, each tick once; [`Missed`](crate::Missed) says what becomes of ticks
//! for which nobody was there.
//!
//! ```
//! use sawmill::{Sawmill, Schedule};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! # let mill = Sawmill::open("memory:").await?;
//! # mill.create_topic("reports").await?;
//! mill.schedule("reports", Schedule::cron("nightly", "0 3 * * *", "Europe/Berlin")?.message("all")).await?;
//! println!("next at {:?}", mill.schedules("reports").await?[0].next());
//! # Ok(()) }
//! ```
//!
//! # Groups
//!
//! A group begins with its first worker. An operator's calls are behind [`admin`](crate::Sawmill::admin): [`status`](crate::admin::Admin::status)
//! says where a group stands, [`pause`](crate::admin::Admin::pause) and [`resume`](crate::admin::Admin::resume) hold it and let it go on,
//! and [`replay`](crate::admin::Admin::replay) has it handle messages again or skip them. [`cancel`](crate::Sawmill::cancel) takes one
//! message from all groups.
//!
//! ```
//! use sawmill::admin::ReplayFrom;
//! use sawmill::{Context, Sawmill};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! # let mill = Sawmill::open("memory:").await?;
//! # mill.create_topic("orders").await?;
//! let ids = mill.push_many("orders", ["one", "two", "three"]).await?;
//! mill.cancel("orders", ids[1]).await?;
//! let worker = mill.worker("orders").group("totals").start(|_order: Context| async {}).await?;
//! worker.drained().await;
//! mill.admin().replay("orders", "totals", ReplayFrom::Start).await?;
//! worker.drained().await;
//! worker.stop().await;
//!
//! let status = mill.admin().status("orders", "totals").await?;
//! assert_eq!((status.done, status.waiting), (4, 0), "two, and the same two again");
//! # Ok(()) }
//! ```
//!
//! A topic's log is [trimmed](crate::admin::Admin::trim) as its [`TopicSpec`](crate::TopicSpec) says.
//!
//! # Limits
//!
//! A worker of [several topics](crate::Sawmill::worker_for) works them strictly by priority. A [limit](crate::WorkerBuilder::limit) holds
//! for all workers of a group together: so many [at once](crate::Limit::running), or [in a time](crate::Limit::rate); in ordered groups
//! also [for each key](crate::WorkerBuilder::limit_per_key).
//!
//! ```
//! use sawmill::{Context, Limit, Sawmill};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! # let mill = Sawmill::open("memory:").await?;
//! # for topic in ["urgent", "bulk"] { mill.create_topic(topic).await?; }
//! let worker = mill
//!     .worker_for(["urgent", "bulk"])
//!     .limit(Limit::running(3).and(Limit::per_second(50)))
//!     .start(|_mail: Context| async {})
//!     .await?;
//! worker.stop().await;
//! # Ok(()) }
//! ```
//!
//! # Pulling
//!
//! A program that has a loop of its own, or answers jobs later, [pulls](crate::WorkerBuilder::pull) messages instead of having a
//! handler called: a [`Puller`](crate::Puller) gives out [`Job`](crate::Job)s.
//!
//! # Batches
//!
//! [`start_batch`](crate::WorkerBuilder::start_batch) calls a handler with many messages at once; a [`Batch`](crate::Batch) says how many, and how
//! long to wait for them.
//!
//! # Testing
//!
//! [`testing`](crate::testing) is a kit that runs your handlers in memory, in milliseconds, with a clock that the test moves.
//!
//! # Access
//!
//! An [`AccessKey`](crate::admin::AccessKey) says what the holder of a secret may do, for servers that let others use a store. The crate
//! `sawmill-serve` does so over HTTP.
//!
//! # Watching
//!
//! [`telemetry`](crate::telemetry) lists what can be watched, under names that stay: a span around each run of a handler, log events and metrics.
//! The feature `otel` has traces that go from a push to its handlers, and metrics, for OpenTelemetry (module `telemetry::otel`).
//! [`events`](crate::Sawmill::events) is a stream of what happens in the process, and [`Worker::state`](crate::Worker::state) says what a worker does now.
//! [`snapshot`](crate::admin::Admin::snapshot) shows whether groups keep up, and [`doctor`](crate::admin::Admin::doctor) finds what is wrong
//! with a store.
//!
//! # Engines
//!
//! Everything above stands on two seams: a [`Log`](crate::engine::storage::Log), where messages live, and a
//! [`Ledger`](crate::engine::storage::Ledger), which says who has done what. An engine implements one or both; the rules of the queue
//! are here, once. An engine declares what it can do as [`Capabilities`](crate::engine::storage::Capabilities); asking for more is an
//! error that names the engines that can. [`Sawmill::options`](crate::Sawmill::options) opens a store with an engine of your own, a namespace, or a
//! ledger in another store than the messages.
