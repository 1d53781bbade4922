//! Claims: a worker's name on a block of messages, with what of it is done.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::log::{Position, Span};

/// The fencing number of a claim. Of two claims on one shard the later one has the greater token, so a system that
/// remembers the greatest token it has seen can refuse a worker that was superseded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub u64);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The id of a worker: its name and a random part, new at each start.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkerId(String);

impl WorkerId {
    /// The id with this text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A worker's name on a block of messages of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its fencing number.
    pub token: Token,
    /// Who works it. Nobody, if the worker gave it back: then nothing that is not done was ever started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<WorkerId>,
    /// The cursor before the block.
    pub from: Position,
    /// What the log needs to read the block again.
    pub span: Span,
    /// How many messages the block has.
    pub count: u32,
    /// Which of them need nothing more.
    #[serde(default, skip_serializing_if = "Progress::is_empty")]
    pub done: Progress,
    /// How often messages of this block failed that wait in place, by index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<u32, u32>,
    /// Which reading of the shard it belongs to: how often the group had been sent elsewhere when it was opened.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pass: u32,
    /// How many workers died holding it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub deaths: u32,
    /// Opened under at-most-once: what a dead owner has not done must not be started again.
    #[serde(default, skip_serializing_if = "is_false")]
    pub once: bool,
    /// An owner died under at-most-once: what is not done is lost, and goes to the dead letters.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lost: bool,
    /// Those of its messages that an owner who died under at-most-once is known to have started and not done: they are lost,
    /// and the others are not. Known from a journal.
    #[serde(default, skip_serializing_if = "Progress::is_empty")]
    pub started: Progress,
    /// Of [`Format::NEXT`](crate::Format::NEXT): the token that it had when it was first written in that format.
    #[cfg(any(test, feature = "next-format"))]
    #[doc(hidden)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Token>,
}

impl Claim {
    /// How many of its messages are not done.
    pub fn open(&self) -> u64 {
        u64::from(self.count).saturating_sub(self.done.len())
    }
}

pub(crate) fn is_zero(number: &u32) -> bool {
    *number == 0
}

pub(crate) fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A set of indexes into a block, kept as ranges, since blocks are mostly done from front to back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Progress {
    /// Sorted, apart from one another, each from its first to its last index.
    ranges: Vec<(u32, u32)>,
}

impl Progress {
    /// Adds an index. False if it was in already.
    pub fn insert(&mut self, index: u32) -> bool {
        // Most often the new index follows the last one.
        let at = match self.ranges.last() {
            Some((_, last)) if *last < index => self.ranges.len(),
            _ => self.ranges.partition_point(|(_, last)| *last < index),
        };
        if self.ranges.get(at).is_some_and(|(first, _)| *first <= index) {
            return false;
        }
        let joins_left = at > 0 && self.ranges[at - 1].1 + 1 == index;
        let joins_right = self.ranges.get(at).is_some_and(|(first, _)| index + 1 == *first);
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[at - 1].1 = self.ranges[at].1;
                self.ranges.remove(at);
            }
            (true, false) => self.ranges[at - 1].1 = index,
            (false, true) => self.ranges[at].0 = index,
            (false, false) => self.ranges.insert(at, (index, index)),
        }
        true
    }

    /// True if the index is in.
    pub fn contains(&self, index: u32) -> bool {
        let at = self.ranges.partition_point(|(_, last)| *last < index);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// How many indexes are in.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// True if none is in.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The indexes, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Adds all indexes of another set, and says how many of them were new.
    pub fn absorb(&mut self, other: &Progress) -> u64 {
        if self.ranges.is_empty() {
            self.ranges.clone_from(&other.ranges);
            return other.len();
        }
        other.iter().filter(|index| self.insert(*index)).count() as u64
    }

    /// True if the ranges are what this type keeps: sorted, and apart from one another.
    pub(crate) fn is_sound(&self, count: u32) -> bool {
        let ordered = self.ranges.iter().all(|(first, last)| first <= last && *last < count);
        ordered && self.ranges.windows(2).all(|pair| pair[0].1.saturating_add(1) < pair[1].0)
    }
}

impl FromIterator<u32> for Progress {
    fn from_iter<I: IntoIterator<Item = u32>>(indexes: I) -> Self {
        let mut progress = Self::default();
        for index in indexes {
            progress.insert(index);
        }
        progress
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn progress_is_a_set() {
        // All orders of inserting six indexes out of eight, against the standard library's set.
        for seed in 0..5000u64 {
            let (mut progress, mut set, mut state) = (Progress::default(), BTreeSet::new(), seed);
            for _ in 0..6 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let index = (state >> 60) as u32;
                assert_eq!(progress.insert(index), set.insert(index));
            }
            assert!(progress.is_sound(16), "{progress:?}");
            assert!(progress.iter().eq(set.iter().copied()), "{progress:?} {set:?}");
            assert_eq!(progress.len(), set.len() as u64);
            assert!((0..16).all(|index| progress.contains(index) == set.contains(&index)));
        }
    }

    #[test]
    fn absorbing_counts_what_is_new() {
        let mut progress: Progress = [1, 2, 5].into_iter().collect();
        assert_eq!(progress.absorb(&[2, 3, 4, 9].into_iter().collect()), 3);
        assert_eq!(progress.iter().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 9]);
        assert_eq!(Progress::default().absorb(&progress), 6);
    }

    #[test]
    fn broken_ranges_are_noticed() {
        for text in ["[[3,2]]", "[[0,1],[2,3]]", "[[4,5],[0,1]]", "[[0,10]]"] {
            let progress: Progress = serde_json::from_str(text).unwrap();
            assert!(!progress.is_sound(10), "{text}");
        }
    }
}
