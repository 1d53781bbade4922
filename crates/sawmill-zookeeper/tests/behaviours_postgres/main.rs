//! The behaviours that the library promises, each shown by a test that is named after its id, with messages in PostgreSQL and the
//! ledger in ZooKeeper: the same tests as on SQLite alone, on another place. Here are those that are about workers and who
//! coordinates them.
#![allow(clippy::unwrap_used, reason = "what fails in a test is to fail the test, helpers included")]
#![allow(dead_code, reason = "what the tests share is also for those that are left out")]

mod place;
#[path = "../support/mod.rs"]
mod server;

#[path = "../../../sawmill-sqlite/tests/behaviours/desk.rs"]
mod desk;
#[path = "../../../sawmill-sqlite/tests/behaviours/members.rs"]
mod members;
#[path = "../../../sawmill-sqlite/tests/behaviours/shards.rs"]
mod shards;
#[path = "../../../sawmill-sqlite/tests/behaviours/support.rs"]
mod support;
#[path = "../../../sawmill-sqlite/tests/behaviours/tap.rs"]
mod tap;
#[path = "../../../sawmill-sqlite/tests/behaviours/trouble.rs"]
mod trouble;
