//! The library's promised behaviours on Cassandra, where messages expire instead of being trimmed.

#[path = "support/mod.rs"]
mod server;
mod store;

use store::OnServer;

sawmill_conformance::behaviours!(OnServer, without(trimming));
