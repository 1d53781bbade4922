//! Real processes on one server, which are killed and paused.
#![cfg(unix)]

#[path = "support/mod.rs"]
mod server;
mod store;

use store::OnServer;

sawmill_conformance::processes!(OnServer);
