//! Real processes on one node, and what really happens to processes: they are killed, and they stand still. Some of the same tests as
//! on SQLite, and those of the note on sharded workers.
//!
//! The test program starts itself anew for each child.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![allow(dead_code, reason = "what the tests share is also for those that are left out")]
#![cfg(unix)]

mod place;
#[path = "../support/mod.rs"]
mod server;
mod sharded;

#[path = "../../../sawmill-sqlite/tests/processes/child.rs"]
mod child;
#[path = "../../../sawmill-sqlite/tests/processes/crew.rs"]
mod crew;
#[path = "../../../sawmill-sqlite/tests/processes/deliveries.rs"]
mod deliveries;
#[path = "../../../sawmill-sqlite/tests/processes/job.rs"]
mod job;
#[path = "../../../sawmill-sqlite/tests/processes/order.rs"]
mod order;
#[path = "../../../sawmill-sqlite/tests/processes/record.rs"]
mod record;
#[path = "../../../sawmill-sqlite/tests/processes/takeover.rs"]
mod takeover;

/// What a child process runs. In the test program itself there is nothing for it to do.
#[test]
fn child() {
    if let Some(job) = job::Job::of_this_process() {
        child::run(job);
    }
}
