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
//! # Engines
//!
//! Everything above stands on two seams: a [`log`], where messages live, and a [`ledger`], which says who has done what. An
//! engine implements one or both; all rules are here, once. What an engine can do beyond them is declared as
//! [`Capabilities`], and asking for what it cannot do is an error that says who can.

pub mod claim;
pub mod clock;
mod dead;
pub mod dice;
pub mod engine;
pub mod env;
pub mod error;
mod handler;
pub mod ledger;
pub mod log;
pub mod member;
pub mod memory;
pub mod message;
mod mill;
mod outcome;
pub mod planted;
mod producer;
mod push;
mod retry;
pub mod ring;
mod schedule;
pub mod shard;
mod status;
mod timetable;
pub mod topic;
mod trim;
mod unique;
mod worker;

pub use claim::{Token, WorkerId};
pub use clock::Timestamp;
pub use dead::{DeadLetter, DeadLetters, Which};
pub use engine::Capabilities;
pub use error::{Error, ErrorKind, Result};
pub use handler::{Context, Handler};
pub use message::{Headers, Message, MessageId, Push};
pub use mill::{OpenOptions, Sawmill};
pub use outcome::{IntoOutcome, Outcome};
pub use producer::Producer;
pub use retry::{Failure, RetryPolicy};
pub use schedule::{Missed, Schedule};
pub use status::GroupStatus;
pub use timetable::Scheduled;
pub use topic::{GroupName, Lane, Topic, TopicName, TopicSpec};
pub use worker::{Counts, Delivery, OnFailure, WaitingOn, Worker, WorkerBuilder, WorkerState};
