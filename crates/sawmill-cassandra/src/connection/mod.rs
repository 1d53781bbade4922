//! The connection to the ring, its checks, and notifications between processes.

pub(crate) mod link;
pub(crate) mod remote_notifier;
pub(crate) mod skew;
pub(crate) mod tls;
