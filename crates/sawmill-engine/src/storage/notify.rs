//! Notifications: hints that messages or entries may have changed. They spare polling, and correctness never
//! depends on them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tokio::sync::watch;

/// A stream of hints that something may have changed.
///
/// A hint may be late, lost, or wrong. Correctness must not depend on hints: polling alone must suffice.
#[derive(Debug, Clone)]
pub struct Notifications(watch::Receiver<()>);

impl Notifications {
    /// Creates a stream that notifies whenever the sender of this receiver is used.
    pub fn new(receiver: watch::Receiver<()>) -> Self {
        Self(receiver)
    }

    /// Creates a stream that never notifies.
    pub fn never() -> Self {
        Self(watch::channel(()).1)
    }

    /// Completes once there has been a hint since the last call.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The sender is gone: no more hints will come.
            std::future::pending::<()>().await;
        }
    }
}

/// Notifies all users of one store within this process, whether or not the store itself can notify them. For
/// engines.
#[derive(Debug, Default)]
pub struct Notifier {
    messages: watch::Sender<()>,
    entries: watch::Sender<()>,
}

impl Notifier {
    /// Returns the notifier of a store. All users of the store in this process share it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use sawmill_engine::storage::Notifier;
    ///
    /// let one = Notifier::of("mysql://db/jobs default".to_owned());
    /// assert!(Arc::ptr_eq(&one, &Notifier::of("mysql://db/jobs default".to_owned())));
    /// assert!(!Arc::ptr_eq(&one, &Notifier::of("mysql://db/jobs tests".to_owned())));
    /// ```
    pub fn of(store: String) -> Arc<Self> {
        static OPEN: LazyLock<Mutex<HashMap<String, Weak<Notifier>>>> = LazyLock::new(Mutex::default);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, notifier| notifier.strong_count() > 0);
        let shared = open.get(&store).and_then(Weak::upgrade);
        shared.unwrap_or_else(|| {
            let notifier = Arc::new(Self::default());
            open.insert(store, Arc::downgrade(&notifier));
            notifier
        })
    }

    /// Signals that there may be messages to read.
    pub fn notify_messages(&self) {
        self.messages.send_replace(());
    }

    /// Signals that entries of the ledger may have changed.
    pub fn notify_entries(&self) {
        self.entries.send_replace(());
    }

    /// Returns true if somebody waits for messages.
    pub fn has_message_listeners(&self) -> bool {
        self.messages.receiver_count() > 0
    }

    /// Returns a stream that notifies when there may be messages to read.
    pub fn message_notifications(&self) -> Notifications {
        Notifications::new(self.messages.subscribe())
    }

    /// Returns a stream that notifies when entries of the ledger may have changed.
    pub fn entry_notifications(&self) -> Notifications {
        Notifications::new(self.entries.subscribe())
    }
}
