//! Real processes on one file: those that every engine passes, and what is about files.
#![allow(clippy::unwrap_used, reason = "these are tests")]
#![cfg(unix)]

use std::path::PathBuf;

use sawmill_conformance::processes::crew::Crew;

mod crowd;
mod plug;
mod stall;
#[path = "../store/mod.rs"]
mod store;

use store::InFile;

sawmill_conformance::processes!(InFile, without(crowds));

/// The file that this crew works on.
fn database(crew: &Crew) -> PathBuf {
    crew.url().strip_prefix("sqlite:").unwrap().into()
}
