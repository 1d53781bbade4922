//! The tests of Cassandra alone, in one program: each program would link the whole engine.
#![allow(clippy::unwrap_used, reason = "these are tests")]

mod conformance;
mod late;
mod long;
mod lost_answers;
mod pair;
mod queue;
mod recorded;
mod refusals;
#[path = "../support/mod.rs"]
mod support;
