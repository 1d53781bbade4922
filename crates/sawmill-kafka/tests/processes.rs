//! Real processes on one broker, which are killed and suspended.
#![cfg(unix)]

#[path = "support/mod.rs"]
mod server;
mod store;

use store::OnServer;

sawmill_conformance::processes!(OnServer, without(crowds));
