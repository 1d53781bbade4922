//! Runs the behaviour suite on SQLite, and tests of SQLite's locks.
#![allow(clippy::unwrap_used, reason = "what fails in a test is to fail the test, helpers included")]

mod locks;
#[path = "../store/mod.rs"]
mod store;

use store::InFile;

sawmill_conformance::behaviours!(InFile);
