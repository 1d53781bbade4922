//! Notes: the progress of running messages, as their handlers describe it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use sawmill_engine::model::{Message, MessageId, RunningMessage};
use sawmill_engine::runtime::Env;
use tokio::sync::Notify;

use super::Context;

/// The notes of at most this many messages are kept.
const MAX_NOTES: usize = 100;
/// The maximum length of a note.
const MAX_NOTE_BYTES: usize = 200;

/// The notes of one worker.
#[derive(Default)]
pub(crate) struct Notes {
    /// False if there are no notes. It spares most workers the lock at the end of each message.
    any: AtomicBool,
    notes: Mutex<BTreeMap<MessageId, Note>>,
    /// Notified when the notes have changed.
    changed: Notify,
}

struct Note {
    /// A handler may pass its context to a task that outlives it. A note set after the end goes with the
    /// message.
    message: Weak<Message>,
    running: RunningMessage,
}

impl Notes {
    fn notes(&self) -> MutexGuard<'_, BTreeMap<MessageId, Note>> {
        self.notes.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(super) fn set(&self, context: &Context, mut note: String, env: &Env) {
        note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
        let id = context.message.id;
        let mut notes = self.notes();
        if let Some(old) = notes.get_mut(&id) {
            if old.running.note == note {
                return;
            }
            old.running.note = note;
        } else {
            if notes.len() >= MAX_NOTES {
                return;
            }
            let since = env.wall() - env.now().since(context.began);
            let running = RunningMessage { id: context.id(), topic: context.topic().to_owned(), since, note };
            notes.insert(id, Note { message: Arc::downgrade(&context.message), running });
            self.any.store(true, Ordering::Relaxed);
        }
        drop(notes);
        self.changed.notify_one();
    }

    /// Removes the note of a message whose handler has ended.
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

    /// Lists the messages with notes.
    pub(crate) fn list(&self) -> Vec<RunningMessage> {
        let mut notes = self.notes();
        notes.retain(|_, note| note.message.strong_count() > 0);
        self.any.store(!notes.is_empty(), Ordering::Relaxed);
        notes.values().map(|note| note.running.clone()).collect()
    }

    /// Completes when the notes have changed since the last call completed.
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
        assert_eq!((notes.len(), notes[0].as_str()), (MAX_NOTES, "again"));
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
