//! Sawmill: a durable work queue and worker pool on the storage you already have.
#![doc = "draft"]

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
mod retry;
pub mod ring;
pub mod shard;
mod status;
pub mod topic;
mod worker;

pub use claim::{Token, WorkerId};
pub use clock::Timestamp;
pub use dead::{DeadLetter, DeadLetters, Which};
pub use engine::Capabilities;
pub use error::{Error, ErrorKind, Result};
pub use handler::{Context, Handler};
pub use message::{Headers, MAX_HEADER_BYTES, MAX_KEY_BYTES, Message, MessageId, Push};
pub use mill::{OpenOptions, Sawmill};
pub use outcome::{IntoOutcome, Outcome};
pub use retry::{Failure, RetryPolicy};
pub use status::GroupStatus;
pub use topic::{
    DEFAULT_RETENTION, DEFAULT_SHARDS, GroupName, Lane, MAX_SHARDS, MAX_TOPIC_NAME, Topic, TopicName,
    TopicSpec,
};
pub use worker::{Counts, Delivery, OnFailure, WaitingOn, Worker, WorkerBuilder, WorkerState};
