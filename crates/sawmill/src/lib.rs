//! Sawmill is a durable work queue and worker pool that runs on the storage you already have.
//!
//! Push messages to a topic, and let workers handle them. Nothing acknowledged is lost, nothing is done twice that must not
//! be, and no broker has to be run.
//!
//! ```no_run
//! use sawmill::{Json, Sawmill};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Mail { to: String, text: String }
//!
//! async fn send(Json(mail): Json<Mail>) -> Result<(), std::io::Error> {
//!     println!("to {}: {}", mail.to, mail.text);
//!     Ok(())
//! }
//!
//! #[tokio::main]
//! async fn main() -> sawmill::Result<()> {
//!     let mill = Sawmill::open("sqlite:jobs.db").await?; // needs the feature `sqlite`
//!     let emails = mill.topic::<Mail>("emails").await?;
//!     emails.push(&Mail { to: "alice".into(), text: "Hello".into() }).await?;
//!     emails.worker().concurrency(8).start(send).await?.run_until(tokio::signal::ctrl_c()).await;
//!     Ok(())
//! }
//! ```
//!
//! The [manual] has a program for each way to use the library:
//!
//! | to | see |
//! |---|---|
//! | push: keys, due times, unique messages, transactions | [Pushing](manual#pushing), [`Push`], [`Producer`], [`Draft`] |
//! | handle messages: arguments, shared state, failure, batches, pulling | [Working](manual#working), [`WorkerBuilder`], [`Outcome`] |
//! | keep order, deliver at most once or exactly once | [Order and delivery](manual#order-and-delivery), [`Delivery`] |
//! | run things at certain times | [Time and schedules](manual#time-and-schedules), [`Schedule`] |
//! | operate: status, pause, replay, dead letters, access keys | [Groups](manual#groups), [`admin`] |
//! | watch: events, spans, metrics | [`telemetry`] |
//! | test handlers in milliseconds | [`testing`] |
//! | write an engine | [`engine`] |

pub mod admin;
mod client;
pub mod handler;
pub mod manual;
mod store;
pub mod telemetry;
pub mod testing;
pub mod worker;

/// The parts that engines are made of: the two seams, the model, and the runtime.
pub use sawmill_engine as engine;

#[cfg(feature = "cassandra")]
pub use sawmill_cassandra as cassandra;
#[cfg(feature = "kafka")]
pub use sawmill_kafka as kafka;
#[cfg(feature = "mysql")]
pub use sawmill_mysql as mysql;
#[cfg(feature = "postgres")]
pub use sawmill_postgres as postgres;
#[cfg(feature = "sqlite")]
pub use sawmill_sqlite as sqlite;
#[cfg(feature = "zookeeper")]
pub use sawmill_zookeeper as zookeeper;

pub use client::{OpenOptions, Producer, Sawmill, Scheduled, TypedTopic};
#[cfg(feature = "prost")]
pub use handler::Proto;
pub use handler::{Batch, Context, Json, Outcome, State};
pub use sawmill_engine::model::{
    Limit, Message, MessageId, Missed, Push, RetryPolicy, Schedule, Topic, TopicSpec,
};
pub use sawmill_engine::runtime::Timestamp;
pub use sawmill_engine::storage::Draft;
pub use sawmill_engine::{Error, ErrorKind, Result};
pub use worker::{Delivery, Job, OnFailure, Puller, Worker, WorkerBuilder};

/// The README's example is compiled with the documentation's.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
