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
#[derive(Debug)]
pub(crate) struct Tail {
    /// False until it was read from the store.
    pub(crate) loaded: bool,
    /// The number of the last segment.
    pub(crate) n: u64,
    pub(crate) total: u64,
    /// When the youngest message that is named was created.
    pub(crate) created: i64,
    pub(crate) windows: [Window; 2],
    /// The last segments, one after another.
    pub(crate) recent: VecDeque<Arc<Segment>>,
    /// There may be rows that no segment names, as far as the last look saw.
    pub(crate) more: bool,
}

/// Nothing is known.
impl Default for Tail {
    fn default() -> Self {
        Self {
            loaded: false,
            n: 0,
            total: 0,
            created: -1,
            windows: Default::default(),
            recent: VecDeque::new(),
            more: false,
        }
    }
}

/// The rows of one kind that may be among those that still arrive.
#[derive(Debug)]
pub(crate) struct Window {
    /// All rows up to here are named, and none will arrive any more.
    pub(crate) low: RowKey,
    /// The latest time of a row that is named.
    pub(crate) high: i64,
    /// The last segment that names such a row; 0 if none does.
    latest: u64,
    /// The named rows after it.
    known: BTreeSet<RowKey>,
    /// The last look over all rows after it: when it was, and what the wall clock said when it began.
    looked: Option<(Moment, i64)>,
    /// How far behind now rows were found lately, in milliseconds.
    reach: i64,
}

impl Default for Window {
    fn default() -> Self {
        Self { low: RowKey::FIRST, high: -1, latest: 0, known: BTreeSet::new(), looked: None, reach: 0 }
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
        (self.n, self.loaded) = (n, true);
        self.follow(state);
    }

    fn follow(&mut self, state: &State) {
        (self.total, self.created) = (state.total, state.created);
        for (kind, window) in self.windows.iter_mut().enumerate() {
            window.settle(state.low[kind]);
            window.high = window.high.max(state.high[kind]);
            window.latest = state.latest[kind];
        }
    }

    /// From which segment on backwards each kind's rows are to be recalled.
    pub(crate) fn to_recall(&self) -> [u64; 2] {
        [0, 1].map(|kind| self.windows[kind].latest)
    }

    /// A segment from before the end, which may name rows that are still looked over. With it, the number from which on backwards each kind is
    /// wanted; afterwards, the number from which on it still is, or 0. Segments that name nothing of a kind that is wanted are left out: there
    /// may be any number of them since that kind's last row.
    pub(crate) fn recall(&mut self, segment: Segment, wanted: &mut [u64; 2]) {
        for (kind, wanted) in wanted.iter_mut().enumerate().filter(|(_, wanted)| **wanted >= segment.n) {
            let needed = segment.state.high[kind] >= self.windows[kind].low.at;
            *wanted = if needed { segment.state.latest[kind].min(segment.n - 1) } else { 0 };
        }
        self.note(&segment.named);
        // They are kept without gaps.
        let next = self.recent.front().map_or(self.n, |first| first.n - 1);
        if self.recent.len() < RECENT && segment.n == next {
            self.recent.push_front(Arc::new(segment));
        }
    }

    /// The next segment.
    pub(crate) fn extend(&mut self, segment: Segment) {
        self.n = segment.n;
        self.note(&segment.named);
        self.follow(&segment.state);
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
        let created = named.iter().map(|row| row.created).fold(self.created, i64::max);
        let mut state = State { total: self.total + many, created, ..State::default() };
        for (index, window) in self.windows.iter().enumerate() {
            (state.low[index], state.high[index], state.latest[index]) =
                (window.low, window.high, window.latest);
        }
        let index = kind.number() as usize;
        state.low[index] = state.low[index].max(low);
        let latest = named.iter().map(|row| row.key.at).max().unwrap_or(-1);
        state.high[index] = state.high[index].max(latest);
        state.latest[index] = self.n + 1;
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
        let mut wanted = again.to_recall();
        for segment in segments.iter().rev() {
            again.recall(segment.clone(), &mut wanted);
        }
        assert_eq!(wanted, [0, 0]);
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

    /// As many segments as it takes to know the end again, counted in pages as they are read.
    fn pages(segments: &[Segment], page: usize) -> usize {
        let mut tail = Tail::default();
        let last = segments.last().unwrap();
        tail.begin(last.n, &last.state);
        let (mut wanted, mut pages) = (tail.to_recall(), 0);
        while let Some(upto @ 1..) = wanted.into_iter().max() {
            pages += 1;
            for segment in segments[..upto as usize].iter().rev().take(page) {
                tail.recall(segment.clone(), &mut wanted);
            }
        }
        pages
    }

    #[test]
    fn the_end_of_a_long_order_is_known_after_a_few_looks() {
        // Nothing was ever kept aside; something was, long ago; or nothing but that, of late.
        for aside in [0..0, 5..6, 3000..5000] {
            let (mut tail, mut segments) = (Tail::default(), Vec::new());
            for at in 1..=5000 {
                let kind = if aside.contains(&at) { Kind::Aside } else { Kind::Ready };
                let segment = tail.next(kind, vec![named(kind, at)], key(at - 10));
                segments.push(segment.clone());
                tail.extend(segment);
            }
            let pages = pages(&segments, 16);
            assert!(pages <= 4, "{aside:?}: {pages} pages");
        }
    }
}
