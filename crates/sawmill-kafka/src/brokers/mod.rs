//! What the log and the ledger ask of the brokers: topics, sending, and following a topic.

pub(crate) mod cluster;
pub(crate) mod send;
pub(crate) mod tail;
