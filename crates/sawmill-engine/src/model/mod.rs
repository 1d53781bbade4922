//! The model: messages, topics and the content of ledger entries, as plain data and pure functions.
//!
//! Nothing here touches a store. Functions that need the time or a random number take it, or its source, as
//! an argument. The central type is [`ShardState`]: a group's cursor and claims on one shard, and every
//! change of them.

mod claim;
mod copies;
mod format;
mod headers;
mod id;
mod keys;
mod limit;
mod member;
mod message;
mod position;
mod progress;
mod push;
mod retry;
pub mod ring;
mod schedule;
mod shard;
mod topic;
mod unique;

pub use claim::{Claim, Token, WorkerId};
pub use copies::{Copies, Failure};
pub use format::{Format, corrupt, outdated, unreadable};
pub use headers::{Headers, MAX_HEADER_BYTES};
pub use id::{IdMaker, MessageId};
pub use keys::EntryKey;
pub use limit::{Limit, START};
pub use member::{InUse, Member, RunningMessage, heartbeat_interval, lease};
pub use message::{MAX_KEY_BYTES, Message};
pub use position::{Position, Span};
pub use progress::Progress;
pub use push::{Due, Push};
pub use retry::{NextAttempt, RetryPolicy};
pub use schedule::{DueTicks, Missed, Schedule, Timing};
pub use shard::{Fate, NewClaim, Refusal, Report, Rules, ShardState, Tally, hash, shard_of};
pub use topic::{
    DEFAULT_RETENTION, DEFAULT_SHARDS, GroupName, Lane, MAX_GROUP_NAME, MAX_SHARDS, MAX_TOPIC_NAME, Topic,
    TopicName, TopicSpec, base_name, check_name,
};
pub use unique::{BUCKET_COUNT, MAX_UNIQUE_BYTES, NameBucket, Reservation, Unique};
