//! Notes: how far the messages are that run now, in the words of their handlers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::Notify;

use super::Context;
use crate::env::Env;
use crate::member::Running;
use crate::message::{Message, MessageId};

/// Of so many messages the notes are kept.
const MOST: usize = 100;
/// So long is a note at most.
const LONGEST_BYTES: usize = 200;

/// The notes of one worker.
#[derive(Default)]
pub(crate) struct Notes {
    /// False if there is none at all: what most workers need to know at the end of a message.
    any: AtomicBool,
    notes: Mutex<BTreeMap<MessageId, Note>>,
    /// Something is to be told.
    changed: Notify,
}

struct Note {
    /// A handler may have given its context to somebody who outlives it. With the message the note goes too.
    message: Weak<Message>,
    running: Running,
}

impl Notes {
    fn notes(&self) -> MutexGuard<'_, BTreeMap<MessageId, Note>> {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn set(&self, context: &Context, mut note: String, env: &Env) {
        note.truncate(note.floor_char_boundary(LONGEST_BYTES));
        let id = context.message.id;
        let mut notes = self.notes();
        if let Some(old) = notes.get_mut(&id) {
            if old.running.note == note {
                return;
            }
            old.running.note = note;
        } else {
            if notes.len() >= MOST {
                return;
            }
            let since = env.wall() - env.now().since(context.began);
            let running = Running { id: context.id(), topic: context.topic().to_owned(), since, note };
            notes.insert(id, Note { message: Arc::downgrade(&context.message), running });
            self.any.store(true, Ordering::Relaxed);
        }
        drop(notes);
        self.changed.notify_one();
    }

    /// The handler of this message has ended.
    pub(crate) fn ended(&self, message: &Message) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let mut notes = self.notes();
        if notes.remove(&message.id).is_some() {
            self.any.store(!notes.is_empty(), Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// What there is to tell.
    pub(crate) fn list(&self) -> Vec<Running> {
        let mut notes = self.notes();
        notes.retain(|_, note| note.message.strong_count() > 0);
        self.any.store(!notes.is_empty(), Ordering::Relaxed);
        notes.values().map(|note| note.running.clone()).collect()
    }

    /// Completes when something has changed since this was last waited for.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}
