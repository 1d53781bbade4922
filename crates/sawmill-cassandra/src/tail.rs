//! The end of a shard's order, as far as it is known here: what the last segments name, and from where on rows must be looked over
//! because some may still arrive.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sawmill::clock::Moment;

use crate::row::{Kind, Named, RowKey};
use crate::segment::{Segment, State};

/// So few rows are always looked over all.
const FEW: usize = 200;
/// How often all rows are looked over that may still arrive, however late.
const LOOK_WELL_EVERY: Duration = Duration::from_millis(250);
/// How many segments are kept at hand.
const RECENT: usize = 64;

/// What is known of a shard's end.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    /// False until it was read from the store.
    pub(crate) loaded: bool,
    /// The number of the last segment.
    pub(crate) n: u64,
    pub(crate) total: u64,
    pub(crate) windows: [Window; 2],
    /// The last segments, one after another.
    pub(crate) recent: VecDeque<Arc<Segment>>,
    /// There may be rows that no segment names, as far as the last look saw.
    pub(crate) more: bool,
}

/// The rows of one kind that may be among those that still arrive.
#[derive(Debug)]
pub(crate) struct Window {
    /// All rows up to here are named, and none will arrive any more.
    pub(crate) low: RowKey,
    high: i64,
    /// The named rows after it.
    known: BTreeSet<RowKey>,
    /// The last look over all rows after it: when it was, and what the wall clock said when it began.
    looked: Option<(Moment, i64)>,
    /// How far behind now rows were found lately, in milliseconds.
    reach: i64,
}

impl Default for Window {
    fn default() -> Self {
        Self { low: RowKey::FIRST, high: -1, known: BTreeSet::new(), looked: None, reach: 0 }
    }
}

impl Window {
    pub(crate) fn knows(&self, key: &RowKey) -> bool {
        *key <= self.low || self.known.contains(key)
    }

    /// From where to look: as far back as rows were found lately, or, now and then, over all that may still arrive. None if it is
    /// time for that.
    pub(crate) fn near(&self, now: Moment, settle: i64) -> Option<RowKey> {
        let (at, wall) = self.looked?;
        if self.known.len() < FEW || now.since(at) >= LOOK_WELL_EVERY {
            return None;
        }
        let reach = self.reach.max(settle / 10);
        (reach < settle).then(|| self.low.max(RowKey::end_of(wall - reach)))
    }

    /// All rows after `low` were looked over.
    pub(crate) fn looked_well(&mut self, now: Moment, wall: i64) {
        self.looked = Some((now, wall));
    }

    /// Up to which time nothing arrives any more that the last look over all rows has not seen.
    pub(crate) fn settled(&self, settle: i64) -> RowKey {
        self.looked.map_or(RowKey::FIRST, |(_, wall)| RowKey::end_of(wall - settle))
    }

    /// Rows were found so far behind now.
    pub(crate) fn found_behind(&mut self, millis: i64) {
        self.reach = (millis.max(0) * 5 / 4).max(self.reach * 9 / 10);
    }

    /// Nothing will arrive up to here any more, and all that is there is named.
    pub(crate) fn settle(&mut self, low: RowKey) {
        if low > self.low {
            self.low = low;
            self.known = self.known.split_off(&low);
            self.known.remove(&low);
        }
    }
}

impl Tail {
    pub(crate) fn window(&mut self, kind: Kind) -> &mut Window {
        &mut self.windows[kind.number() as usize]
    }

    /// What the last segment left.
    pub(crate) fn begin(&mut self, n: u64, state: &State) {
        (self.n, self.total, self.loaded) = (n, state.total, true);
        for (window, (low, high)) in self.windows.iter_mut().zip(state.low.iter().zip(&state.high)) {
            window.settle(*low);
            window.high = *high;
        }
    }

    /// A segment from before the end, which may name rows that are still looked over. False if neither it nor any before it does.
    pub(crate) fn recall(&mut self, segment: Segment) -> bool {
        let needed = (0..2).any(|kind| segment.state.high[kind] >= self.windows[kind].low.at);
        if needed {
            self.note(&segment.named);
        }
        if self.recent.len() < RECENT {
            self.recent.push_front(Arc::new(segment));
        }
        needed
    }

    /// The next segment.
    pub(crate) fn extend(&mut self, segment: Segment) {
        self.n = segment.n;
        self.total = segment.state.total;
        self.note(&segment.named);
        for (window, (low, high)) in
            self.windows.iter_mut().zip(segment.state.low.iter().zip(&segment.state.high))
        {
            window.settle(*low);
            window.high = window.high.max(*high);
        }
        if self.recent.len() >= RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(Arc::new(segment));
    }

    fn note(&mut self, named: &[Named]) {
        for row in named {
            let window = &mut self.windows[row.kind.number() as usize];
            if row.key > window.low {
                window.known.insert(row.key);
            }
        }
    }

    /// The segment that would come next, naming these rows; up to `low` nothing is left out and nothing will arrive.
    pub(crate) fn next(&self, kind: Kind, named: Vec<Named>, low: RowKey) -> Segment {
        let many: u64 = named.iter().map(|row| u64::from(row.many)).sum();
        let mut state = State { total: self.total + many, ..State::default() };
        for (index, window) in self.windows.iter().enumerate() {
            (state.low[index], state.high[index]) = (window.low, window.high);
        }
        let index = kind.number() as usize;
        state.low[index] = state.low[index].max(low);
        let latest = named.iter().map(|row| row.key.at).max().unwrap_or(-1);
        state.high[index] = state.high[index].max(latest);
        Segment { n: self.n + 1, named, state }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(at: i64) -> RowKey {
        RowKey { at, seq: at * 1000, writer: 1 }
    }

    fn named(kind: Kind, at: i64) -> Named {
        Named { kind, key: key(at), many: 2, bytes: 10, created: at, slow: false }
    }

    #[test]
    fn c5_what_arrives_late_is_told_from_what_is_known() {
        let mut tail = Tail::default();
        let first = tail.next(Kind::Ready, vec![named(Kind::Ready, 10), named(Kind::Ready, 30)], key(5));
        tail.extend(first);
        assert_eq!((tail.n, tail.total), (1, 4));
        let window = tail.window(Kind::Ready);
        assert!(window.knows(&key(10)) && window.knows(&key(30)) && window.knows(&key(3)));
        assert!(!window.knows(&key(20)), "it arrives between two that are named");
        assert!(!tail.window(Kind::Aside).knows(&key(10)), "kinds are apart");
        let late = tail.next(Kind::Ready, vec![named(Kind::Ready, 20)], key(15));
        tail.extend(late);
        let window = tail.window(Kind::Ready);
        assert!(window.knows(&key(20)) && window.knows(&key(12)) && !window.knows(&key(25)));
    }

    #[test]
    fn a_tail_that_is_read_back_knows_the_same() {
        let mut tail = Tail::default();
        let mut segments = Vec::new();
        for (at, low) in [(10, 0), (40, 5), (20, 9), (90, 30), (70, 60)] {
            let segment = tail.next(Kind::Ready, vec![named(Kind::Ready, at)], key(low));
            segments.push(segment.clone());
            tail.extend(segment);
        }
        let mut again = Tail::default();
        let last = segments.last().unwrap();
        again.begin(last.n, &last.state);
        for segment in segments.iter().rev() {
            if !again.recall(segment.clone()) {
                break;
            }
        }
        for at in 0..100 {
            assert_eq!(
                again.window(Kind::Ready).knows(&key(at)),
                tail.window(Kind::Ready).knows(&key(at)),
                "{at}"
            );
        }
        let numbers: Vec<u64> = again.recent.iter().map(|segment| segment.n).collect();
        assert!(numbers.is_sorted() && numbers.last() == Some(&5), "{numbers:?}");
    }
}
