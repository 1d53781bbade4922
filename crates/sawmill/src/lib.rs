//! draft
pub mod clock;
pub mod dice;
pub mod engine;
pub mod env;
pub mod error;
pub mod ledger;
pub mod log;
pub mod memory;
pub mod message;
pub mod shard;
pub mod topic;
pub use engine::Capabilities;
pub use error::{Error, ErrorKind, Result};
pub use message::{Message, MessageId, Push};
