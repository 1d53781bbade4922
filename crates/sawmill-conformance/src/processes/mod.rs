//! Trials with real processes on one store, which are killed and suspended. The children's records are
//! checked against the promises.
//!
//! [`processes!`](crate::processes!) makes a test of each trial. The test program starts itself for each
//! child; see [`child`] and [`parent`].
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(missing_docs, reason = "the name of a test says what it shows")]

pub mod child;
pub mod deliveries;
pub mod job;
#[cfg(target_os = "linux")]
pub mod journal;
pub mod order;
pub mod parent;
pub mod record;
pub mod sharded;
pub mod takeover;
