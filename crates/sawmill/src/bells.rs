//! Hints within one process, for engines: those who have the same place open hear at once of what one of them writes, whatever the
//! store itself can tell.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tokio::sync::watch;

use crate::log::Hints;

/// Rung when something was written, each for those who want to hear of it.
#[derive(Debug, Default)]
pub struct Bells {
    messages: watch::Sender<()>,
    entries: watch::Sender<()>,
}

impl Bells {
    /// The bells of a place, which all have in common who have opened it in this process.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sawmill::bells::Bells;
    ///
    /// let one = Bells::of("mysql://db/jobs default".to_owned());
    /// assert!(Arc::ptr_eq(&one, &Bells::of("mysql://db/jobs default".to_owned())));
    /// assert!(!Arc::ptr_eq(&one, &Bells::of("mysql://db/jobs tests".to_owned())));
    /// ```
    pub fn of(place: String) -> Arc<Self> {
        static OPEN: LazyLock<Mutex<HashMap<String, Weak<Bells>>>> = LazyLock::new(Mutex::default);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, bells| bells.strong_count() > 0);
        let there = open.get(&place).and_then(Weak::upgrade);
        there.unwrap_or_else(|| {
            let bells = Arc::new(Self::default());
            open.insert(place, Arc::downgrade(&bells));
            bells
        })
    }

    /// There may be messages to read.
    pub fn ring_messages(&self) {
        self.messages.send_replace(());
    }

    /// Entries of the ledger may have changed.
    pub fn ring_entries(&self) {
        self.entries.send_replace(());
    }

    /// True if somebody waits for messages.
    pub fn has_readers(&self) -> bool {
        self.messages.receiver_count() > 0
    }

    /// Hints that come when there may be messages to read.
    pub fn message_hints(&self) -> Hints {
        Hints::new(self.messages.subscribe())
    }

    /// Hints that come when entries of the ledger may have changed.
    pub fn entry_hints(&self) -> Hints {
        Hints::new(self.entries.subscribe())
    }
}
