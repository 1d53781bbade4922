//! Notifications within this process, and to others.

pub(crate) mod notifier;
pub(crate) mod touch;
