//! Connections to the server, their encryption, and notifications.

pub(crate) mod notifier;
pub(crate) mod pool;
pub(crate) mod tls;
