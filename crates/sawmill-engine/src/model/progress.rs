//! Progress: the set of messages of a block that are settled, in a form that stays small in a ledger entry.

use serde::{Deserialize, Serialize};

/// A set of indexes into a block, kept as ranges, because blocks are mostly settled from front to back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Progress {
    /// The ranges, each with its first and last index. They are sorted, and do not touch one another.
    ranges: Vec<(u32, u32)>,
}

impl Progress {
    /// Adds an index. Returns false if it was in the set already.
    pub fn insert(&mut self, index: u32) -> bool {
        // Usually the new index follows the last one.
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

    /// Returns true if the index is in the set.
    pub fn contains(&self, index: u32) -> bool {
        let at = self.ranges.partition_point(|(_, last)| *last < index);
        self.ranges.get(at).is_some_and(|(first, _)| *first <= index)
    }

    /// Returns the number of indexes in the set.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Returns true if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the indexes in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|(first, last)| *first..=*last)
    }

    /// Adds all indexes of another set, and returns how many of them were new.
    pub fn absorb(&mut self, other: &Progress) -> u64 {
        if self.ranges.is_empty() {
            self.ranges.clone_from(&other.ranges);
            return other.len();
        }
        other.iter().filter(|index| self.insert(*index)).count() as u64
    }

    /// Returns true if the ranges are valid for a block of `count` messages: within the block, sorted, and
    /// not touching.
    pub fn is_sound(&self, count: u32) -> bool {
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
        // Many sequences of six insertions, compared with the standard library's set.
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
