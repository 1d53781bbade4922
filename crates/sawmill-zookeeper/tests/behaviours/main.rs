//! The behaviours that the library promises, each shown by a test that is named after its id, with messages in SQLite and the
//! ledger in ZooKeeper: the same tests as on SQLite alone, on another place. Left out are those that are about SQLite's locks.
#![allow(clippy::unwrap_used, reason = "what fails in a test is to fail the test, helpers included")]

mod place;
#[path = "../support/mod.rs"]
mod server;

#[path = "../../../sawmill-sqlite/tests/behaviours/batches.rs"]
mod batches;
#[path = "../../../sawmill-sqlite/tests/behaviours/both.rs"]
mod both;
#[path = "../../../sawmill-sqlite/tests/behaviours/cancel.rs"]
mod cancel;
#[path = "../../../sawmill-sqlite/tests/behaviours/claims.rs"]
mod claims;
#[path = "../../../sawmill-sqlite/tests/behaviours/databases.rs"]
mod databases;
#[path = "../../../sawmill-sqlite/tests/behaviours/desk.rs"]
mod desk;
#[path = "../../../sawmill-sqlite/tests/behaviours/due.rs"]
mod due;
#[path = "../../../sawmill-sqlite/tests/behaviours/engines.rs"]
mod engines;
#[path = "../../../sawmill-sqlite/tests/behaviours/failure.rs"]
mod failure;
#[path = "../../../sawmill-sqlite/tests/behaviours/flow.rs"]
mod flow;
#[path = "../../../sawmill-sqlite/tests/behaviours/groups.rs"]
mod groups;
#[path = "../../../sawmill-sqlite/tests/behaviours/handlers.rs"]
mod handlers;
#[path = "../../../sawmill-sqlite/tests/behaviours/journal.rs"]
mod journal;
#[path = "../../../sawmill-sqlite/tests/behaviours/members.rs"]
mod members;
#[path = "../../../sawmill-sqlite/tests/behaviours/observing.rs"]
mod observing;
#[path = "../../../sawmill-sqlite/tests/behaviours/pulling.rs"]
mod pulling;
#[path = "../../../sawmill-sqlite/tests/behaviours/pushing.rs"]
mod pushing;
#[path = "../../../sawmill-sqlite/tests/behaviours/schedule.rs"]
mod schedule;
#[path = "../../../sawmill-sqlite/tests/behaviours/seek.rs"]
mod seek;
#[path = "../../../sawmill-sqlite/tests/behaviours/setup.rs"]
mod setup;
#[path = "../../../sawmill-sqlite/tests/behaviours/shards.rs"]
mod shards;
#[path = "../../../sawmill-sqlite/tests/behaviours/slots.rs"]
mod slots;
#[path = "../../../sawmill-sqlite/tests/behaviours/support.rs"]
mod support;
#[path = "../../../sawmill-sqlite/tests/behaviours/tap.rs"]
mod tap;
#[path = "../../../sawmill-sqlite/tests/behaviours/trim.rs"]
mod trim;
#[path = "../../../sawmill-sqlite/tests/behaviours/trouble.rs"]
mod trouble;
#[path = "../../../sawmill-sqlite/tests/behaviours/unique.rs"]
mod unique;
#[path = "../../../sawmill-sqlite/tests/behaviours/waking.rs"]
mod waking;
#[path = "../../../sawmill-sqlite/tests/behaviours/whereabouts.rs"]
mod whereabouts;
