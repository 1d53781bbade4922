//! Hints. Cassandra has no way to tell others that something was written: those who are in the same process hear of it at once,
//! and all others find it when they look.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, Weak};

use sawmill::log::Hints;
use tokio::sync::watch;

/// Rung when something was written, each for those who want to hear of it.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    messages: watch::Sender<()>,
    entries: watch::Sender<()>,
}

impl Bells {
    /// The bells of a place, which all have in common who have opened it in this process.
    pub(crate) fn of(place: String) -> Arc<Self> {
        static OPEN: LazyLock<Mutex<HashMap<String, Weak<Bells>>>> = LazyLock::new(Mutex::default);
        let mut open = OPEN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        open.retain(|_, bells| bells.strong_count() > 0);
        let there = open.get(&place).and_then(Weak::upgrade);
        there.unwrap_or_else(|| {
            let bells = Arc::new(Self::default());
            open.insert(place, Arc::downgrade(&bells));
            bells
        })
    }

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
