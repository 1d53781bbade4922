//! The behaviours that the library promises of workers and of who coordinates them, each shown by a test that is named after its
//! id, with messages on Kafka and the ledger in PostgreSQL: the same tests as on SQLite, on another place.
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
#[path = "../behaviours/support.rs"]
mod support;
#[path = "../../../sawmill-sqlite/tests/behaviours/tap.rs"]
mod tap;
#[path = "../../../sawmill-sqlite/tests/behaviours/trouble.rs"]
mod trouble;
