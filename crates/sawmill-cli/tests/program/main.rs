//! The program `sawmill`, used as people and scripts use it: one module for a command or a concern.
//!
//! All of them are one test program, since each would be linked with every engine.

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
