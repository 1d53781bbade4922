//! The two interfaces between the queue and a store: the log keeps messages, the ledger records progress.
//!
//! An [`Engine`] opens a [`OpenedStore`]: a [`Log`], a [`Ledger`], or both. Each promise is documented on the
//! method that makes it. [`Memory`] implements both interfaces and is the reference for them.

mod engine;
mod finding;
mod ledger;
mod log;
mod memory;
mod notify;
mod transaction;

pub use crate::model::{EntryKey, Position, Span};
pub use engine::{Capabilities, Engine, Namespace, OpenedStore, StoreUrl, percent_decode};
pub use finding::{Finding, KEEP_TIME, SKEW, apart};
pub use ledger::{Commit, Entry, Ledger, Version, Write};
pub use log::{Backlog, Block, FoundMessage, Log, Promoted, ReadRequest, Record};
pub use memory::{Memory, MemoryEngine};
pub use notify::{Notifications, Notifier};
pub use transaction::{Draft, Finishable, OnPushed, downcast_log};
