//! Checks seeks: a user moves a group to a position, and every shard moves there.

use std::collections::BTreeMap;

use sawmill::engine::model::Topic;
use sawmill::{MessageId, Timestamp};

use super::book::{Book, LogEntry, Mirror};
use super::invariant::Invariant;
use super::shards::Change;

/// The target of a seek.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The first message.
    Start,
    /// Past the last message.
    Now,
    /// The first message pushed at this time or later.
    Time(Timestamp),
    /// To this message.
    Message(MessageId),
}

/// A seek.
pub(super) struct Seek {
    group: usize,
    topic: usize,
    target: Target,
    /// The last message of each shard when the seek began.
    ends: BTreeMap<u16, u64>,
    /// How often each shard was moved before.
    passes: BTreeMap<u16, u32>,
}

impl Book {
    /// Records that a seek is about to begin.
    pub fn seek_begins(&mut self, group: usize, topic: &Topic, target: Target) {
        let index = self.topic(topic);
        let end = |shard| (shard, self.between(index, shard, 0, u64::MAX).last().unwrap_or(0));
        let pass = |shard| (shard, self.pass_of(group, index, shard));
        let seek = Seek {
            group,
            topic: index,
            target,
            ends: (0..topic.shards).map(end).collect(),
            passes: (0..topic.shards).map(pass).collect(),
        };
        self.seeks.push(seek);
    }

    /// Checks that the acknowledged seek has moved every shard.
    pub fn seek_acknowledged(&mut self) {
        let Some(seek) = self.seeks.last() else { return };
        let stayed =
            |(shard, before): &(&u16, &u32)| self.pass_of(seek.group, seek.topic, **shard) <= **before;
        let stayed = seek.passes.iter().find(stayed).map(|(shard, _)| *shard);
        let (group, topic) = (seek.group, seek.topic);
        self.check(Invariant::Cursor, stayed.is_none(), |book| {
            let key = book.entry(group, topic, stayed.unwrap_or(0));
            (format!("a seek was acknowledged, and {key} was not moved"), vec![key])
        });
    }

    /// Checks that a moved cursor is at the target of one of the seeks.
    pub(super) fn sent_where_it_should(&mut self, mirror: &Mirror, change: &Change<'_>) {
        let mut seeks =
            self.seeks.iter().filter(|seek| (seek.group, seek.topic) == (mirror.group, mirror.topic));
        let fits = seeks.any(|seek| self.fits(seek, mirror));
        self.check(Invariant::Cursor, fits, |_| {
            (
                format!("{}: moved to {}, which is not the target of any seek", change.key, mirror.sent_to),
                change.about(),
            )
        });
    }

    fn fits(&self, seek: &Seek, mirror: &Mirror) -> bool {
        let end = seek.ends.get(&mirror.shard).copied().unwrap_or(0);
        let since = match seek.target {
            Target::Start => return mirror.sent_to == 0,
            Target::Now => return mirror.sent_to >= end,
            Target::Time(time) => time,
            Target::Message(id) => {
                let places = self.by_id.get(&(mirror.topic, id)).map_or(&[][..], |places| places);
                let mut here = places.iter().filter(|(shard, _)| *shard == mirror.shard).peekable();
                if here.peek().is_some() {
                    return here.any(|(_, number)| *number == mirror.sent_to + 1);
                }
                // An id that was reserved for another push is older than the message that arrived under it.
                let made = places
                    .first()
                    .and_then(|(shard, number)| self.places.get(&(mirror.topic, *shard, *number)));
                made.map_or(id.created(), |logged| logged.created)
            }
        };
        let there = |from: u64, to: u64| {
            let range =
                self.places.range((mirror.topic, mirror.shard, from)..=(mirror.topic, mirror.shard, to));
            range.filter(|(place, _)| !self.trimmed.contains(place)).map(|(place, logged)| (place.2, logged))
        };
        let is_wanted = |logged: &LogEntry| logged.created >= since;
        // The seek skips no message from the target on, and repeats none before it.
        let skipped = there(0, mirror.sent_to).any(|(_, logged)| is_wanted(logged));
        let again = there(mirror.sent_to + 1, end.max(mirror.sent_to + 1)).next();
        !skipped && again.is_none_or(|(number, logged)| number > end || is_wanted(logged))
    }

    fn pass_of(&self, group: usize, topic: usize, shard: u16) -> u32 {
        self.passes.get(&self.entry(group, topic, shard)).copied().unwrap_or(0)
    }

    /// Returns the key of a group's entry for a shard.
    pub(super) fn entry(&self, group: usize, topic: usize, shard: u16) -> String {
        format!("shards/{}/{}/{shard:04}", self.topics[topic].topic.uid, self.rules.groups[group].name)
    }
}
