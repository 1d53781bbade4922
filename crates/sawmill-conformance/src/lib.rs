//! The conformance suite: what every engine must do and must refuse.
//!
//! An engine implements [`Factory`], and its test file is a few lines:
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::{Arc, Mutex};
//!
//! use sawmill::engine::storage::{Namespace, OpenedStore};
//! use sawmill::engine::storage::Memory;
//!
//! #[derive(Default)]
//! struct InMemory(Mutex<HashMap<Namespace, Memory>>);
//!
//! #[async_trait::async_trait]
//! impl sawmill_conformance::Factory for InMemory {
//!     async fn open(&self, namespace: &Namespace) -> OpenedStore {
//!         let memory = self.0.lock().unwrap().entry(namespace.clone()).or_default().clone();
//!         OpenedStore { log: Some(Arc::new(memory.clone())), ledger: Some(Arc::new(memory)) }
//!     }
//! }
//!
//! sawmill_conformance::log_suite!(InMemory::default());
//! sawmill_conformance::ledger_suite!(InMemory::default());
//! ```
//!
//! Each check is a function named after the promise it tests, and becomes a test of that name. The promises
//! are documented on [`sawmill::engine::storage::Log`] and [`sawmill::engine::storage::Ledger`]. Every check
//! uses its own namespace, so all of them can run at once on one server.
//!
//! [`history`] records the events of runs with real processes and finds violations. [`load`] measures the
//! statements that a store sends to its database. [`upgrade`] runs two versions of a program on one store.
//! [`recorded`] opens stores that an earlier version has filled.
//! [`trial`] is a load that runs while a test harms the servers. [`pair`] combines the log of one engine with
//! the ledger of another. [`waits`] tells a lost message from a slow machine.
//!
//! [`mod@behaviours`] tests the workers on an engine, and [`mod@processes`] does so with processes that are
//! killed and suspended. An engine implements [`TestStore`](behaviours::TestStore) for both.

pub mod bank;
pub mod behaviours;
pub mod history;
pub mod load;
pub mod pair;
#[cfg(unix)]
pub mod processes;
pub mod recorded;
pub mod trial;
pub mod upgrade;
pub mod waits;

pub mod ledger_commit;
pub mod ledger_crowd;
pub mod ledger_list;
pub mod ledger_reopen;
pub mod log_append;
pub mod log_backlog;
pub mod log_content;
pub mod log_crowd;
pub mod log_due;
pub mod log_find;
pub mod log_idempotence;
pub mod log_news;
pub mod log_promote;
pub mod log_read;
pub mod log_refusals;
pub mod log_reopen;
pub mod log_reread;
pub mod log_topics;
pub mod log_trim;

mod place;
mod reader;
mod sample;
mod suite;

pub use place::{Factory, Place, Reach, run, skipped};
