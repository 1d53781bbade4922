//! The last messages that this process has appended. A worker notified of a push reads the message from here,
//! without waking a reader thread.
//!
//! It answers only where it cannot be wrong, whatever other processes do. A message never changes, and only
//! trimming leaves gaps in the numbers of a shard, so the message with the next number is the next message.
//! Only the database can tell that there is no next message: a shard with nothing here is answered as not
//! read to its end. Messages trimmed by another process may remain here for up to a second, as they do for a
//! reader that came a moment earlier.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use sawmill_engine::model::Message;
use sawmill_engine::runtime::Moment;
use sawmill_engine::storage::{Block, Position, Span};

use crate::log::read::ShardRequest;

/// The limits on kept messages and on the payload of each.
const MOST: usize = 64;
const LARGEST: usize = 16 << 10;
/// How long a message is kept: a worker waiting for it has read it by then.
const FRESH: Duration = Duration::from_secs(1);

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Tail(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    /// In append order.
    appended: VecDeque<(Moment, Appended)>,
    /// Topics whose last read was answered from here. Their next read goes to the database. Otherwise other
    /// shards and messages of other processes would wait as long as there is something here.
    answered: BTreeSet<i64>,
}

/// An appended message.
pub(crate) struct Appended {
    pub(crate) topic: i64,
    pub(crate) shard: u16,
    pub(crate) number: u64,
    pub(crate) message: Message,
}

/// The changes of a transaction that matter for the tail.
#[derive(Default)]
pub(crate) struct Changes {
    appended: Vec<Appended>,
    /// Shards that lost messages.
    trimmed: Vec<(i64, u16)>,
    deleted: Vec<i64>,
}

impl Changes {
    /// True if this many messages are worth keeping. After a large push a worker reads blocks from the start,
    /// not the last messages.
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
    /// Drops messages that are too old and returns the rest.
    fn recent(&self, now: Moment) -> MutexGuard<'_, Recent> {
        let mut recent = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let stale = recent.appended.iter().take_while(|(at, _)| now.since(*at) > FRESH).count();
        recent.appended.drain(..stale);
        recent
    }

    /// Adds the changes of a committed transaction.
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

    /// Returns a block for each request that starts here, and empty blocks with `more = true` for the others.
    /// Returns `None` if there is nothing for any of them.
    pub(crate) fn read(&self, topic: i64, requests: &[ShardRequest], now: Moment) -> Option<Vec<Block>> {
        let mut recent = self.recent(now);
        if recent.answered.remove(&topic) {
            return None;
        }
        let blocks: Vec<Block> =
            requests.iter().map(|request| block(&recent.appended, topic, request)).collect();
        let answers = blocks.iter().any(|block| !block.messages.is_empty());
        if answers {
            recent.answered.insert(topic);
        }
        answers.then_some(blocks)
    }
}

/// Returns the messages that follow a number without a gap.
fn block(recent: &VecDeque<(Moment, Appended)>, topic: i64, request: &ShardRequest) -> Block {
    let of_shard =
        recent.iter().map(|(_, one)| one).filter(|one| one.topic == topic && one.shard == request.shard);
    let later = of_shard.filter(|one| one.number > request.after).take(request.limit);
    let run = (1..).zip(later).take_while(|(nth, one)| one.number - request.after == *nth);
    let messages: Vec<Message> = run.map(|(_, one)| one.message.clone()).collect();
    let end = request.after.saturating_add(messages.len() as u64);
    Block {
        span: Span::from_range(request.after, end, messages.len()),
        messages,
        end: Position::from_number(end),
        more: true,
    }
}

#[cfg(test)]
#[path = "tail_tests.rs"]
mod tests;
