//! Tests of the program `sawmill`, used as people and scripts use it. Each module tests one command or
//! concern.
//!
//! They share one test binary, since every binary is linked with all engines.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod care;
mod deliver;
mod demo;
mod doctor;
mod json;
mod ledger;
mod manners;
mod messages;
mod operating;
mod pool;
mod push;
mod schedules;
mod serve;
mod servers;
mod support;
mod topics;
mod tour;
mod work;
mod work_crashes;
mod work_signals;
mod work_stream;
mod work_troubles;
