//! The behaviours that the library promises, each tested through the public API by a test named after its id.
//! `docs/behaviours.md` explains the ids.
//!
//! An engine implements [`TestStore`], and [`behaviours!`](crate::behaviours!) makes a test of each. Several
//! workers use several openings of one store, which the store sees as separate processes. Behaviours that do
//! not depend on the store are tested in memory as well.
#![allow(clippy::unwrap_used, reason = "what fails in a test is to fail the test, helpers included")]
#![allow(missing_docs, reason = "the name of a test says what it shows")]

mod list;
mod place;

pub use place::{
    Place, Seams, Subject, TestStore, check_lacks, many_threads, no_runtime, one_thread, unused_namespace,
};

pub mod batches;
pub mod cancel;
pub mod claims;
pub mod databases;
pub mod due;
pub mod failure;
pub mod flow;
pub mod groups;
pub mod handlers;
pub mod journal;
pub mod members;
pub mod observing;
pub mod pulling;
pub mod pushing;
pub mod schedule;
pub mod seek;
pub mod setup;
pub mod shards;
pub mod slots;
pub mod trim;
pub mod trouble;
pub mod unique;
pub mod waking;
pub mod whereabouts;

mod both;
mod engines;
pub mod faulty_store;
pub mod gated_handler;
pub mod support;
