//! The storage interfaces of Sawmill, and the types that they use.
//!
//! Users of the queue depend on the crate `sawmill`. This crate is for authors of storage engines, and for
//! authors of transactions that run beside an engine. It has three main parts:
//!
//! - [`storage`]: the two storage interfaces, [`Log`](storage::Log) and [`Ledger`](storage::Ledger), the
//!   [`Engine`](storage::Engine) that opens them, and [`Memory`](storage::Memory), the reference
//!   implementation of both.
//! - [`model`]: messages, topics and the content of ledger entries, as plain data and pure functions.
//! - [`runtime`]: the clock, the random numbers and the tasks of the library. Nothing else provides them.
//!
//! An engine stores messages and finds them. It contains no rules of the queue. The guide for authors of
//! engines is `docs/writing-an-engine.md` in the repository. The crate `sawmill-conformance` is the test
//! suite that every engine passes.

mod error;
pub mod fault_injection;
pub mod humanize;
pub mod model;
pub mod runtime;
pub mod storage;

pub use error::{Error, ErrorKind, Result};
