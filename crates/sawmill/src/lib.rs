//! Sawmill is a durable work queue and worker pool that runs on the storage you already have.
//!
//! Push messages to a topic, and let workers handle them. Nothing acknowledged is lost, nothing is done twice that must not
//! be, and no broker has to be run.
//!
//! ```
//! use sawmill::{Json, Push, Sawmill};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Mail { to: String, text: String }
//!
//! async fn send(Json(mail): Json<Mail>) {
//!     println!("to {}: {}", mail.to, mail.text);
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! let mill = Sawmill::open("memory:").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", Push::json(&Mail { to: "alice".into(), text: "Hello".into() })?).await?;
//!
//! let worker = mill.worker("emails").slots(8).start(send).await?;
//! worker.drained().await;
//! assert_eq!(worker.stop().await.done, 1);
//! # Ok(()) }
//! ```
//!
//! `memory:` forgets everything when the process ends. The crate `sawmill-sqlite` keeps it in a file, and its folder
//! `examples` has a small program for most of what follows.
//!
//! # Words
//!
//! A **message** has an id, a payload, and if you like a key, headers and a due time. A **topic** is a named log of messages,
//! split into **shards**; messages with the same key share a shard. A **group** is one reader of a topic: every group sees
//! every message, and groups share nothing. A **worker** is a running member of a group, with **slots**: room to run so many
//! handlers at once. A worker **grabs** the next block of messages of a shard and holds a **claim** on it until all of them
//! are settled; the **token** of the claim is the fencing number that a handler can pass on.
//!
//! # Pushing
//!
//! When a push returns, the message is durable. [`push`](Sawmill::push) takes one, [`push_many`](Sawmill::push_many) many at
//! once, and a [`Producer`] gathers the single pushes of many tasks. A [`Push`] says what goes with the payload; a [unique
//! one](Push::unique) is not added while another of its name is live.
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
//! # Working
//!
//! A handler is an `async` function, and its arguments say what it wants to know: the [`Context`] of the message, its payload
//! as [`Json`] (or `String`, `Bytes`, a protocol buffer with the feature `prost`), what all handlers share as [`State`], or
//! [something of one's own](FromContext). A payload that cannot be read becomes a dead letter at once.
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
//! What is shared can also be [opened before the first message](WorkerBuilder::on_start) and [closed after the
//! last](WorkerBuilder::on_stop). [Layers](WorkerBuilder::layer) wrap code around every handler. Handlers that block their
//! thread are for [`start_blocking`](WorkerBuilder::start_blocking). A handler may [note](Context::note) how far it is,
//! which [`members`](Sawmill::members) shows to others. [`stop`](Worker::stop) ends a worker when what runs is done,
//! [`abort`](Worker::abort) at once.
//!
//! # Failure
//!
//! A handler returns anything that [stands for an outcome](IntoOutcome): nothing (done), a `Result` (an error means: try
//! again), or an [`Outcome`] itself.
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
//! A handler that panics, or takes longer than its [timeout](WorkerBuilder::timeout), fails its message, not the worker. What
//! fails is tried again as the group's [`RetryPolicy`] says, and out of attempts it becomes a [dead letter](DeadLetters),
//! which a person can look at, resend or drop.
//!
//! # Order and delivery
//!
//! [`ordered`](WorkerBuilder::ordered) gives strict order per key across all workers of the group, with parallelism across
//! keys. [`Delivery`] says how often a message may be run: at least once (the default), or at most once; or, on SQL engines, that
//! the handler's own writes and the mark that the message is done are one transaction, so that it has exactly one effect. What must not be
//! done by a worker that was declared dead and woke up again can be guarded by the [token](Context::token).
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
//! A message may be [due at a time](Push::at) or [after one](Push::after), and a handler may put it off by
//! [`Outcome::Snooze`]. A [`Schedule`] pushes a message again and again, each tick once; [`Missed`] says what becomes of ticks
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
//! A group begins with its first worker. [`status`](Sawmill::status) says where it stands, [`pause`](Sawmill::pause) and
//! [`resume`](Sawmill::resume) hold it and let it go on, [`seek`](Sawmill::seek) has it handle messages again or skip them,
//! and [`cancel`](Sawmill::cancel) takes one message from all groups.
//!
//! ```
//! use sawmill::{Context, Sawmill, Since};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! # let mill = Sawmill::open("memory:").await?;
//! # mill.create_topic("orders").await?;
//! let ids = mill.push_many("orders", ["one", "two", "three"]).await?;
//! mill.cancel("orders", ids[1]).await?;
//! let worker = mill.worker("orders").group("totals").start(|_order: Context| async {}).await?;
//! worker.drained().await;
//! mill.seek("orders", "totals", Since::Start).await?;
//! worker.drained().await;
//! worker.stop().await;
//!
//! let status = mill.status("orders", "totals").await?;
//! assert_eq!((status.done, status.waiting), (4, 0), "two, and the same two again");
//! # Ok(()) }
//! ```
//!
//! A topic's log is [trimmed](Sawmill::trim) as its [`TopicSpec`] says.
//!
//! # Limits
//!
//! A worker of [several topics](Sawmill::worker_for) works them strictly by priority. A [limit](WorkerBuilder::limit) holds
//! for all workers of a group together: so many [at once](Limit::running), or [in a time](Limit::rate); in ordered groups
//! also [for each key](WorkerBuilder::limit_per_key).
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
//! A program that has a loop of its own, or answers jobs later, [pulls](WorkerBuilder::pull) messages instead of having a
//! handler called: a [`Puller`] gives out [`Job`]s.
//!
//! # Batches
//!
//! [`start_batch`](WorkerBuilder::start_batch) calls a handler with many messages at once; a [`Batch`] says how many, and how
//! long to wait for them.
//!
//! # Testing
//!
//! [`testing`] is a kit that runs your handlers in memory, in milliseconds, with a clock that the test moves.
//!
//! # Access
//!
//! A [`Grant`] says what the holder of a secret may do, by [`Access`], for those that serve a store to others. The crate
//! `sawmill-serve` does so over HTTP.
//!
//! # Watching
//!
//! [`observe`] lists what can be watched, under names that stay: a span around each run of a handler, log events and metrics.
//! The feature `otel` has traces that go from a push to its handlers, and metrics, for OpenTelemetry (module `otel`).
//! [`events`](Sawmill::events) is a stream of what happens in the process, and [`Worker::state`] says what a worker does now. [`look`](Sawmill::look) tells whether groups keep up, and
//! [`check_up`](Sawmill::check_up) what is wrong with a store.
//!
//! # Engines
//!
//! Everything above stands on two seams: a [`log`], where messages live, and a [`ledger`], which says who has done what. An
//! [`engine`] implements one or both; all rules are here, once. What an engine can do beyond them is declared as
//! [`Capabilities`], and asking for what it cannot do is an error that says who can. [`Sawmill::options`] opens a store with
//! an engine of one's own, a namespace, or a ledger that is kept elsewhere than the messages.

mod access;
pub mod bells;
mod cancel;
mod checkup;
pub mod claim;
pub mod clock;
mod crew;
mod dead;
pub mod dice;
mod draft;
pub mod engine;
pub mod env;
pub mod error;
mod event;
mod format;
pub mod handler;
pub mod ledger;
mod limit;
pub mod log;
pub mod member;
pub mod memory;
pub mod message;
mod mill;
pub mod observe;
#[cfg(feature = "otel")]
pub mod otel;
mod outcome;
mod pause;
mod payload;
mod peek;
pub mod planted;
mod producer;
mod push;
mod report;
mod retry;
pub mod ring;
mod schedule;
mod seek;
pub mod shard;
mod status;
pub mod testing;
mod timetable;
pub mod topic;
mod trace;
mod trim;
mod unique;
mod verdict;
mod whereabouts;
pub mod words;
mod worker;

pub use access::{Access, Grant};
pub use checkup::Finding;
pub use claim::{Token, WorkerId};
pub use clock::Timestamp;
pub use crew::MemberInfo;
pub use dead::{DeadLetter, DeadLetters, Which};
pub use draft::Draft;
pub use engine::Capabilities;
pub use error::{Error, ErrorKind, Result};
pub use event::{Event, Events};
pub use format::Format;
pub use handler::{Batch, Context, FromContext, Handler, IntoHandler, Next, State};
pub use limit::Limit;
pub use message::{Headers, Message, MessageId, Push};
pub use mill::{OpenOptions, Sawmill};
pub use outcome::{IntoOutcome, IntoOutcomes, Outcome};
pub use payload::Json;
#[cfg(feature = "prost")]
pub use payload::Proto;
pub use producer::Producer;
pub use report::{GroupReport, Look};
pub use retry::{Failure, RetryPolicy};
pub use schedule::{Missed, Schedule};
pub use seek::Since;
pub use status::GroupStatus;
pub use timetable::Scheduled;
pub use topic::{GroupName, Lane, Topic, TopicName, TopicSpec};
pub use whereabouts::{Standing, Whereabouts};
pub use worker::{Counts, Delivery, Job, OnFailure, Puller, WaitingOn, Worker, WorkerBuilder, WorkerState};
