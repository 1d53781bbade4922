//! Real processes with messages in a file and the ledger in ZooKeeper, which are killed and suspended.
#![cfg(unix)]

#[path = "support/mod.rs"]
mod server;
mod store;

use store::WithSqlite;

sawmill_conformance::processes!(WithSqlite, without(crowds));
