//! The tail: the messages that this process has appended last. A worker that is told of a push reads the message from here,
//! without waking a thread that would ask the database.
//!
//! It answers only where it cannot be wrong, whatever other processes do. A message never changes, and numbers in a shard
//! have no gaps but by trimming; so the message with the next number is what comes next. That there is no such message only
//! the database can tell: a shard of which nothing is here is answered as one that was not read to its end. What another
//! process has trimmed may be here for a moment more, as it is for a reader who came a moment earlier, but not for longer.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sawmill::Message;
use sawmill::clock::Moment;
use sawmill::log::{Block, Position, Span};

use crate::read::Wish;

/// The most messages that are kept, and the largest payload of one.
const MOST: usize = 64;
const LARGEST: usize = 16 << 10;
/// For how long a message is kept: whoever waited for it has read it by then.
const FRESH: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Tail(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    /// In the order of appending.
    appended: VecDeque<(Moment, Appended)>,
    /// The topics of which the last read was answered from here: the next one is the database's, or other shards and what others
    /// have written would wait as long as there is something here.
    answered: BTreeSet<i64>,
}

/// A message that was appended.
pub(crate) struct Appended {
    pub(crate) topic: i64,
    pub(crate) shard: u16,
    pub(crate) number: u64,
    pub(crate) message: Message,
}

/// What a transaction changes of the log, as far as it matters here.
#[derive(Default)]
pub(crate) struct Changes {
    appended: Vec<Appended>,
    /// Shards of which something was removed.
    trimmed: Vec<(i64, u16)>,
    deleted: Vec<i64>,
}

impl Changes {
    /// True if so many messages are worth keeping: of a large push a worker reads blocks, and not the last one first.
    pub(crate) fn are_few(count: usize) -> bool {
        count <= MOST
    }

    pub(crate) fn append(&mut self, appended: Appended) {
        if appended.message.payload.len() <= LARGEST && self.appended.len() < MOST {
            self.appended.push(appended);
        }
    }

    pub(crate) fn trim(&mut self, topic: i64, shard: u16) {
        self.trimmed.push((topic, shard));
    }

    pub(crate) fn delete(&mut self, topic: i64) {
        self.deleted.push(topic);
    }
}

impl Tail {
    /// What is kept at this moment.
    fn recent(&self, now: Moment) -> MutexGuard<'_, Recent> {
        let mut recent = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let stale = recent.appended.iter().take_while(|(at, _)| now.since(*at) > FRESH).count();
        recent.appended.drain(..stale);
        recent
    }

    /// A transaction was committed.
    pub(crate) fn add(&self, changes: Changes, now: Moment) {
        let Changes { appended, trimmed, deleted } = changes;
        let recent = &mut self.recent(now).appended;
        recent.extend(appended.into_iter().map(|one| (now, one)));
        let surplus = recent.len().saturating_sub(MOST);
        recent.drain(..surplus);
        if !trimmed.is_empty() || !deleted.is_empty() {
            recent.retain(|(_, one)| {
                !trimmed.contains(&(one.topic, one.shard)) && !deleted.contains(&one.topic)
            });
        }
    }

    /// The blocks of which the first messages are here; the others are empty, and there may be more. `None` if there is
    /// nothing for any wish.
    pub(crate) fn read(&self, topic: i64, wishes: &[Wish], now: Moment) -> Option<Vec<Block>> {
        let mut recent = self.recent(now);
        if recent.answered.remove(&topic) {
            return None;
        }
        let blocks: Vec<Block> = wishes.iter().map(|wish| block(&recent.appended, topic, wish)).collect();
        let answers = blocks.iter().any(|block| !block.messages.is_empty());
        if answers {
            recent.answered.insert(topic);
        }
        answers.then_some(blocks)
    }
}

/// The messages that follow a number without a gap.
fn block(recent: &VecDeque<(Moment, Appended)>, topic: i64, wish: &Wish) -> Block {
    let of_shard =
        recent.iter().map(|(_, one)| one).filter(|one| one.topic == topic && one.shard == wish.shard);
    let later = of_shard.filter(|one| one.number > wish.after).take(wish.limit);
    let run = (1..).zip(later).take_while(|(nth, one)| one.number - wish.after == *nth);
    let messages: Vec<Message> = run.map(|(_, one)| one.message.clone()).collect();
    let end = wish.after.saturating_add(messages.len() as u64);
    Block {
        span: Span::from_range(wish.after, end, messages.len()),
        messages,
        end: Position::from_number(end),
        more: true,
    }
}

#[cfg(test)]
#[path = "tail_tests.rs"]
mod tests;
