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

#[cfg(test)]
mod tests {
    use super::super::context::tests::{context, context_at};
    use super::*;

    fn listed(context: &Context) -> Vec<String> {
        context.source.site.notes.list().into_iter().map(|running| running.note).collect()
    }

    #[test]
    fn the_latest_note_counts_until_the_message_has_ended() {
        let context = context(1);
        context.note("half");
        context.note("most");
        assert_eq!(listed(&context), ["most"]);
        context.source.site.notes.ended(&context.message);
        assert!(listed(&context).is_empty());
    }

    #[test]
    fn a_note_is_cut_between_letters() {
        let context = context(1);
        context.note("é".repeat(100) + "x");
        context.note("x".to_owned() + &"é".repeat(100));
        assert_eq!(listed(&context), ["x".to_owned() + &"é".repeat(99)]);
    }

    #[test]
    fn only_so_many_messages_are_noted() {
        let first = context(0);
        let others: Vec<Context> = (1..150).map(|number| context_at(number, &first.source.site)).collect();
        first.note("first");
        others.iter().for_each(|other| other.note("other"));
        first.note("again");
        let notes = listed(&first);
        assert_eq!((notes.len(), notes[0].as_str()), (MOST, "again"));
    }

    #[test]
    fn a_note_that_comes_after_the_end_goes_with_its_message() {
        let first = context(1);
        let late = context_at(2, &first.source.site);
        first.source.site.notes.ended(&late.message);
        late.note("still here");
        assert_eq!(listed(&first), ["still here"]);
        drop(late);
        assert!(listed(&first).is_empty());
    }
}
