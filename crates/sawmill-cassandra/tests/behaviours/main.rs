//! The behaviours that the library promises, each shown by a test that is named after its id, on Cassandra: the same tests as on
//! SQLite, on another place. Here are those that depend on what an engine does; left out is
//! what trims the log, because here messages expire.
#![allow(clippy::unwrap_used, reason = "what fails in a test is to fail the test, helpers included")]
#![allow(dead_code, reason = "what the tests share is also for those that are left out")]

mod place;
#[path = "../support/mod.rs"]
mod server;

#[path = "../../../sawmill-sqlite/tests/behaviours/both.rs"]
mod both;
#[path = "../../../sawmill-sqlite/tests/behaviours/claims.rs"]
mod claims;
#[path = "../../../sawmill-sqlite/tests/behaviours/desk.rs"]
mod desk;
#[path = "../../../sawmill-sqlite/tests/behaviours/due.rs"]
mod due;
#[path = "../../../sawmill-sqlite/tests/behaviours/failure.rs"]
mod failure;
#[path = "../../../sawmill-sqlite/tests/behaviours/groups.rs"]
mod groups;
#[path = "../../../sawmill-sqlite/tests/behaviours/members.rs"]
mod members;
#[path = "../../../sawmill-sqlite/tests/behaviours/seek.rs"]
mod seek;
#[path = "../../../sawmill-sqlite/tests/behaviours/shards.rs"]
mod shards;
#[path = "../../../sawmill-sqlite/tests/behaviours/support.rs"]
mod support;
#[path = "../../../sawmill-sqlite/tests/behaviours/tap.rs"]
mod tap;
#[path = "../../../sawmill-sqlite/tests/behaviours/unique.rs"]
mod unique;
