//! The behaviours that the library promises, on PostgreSQL.

#[path = "support/mod.rs"]
mod server;
mod store;

use store::OnServer;

sawmill_conformance::behaviours!(OnServer);
