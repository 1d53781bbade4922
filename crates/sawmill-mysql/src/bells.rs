//! Hints. MySQL has no way to tell others that something was written: those who use the same handle hear of it at once,
//! and all others find it when they look.

use sawmill::log::Hints;
use tokio::sync::watch;

/// Rung when something was written, each for those who want to hear of it.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    messages: watch::Sender<()>,
    entries: watch::Sender<()>,
}

impl Bells {
    pub(crate) fn ring_messages(&self) {
        self.messages.send_replace(());
    }

    pub(crate) fn ring_entries(&self) {
        self.entries.send_replace(());
    }

    pub(crate) fn message_hints(&self) -> Hints {
        Hints::new(self.messages.subscribe())
    }

    pub(crate) fn entry_hints(&self) -> Hints {
        Hints::new(self.entries.subscribe())
    }
}
