//! The behaviours that the library promises, each shown by a test that is named after its id, on SQLite and through the
//! public API. Several workers are several openings of one file: to the store each is like a process of its own.
#![allow(clippy::unwrap_used, reason = "what fails in a test is to fail the test, helpers included")]

mod both;
mod claims;
mod desk;
mod due;
mod failure;
mod groups;
mod members;
mod pushing;
mod schedule;
mod shards;
mod slots;
mod support;
mod tap;
mod trim;
mod trouble;
mod unique;
mod waking;
