//! Sawmill is a durable work queue and worker pool that runs on the storage you already have.
//!
//! Push messages to a topic, and let workers handle them. Nothing acknowledged is lost, nothing is done twice that must not
//! be, and no broker has to be run.
//!
//! ```
//! use sawmill::{Context, Push, Sawmill};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! let mill = Sawmill::open("memory:").await?;
//! mill.create_topic("emails").await?;
//! mill.push("emails", Push::new("Hello Alice").key("alice")).await?;
//!
//! let worker = mill.worker("emails").slots(8).start(|mail: Context| async move {
//!     println!("sending {:?}", mail.payload());
//! }).await?;
//!
//! worker.drained().await;
//! assert_eq!(worker.stop().await.done, 1);
//! # Ok(()) }
//! ```
//!
//! `memory:` forgets everything when the process ends. The crate `sawmill-sqlite` keeps it in a file.
//!
//! # Words
//!
//! A **message** has an id, a payload, and if you like a key, headers and a due time. A **topic** is a named log of messages,
//! split into **shards**; messages with the same key share a shard. A **group** is one reader of a topic: every group sees
//! every message, and groups share nothing. A **worker** is a running member of a group, with **slots**: room to run so many
//! handlers at once. A worker **grabs** the next block of messages of a shard and holds a **claim** on it until all of them
//! are settled; the **token** of the claim is the fencing number that a handler can pass on.
//!
//! # What a handler may take
//!
//! A handler is an `async` function, and its arguments say what it wants to know: the whole [`Context`] of the message, its
//! payload as [`Json`] (or `String`, `Bytes`, a protocol buffer with the feature `prost`), what all handlers share as
//! [`State`], or [something of one's own](FromContext). A payload that cannot be read becomes a dead letter at once.
//!
//! ```
//! use sawmill::{Json, Push, Sawmill, State};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Mail { to: String, text: String }
//!
//! struct Server { name: String }
//!
//! async fn send(Json(mail): Json<Mail>, server: State<Server>) -> Result<(), std::io::Error> {
//!     println!("{} sends {:?} to {}", server.name, mail.text, mail.to);
//!     Ok(())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! # let mill = Sawmill::open("memory:").await?;
//! # mill.create_topic("emails").await?;
//! let mail = Mail { to: "Alice".to_owned(), text: "Hello".to_owned() };
//! mill.push("emails", Push::json(&mail)?).await?;
//! let worker = mill.worker("emails").state(Server { name: "mx1".to_owned() }).start(send).await?;
//! worker.drained().await;
//! assert_eq!(worker.stop().await.done, 1);
//! # Ok(()) }
//! ```
//!
//! There are handlers of [batches](WorkerBuilder::start_batch) and [blocking](WorkerBuilder::start_blocking) ones,
//! [hooks](WorkerBuilder::on_start) around a worker's life and [layers](WorkerBuilder::layer) around its handler; and a program
//! may [pull](WorkerBuilder::pull) messages itself.
//!
//! # What a handler may say
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
//! A handler that panics fails its message, not the worker. What fails is tried again as the group's [`RetryPolicy`] says,
//! and out of attempts it becomes a [dead letter](DeadLetters), which a person can look at, resend or drop.
//!
//! # Two switches
//!
//! [`ordered`](WorkerBuilder::ordered) gives strict order per key across all workers of the group, with parallelism across
//! keys. [`Delivery`] says how often a message may be run: at least once (the default), or at most once.
//!
//! ```
//! use sawmill::{Context, Delivery, Sawmill};
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
//! # let mill = Sawmill::open("memory:").await?;
//! # mill.create_topic("payments").await?;
//! let worker = mill
//!     .worker("payments")
//!     .group("bookkeeping")
//!     .ordered()
//!     .delivery(Delivery::AtMostOnce)
//!     .start(|_payment: Context| async {})
//!     .await?;
//! worker.stop().await;
//! # Ok(()) }
//! ```
//!
//! # What starts, and when
//!
//! A worker of [several topics](Sawmill::worker_for) works them strictly by priority. A group can be
//! [paused](Sawmill::pause), and [limited](WorkerBuilder::limit) in what all its workers together run at once or start in a
//! time.
//!
//! # Testing and watching
//!
//! [`testing`] is a kit that runs your handlers in memory, with a clock that the test moves. [`observe`] lists what can be
//! watched: a span around each run of a handler, log events, metrics, and a stream of [`Event`]s in the process.
//!
//! # Engines
//!
//! Everything above stands on two seams: a [`log`], where messages live, and a [`ledger`], which says who has done what. An
//! engine implements one or both; all rules are here, once. What an engine can do beyond them is declared as
//! [`Capabilities`], and asking for what it cannot do is an error that says who can.

mod cancel;
pub mod claim;
pub mod clock;
mod crew;
mod dead;
pub mod dice;
pub mod engine;
pub mod env;
pub mod error;
mod event;
pub mod handler;
pub mod ledger;
mod limit;
pub mod log;
pub mod member;
pub mod memory;
pub mod message;
mod mill;
pub mod observe;
mod outcome;
mod pause;
mod payload;
pub mod planted;
mod producer;
mod push;
mod retry;
pub mod ring;
mod schedule;
mod seek;
pub mod shard;
mod status;
pub mod testing;
mod timetable;
pub mod topic;
mod trim;
mod unique;
mod worker;

pub use claim::{Token, WorkerId};
pub use clock::Timestamp;
pub use crew::MemberInfo;
pub use dead::{DeadLetter, DeadLetters, Which};
pub use engine::Capabilities;
pub use error::{Error, ErrorKind, Result};
pub use event::{Event, Events};
pub use handler::{Batch, Context, FromContext, Handler, IntoHandler, Next, State};
pub use limit::Limit;
pub use message::{Headers, Message, MessageId, Push};
pub use mill::{OpenOptions, Sawmill};
pub use outcome::{IntoOutcome, IntoOutcomes, Outcome};
pub use payload::Json;
#[cfg(feature = "prost")]
pub use payload::Proto;
pub use producer::Producer;
pub use retry::{Failure, RetryPolicy};
pub use schedule::{Missed, Schedule};
pub use seek::Since;
pub use status::GroupStatus;
pub use timetable::Scheduled;
pub use topic::{GroupName, Lane, Topic, TopicName, TopicSpec};
pub use worker::{Counts, Delivery, Job, OnFailure, Puller, WaitingOn, Worker, WorkerBuilder, WorkerState};
