//! Seeking: a person sends a group to a place, and then every shard is there.

use std::collections::BTreeMap;

use sawmill::MessageId;
use sawmill::clock::Timestamp;
use sawmill::topic::Topic;

use super::book::{Book, Lying, Mirror};
use super::invariant::Invariant;
use super::shards::Change;

/// Where a group is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// To the first message.
    Start,
    /// Past the last message.
    Now,
    /// To what was pushed at this time or later.
    Time(Timestamp),
    /// To this message.
    Message(MessageId),
}

/// A group is sent elsewhere.
pub(super) struct Seek {
    group: usize,
    topic: usize,
    target: Target,
    /// The last message of each shard when it began.
    ends: BTreeMap<u16, u64>,
    /// How often each shard was moved before.
    passes: BTreeMap<u16, u32>,
}

impl Book {
    /// A person is about to send a group elsewhere.
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

    /// The seek that began last was acknowledged: every shard was moved since.
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

    /// The cursor of a shard was moved: it is where one of the seeks wants it.
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
                // An id that was reserved for another push is older than the message that came under it.
                let made = places
                    .first()
                    .and_then(|(shard, number)| self.places.get(&(mirror.topic, *shard, *number)));
                made.map_or(id.created(), |lying| lying.created)
            }
        };
        let there = |from: u64, to: u64| {
            let range =
                self.places.range((mirror.topic, mirror.shard, from)..=(mirror.topic, mirror.shard, to));
            range.filter(|(place, _)| !self.trimmed.contains(place)).map(|(place, lying)| (place.2, lying))
        };
        let is_wanted = |lying: &Lying| lying.created >= since;
        // Nothing is skipped that is wanted, and nothing comes again before the first that is.
        let skipped = there(0, mirror.sent_to).any(|(_, lying)| is_wanted(lying));
        let again = there(mirror.sent_to + 1, end.max(mirror.sent_to + 1)).next();
        !skipped && again.is_none_or(|(number, lying)| number > end || is_wanted(lying))
    }

    fn pass_of(&self, group: usize, topic: usize, shard: u16) -> u32 {
        self.passes.get(&self.entry(group, topic, shard)).copied().unwrap_or(0)
    }

    /// The key of a group's entry of a shard.
    pub(super) fn entry(&self, group: usize, topic: usize, shard: u16) -> String {
        format!("shards/{}/{}/{shard:04}", self.topics[topic].topic.uid, self.rules.groups[group].name)
    }
}
