//! Tests with real processes on one file: those that every engine passes, and those about files.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![cfg(unix)]

use std::path::PathBuf;

use sawmill_conformance::processes::parent::ChildProcesses;

mod crowd;
mod kills;
mod stall;
#[path = "../store/mod.rs"]
mod store;

use store::InFile;

sawmill_conformance::processes!(InFile, without(crowds));

/// The file that these processes share.
fn database(processes: &ChildProcesses) -> PathBuf {
    processes.url().strip_prefix("sqlite:").unwrap().into()
}
