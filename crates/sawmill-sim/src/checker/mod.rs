//! The checker: compares a history with the invariants while it happens.
//!
//! It observes every effect on the store, every start and end of a handler, and every acknowledged push. It
//! keeps its own records and trusts nothing that the core reports about itself; at the end it compares the
//! core's counts with them. Only the first violation is kept, because later ones are often consequences of
//! it.

mod book;
mod causes;
mod claiming;
mod deaths;
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
mod retries;
mod seeks;
mod settled;
mod shards;
mod starts;
mod takeovers;
mod ticks;
mod trims;
mod undone;

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sawmill::admin::GroupStatus;
use sawmill::engine::model::TopicName;
use sawmill::engine::storage::Record;
use sawmill::{Context, MessageId};

use crate::control::{Control, NodeId};
use crate::observer::{Event, Observer};
use crate::store::SimStore;
use crate::tasks::lock;
pub use book::{Book, GroupRules, How, Rulebook, RunId, Started};
pub use invariant::{Checks, Invariant, Violation};
pub use letters::{Decision, PendingDecision};
pub use messages::Intent;
pub use seeks::Target;
pub use settled::Hidden;
pub use shards::Written;

/// The beginning of the line that reports a violation.
pub(crate) const VIOLATION: &str = "!!! ";

/// The book of one run, shared by the scenario, the handlers and the store.
pub struct Checker {
    control: Control,
    store: SimStore,
    book: Mutex<Book>,
}

impl Checker {
    /// Creates a checker for a run with these rules. The caller must also register it as an observer of the
    /// store.
    pub fn new(control: &Control, store: &SimStore, rules: Rulebook) -> Self {
        Self { control: control.clone(), store: store.clone(), book: Mutex::new(Book::new(rules)) }
    }

    /// Locks the book, with the current time set.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        let (now, wall) = (self.control.now(), self.control.env(NodeId::WORLD).wall());
        let mut book = lock(&self.book);
        book.set_time(now, wall);
        book
    }

    /// Records the start of a handler on this node. Returns the number of the run, and how often the message
    /// was started before.
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
        self.report_violation(node);
        answer
    }

    fn hidden(&self, name: &TopicName) -> Vec<Record> {
        let topic = self.store.topic(name);
        topic.map(|topic| self.store.hidden(&topic)).unwrap_or_default()
    }

    /// Records the first violation in the trace at the moment it is found.
    fn report_violation(&self, node: NodeId) {
        self.book().take_used().into_iter().for_each(|feature| self.control.used(feature));
        let found = self.book().take_unreported();
        if let Some(found) = found {
            self.control.note(node, "violation", &[found.invariant.number().into()], || {
                format!("{VIOLATION}{found}")
            });
        }
    }

    /// Records the end of a handler.
    pub fn ended(&self, node: NodeId, run: RunId, how: How) {
        let id = self.book().ended(run, how);
        self.control.note(node, "end", &[number(id), how as u64], || format!("{id} ends: {how:?}"));
    }

    /// Records the end of a handler that ended some time ago.
    pub fn has_ended(&self, node: NodeId, run: RunId, how: How) {
        let id = self.book().has_ended(run, how);
        self.control.note(node, "end", &[number(id), how as u64], || format!("{id} has ended: {how:?}"));
    }

    /// Records an acknowledged push: the messages with these numbers have these ids.
    pub fn acknowledged(&self, numbers: &[usize], ids: &[MessageId]) {
        self.book().acknowledged(numbers, ids);
    }

    /// Compares the group's status with the book, once nothing changes any more.
    pub fn compare(&self, topic: &str, group: &str, status: &GroupStatus) {
        self.book().compare(topic, group, status);
    }

    /// Returns true if there is a violation, so that the run can stop.
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
                book.check_only_live(topic, message, &|name| self.hidden(name));
                book.check_name_period(topic, message, wall);
            }
            Event::KeptAside { topic, shard, message, .. } => {
                book.kept_aside(topic, shard, message);
                book.check_only_live(topic, message, &|name| self.hidden(name));
                book.check_name_period(topic, message, wall);
            }
            Event::Trimmed { topic, shard, number, message } => book.trimmed(topic, shard, number, message),
            Event::TopicDeleted { topic } => book.deletion_begins(topic),
            Event::Durable => book.all_durable(),
            Event::StoreCrashed { undone } => {
                undone.iter().for_each(|(key, entry)| book.undone(key, entry.as_ref()));
                book.all_undone();
            }
        }
        drop(book);
        self.report_violation(NodeId::WORLD);
    }
}
