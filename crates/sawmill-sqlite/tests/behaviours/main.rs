//! The behaviours that the library promises, each shown by a test that is named after its id, on SQLite and through the
//! public API, and where it is not about the store in memory as well. Several workers are several openings of one file: to the store each is like a process of its own.
#![allow(clippy::unwrap_used, reason = "what fails in a test is to fail the test, helpers included")]

mod batches;
mod both;
mod cancel;
mod claims;
mod databases;
mod desk;
mod due;
mod engines;
mod failure;
mod flow;
mod groups;
mod handlers;
mod journal;
mod locks;
mod members;
mod observing;
mod place;
mod pulling;
mod pushing;
mod schedule;
mod seek;
mod setup;
mod shards;
mod slots;
mod support;
mod tap;
mod trim;
mod trouble;
mod unique;
mod waking;
mod whereabouts;
