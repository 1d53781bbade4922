//! Finishes messages within the user's own transactions, on engines that deliver exactly once.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard};

use sawmill_engine::model::{GroupName, Message, MessageId};
use sawmill_engine::storage::{Finishable, Log};

use super::Context;

impl Finishable for Context {
    fn id(&self) -> MessageId {
        self.message.origin()
    }

    fn group(&self) -> &GroupName {
        &self.source.group
    }

    fn log(&self) -> &dyn Log {
        self.source.site.store.log()
    }

    fn finished(&self) {
        self.source.site.finishes.add(&self.message);
    }
}

/// The running messages of a worker that their handlers have finished within a transaction.
#[derive(Default)]
pub(crate) struct Finishes(Mutex<HashSet<MessageId>>);

impl Finishes {
    fn lock(&self) -> MutexGuard<'_, HashSet<MessageId>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn add(&self, message: &Message) {
        self.lock().insert(message.id);
    }

    /// Removes a message, and returns true if it was finished.
    pub(crate) fn take(&self, message: &Message) -> bool {
        self.lock().remove(&message.id)
    }
}
