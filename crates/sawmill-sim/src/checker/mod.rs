//! The checker: reads a history against what must always hold, while it happens.
//!
//! It sees every effect on the store at the moment it happens, every start and end of a handler, and every push that was
//! acknowledged. It keeps a book of its own and believes nothing that the core says about itself; at the end the core's
//! own counts are compared with the book. The first violation is kept: what comes after it is often only its echo.

mod book;
mod burial;
mod causes;
mod claiming;
mod deleted;
mod drained;
mod ending;
mod fates;
mod flow;
mod formats;
mod invariant;
mod keys;
mod letters;
mod members;
mod messages;
mod names;
mod periods;
mod relief;
mod retries;
mod seeks;
mod settled;
mod shards;
mod starts;
mod ticks;
mod trims;
mod undone;

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sawmill::log::Record;
use sawmill::{Context, GroupStatus, MessageId, TopicName};

use crate::control::{Control, NodeId};
use crate::observer::{Event, Observer};
use crate::store::SimStore;
use crate::tasks::lock;
pub use book::{Book, GroupRules, How, Rulebook, RunId, Started};
pub use invariant::{Checks, Invariant, Violation};
pub use letters::{Decision, Wish};
pub use messages::Intent;
pub use seeks::Target;
pub use settled::Hidden;
pub use shards::Written;

/// How the line of a history begins that says what was wrong.
pub(crate) const VIOLATION: &str = "!!! ";

/// The book of one run, shared by the scenario, the handlers and the store.
pub struct Checker {
    control: Control,
    store: SimStore,
    book: Mutex<Book>,
}

impl Checker {
    /// A checker for a run under these rules. It must still be made an observer of the store.
    pub fn new(control: &Control, store: &SimStore, rules: Rulebook) -> Self {
        Self { control: control.clone(), store: store.clone(), book: Mutex::new(Book::new(rules)) }
    }

    /// The book, to ask or to tell it more.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        let (now, wall) = (self.control.now(), self.control.env(NodeId::WORLD).wall());
        let mut book = lock(&self.book);
        book.it_is(now, wall);
        book
    }

    /// A handler begins on this node. Says by which number its end is to be told, and how often it was begun before.
    pub fn started(&self, node: NodeId, context: &Context) -> (RunId, u32) {
        let (at, wall) = (self.control.now(), self.control.env(NodeId::WORLD).wall());
        let message = context.message();
        let group = context.group().to_string();
        let (topic, token) = (context.topic(), context.token());
        let started = Started { group: &group, topic, message, origin: context.id(), token, node, at, wall };
        let numbers = [number(context.id()), number(message.id), token.0];
        self.control.note(node, "start", &numbers, || {
            format!("{topic}/{group} starts {} (as {}) under token {token}", context.id(), message.id)
        });
        let answer = self.book().started(&started, &|name| self.hidden(name));
        self.notice(node);
        answer
    }

    fn hidden(&self, name: &TopicName) -> Vec<Record> {
        let topic = self.store.topic(name);
        topic.map(|topic| self.store.hidden(&topic)).unwrap_or_default()
    }

    /// Puts the first violation into the history, at the moment at which it was found.
    fn notice(&self, node: NodeId) {
        self.book().take_used().into_iter().for_each(|feature| self.control.used(feature));
        let found = self.book().take_news();
        if let Some(found) = found {
            self.control.note(node, "violation", &[found.invariant.number().into()], || {
                format!("{VIOLATION}{found}")
            });
        }
    }

    /// A handler has ended.
    pub fn ended(&self, node: NodeId, run: RunId, how: How) {
        let id = self.book().ended(run, how);
        self.control.note(node, "end", &[number(id), how as u64], || format!("{id} ends: {how:?}"));
    }

    /// A handler has ended some time ago.
    pub fn has_ended(&self, node: NodeId, run: RunId, how: How) {
        let id = self.book().has_ended(run, how);
        self.control.note(node, "end", &[number(id), how as u64], || format!("{id} has ended: {how:?}"));
    }

    /// A push was acknowledged: these messages, by their numbers, have these ids.
    pub fn acknowledged(&self, numbers: &[usize], ids: &[MessageId]) {
        self.book().acknowledged(numbers, ids);
    }

    /// The group's own account, when nothing moves any more.
    pub fn compare(&self, topic: &str, group: &str, status: &GroupStatus) {
        self.book().compare(topic, group, status);
    }

    /// True if something was wrong: going on is of no use.
    pub fn failed(&self) -> bool {
        self.book().violation().is_some()
    }
}

fn number(id: MessageId) -> u64 {
    crate::trace::digest(&id.as_u128().to_le_bytes())
}

impl Observer for Checker {
    fn saw(&self, at: Duration, event: &Event<'_>) {
        let wall = self.control.env(NodeId::WORLD).wall();
        let mut book = self.book();
        match *event {
            Event::Committed { node, key, old, version, value, late: _ } => {
                let hidden = |name: &TopicName| self.hidden(name);
                book.committed(&Written { at, node, key, old, version, value }, &hidden);
            }
            Event::Refused { .. } => {}
            Event::Readable { topic, shard, number, message } => {
                book.readable(topic, shard, number, message);
                book.is_the_only_one(topic, message, &|name| self.hidden(name));
                book.names_last(topic, message, wall);
            }
            Event::KeptAside { topic, shard, message, .. } => {
                book.aside(topic, shard, message);
                book.is_the_only_one(topic, message, &|name| self.hidden(name));
                book.names_last(topic, message, wall);
            }
            Event::Trimmed { topic, shard, number, message } => book.trimmed(topic, shard, number, message),
            Event::TopicDeleted { topic } => book.deletion_begins(topic),
            Event::Lasting => book.lasts(),
            Event::StoreCrashed { undone } => {
                undone.iter().for_each(|(key, entry)| book.undone(key, entry.as_ref()));
                book.all_undone();
            }
        }
        drop(book);
        self.notice(NodeId::WORLD);
    }
}
