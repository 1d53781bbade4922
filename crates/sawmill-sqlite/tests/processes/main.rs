//! Real processes on one store, here a file, and what really happens to processes: they are killed, they stand still, they
//! all come at once. What the children did is read from their own records and held against what must always hold.
//!
//! The test program starts itself anew for each child; see [`child`] and [`crew`].
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![cfg(unix)]

mod child;
mod crew;
mod crowd;
mod deliveries;
mod job;
mod journal;
mod order;
mod place;
mod plug;
mod record;
mod stall;
mod takeover;

/// What a child process runs. In the test program itself there is nothing for it to do.
#[test]
fn child() {
    if let Some(job) = job::Job::of_this_process() {
        child::run(job);
    }
}
