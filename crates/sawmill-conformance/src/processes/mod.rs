//! Real processes on one store, and what really happens to processes: they are killed, and they stand still. What the children did is
//! read from their own records and held against what must always hold.
//!
//! [`processes!`](crate::processes!) makes a test of each trial. The test program starts itself anew for each child; see [`child`] and
//! [`crew`].
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(missing_docs, reason = "the name of a test says what it shows")]

pub mod child;
pub mod crew;
pub mod deliveries;
pub mod job;
#[cfg(target_os = "linux")]
pub mod journal;
pub mod order;
pub mod record;
pub mod sharded;
pub mod takeover;
