//! What every engine must do and must refuse, as one suite.
//!
//! An engine brings a [`Factory`], and its test file is a few lines:
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::{Arc, Mutex};
//!
//! use sawmill::engine::{Namespace, Store};
//! use sawmill::memory::Memory;
//!
//! #[derive(Default)]
//! struct InMemory(Mutex<HashMap<Namespace, Memory>>);
//!
//! #[async_trait::async_trait]
//! impl sawmill_conformance::Factory for InMemory {
//!     async fn open(&self, namespace: &Namespace) -> Store {
//!         let memory = self.0.lock().unwrap().entry(namespace.clone()).or_default().clone();
//!         Store { log: Some(Arc::new(memory.clone())), ledger: Some(Arc::new(memory)) }
//!     }
//! }
//!
//! sawmill_conformance::log_suite!(InMemory::default());
//! sawmill_conformance::ledger_suite!(InMemory::default());
//! ```
//!
//! Each check is a function of its own, named after the promise it holds the engine to, and becomes a test of that
//! name. The promises themselves stand on [`sawmill::log::Log`] and [`sawmill::ledger::Ledger`]. Every check works in a
//! namespace of its own, so that all of them can run at once on one server.
//!
//! [`history`] is for runs with real processes: it records what happened and finds what should not have. [`load`] measures what a
//! store asks of its database; [`upgrade`] lets two versions of a program use one; [`trial`] is work that goes on while a test
//! harms the servers it stands on; [`pair`] is for a log of one engine with the ledger of another. [`waits`] tells a loss from a slow
//! machine.
//!
//! What workers do on an engine is in [`mod@behaviours`] and, with processes that are killed and stand still, in [`mod@processes`]: an engine brings
//! a [`TestStore`](behaviours::TestStore) for them.

pub mod bank;
pub mod behaviours;
pub mod history;
pub mod load;
pub mod pair;
#[cfg(unix)]
pub mod processes;
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
