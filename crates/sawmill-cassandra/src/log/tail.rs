//! The end of a shard's order as this process knows it: the last segments, and the windows of rows that must
//! be scanned because more rows may still arrive in them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sawmill_engine::runtime::Moment;

use crate::log::row::{Kind, Named, RowKey};
use crate::log::segment::{Segment, State};

/// A window with fewer named rows than this always gets a full scan.
const FEW: usize = 200;
/// The interval between full scans of a window, which find even the latest rows.
const FULL_SCAN_INTERVAL: Duration = Duration::from_millis(250);
/// How many segments are cached.
const RECENT: usize = 64;

/// The end of a shard's order.
#[derive(Debug)]
pub(crate) struct Tail {
    /// False until it has been loaded from the store.
    pub(crate) loaded: bool,
    /// The number of the last segment.
    pub(crate) n: u64,
    pub(crate) total: u64,
    /// The latest creation time of the named messages.
    pub(crate) created: i64,
    pub(crate) windows: [Window; 2],
    /// The last segments, without gaps.
    pub(crate) recent: VecDeque<Arc<Segment>>,
    /// True if there may be rows that no segment names, by the last scan.
    pub(crate) more: bool,
}

/// Nothing is loaded yet.
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

/// The range of one kind of rows in which more may still arrive.
#[derive(Debug)]
pub(crate) struct Window {
    /// All rows up to here are named, and none will arrive any more.
    pub(crate) low: RowKey,
    /// The latest time of a named row.
    pub(crate) high: i64,
    /// The last segment that names such a row; 0 if none does.
    latest: u64,
    /// The named rows after `low`.
    known: BTreeSet<RowKey>,
    /// The last full scan: when it was, and the wall clock when it began.
    last_full_scan: Option<(Moment, i64)>,
    /// How far behind the wall clock rows were found lately, in milliseconds.
    lag_ms: i64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            low: RowKey::FIRST,
            high: -1,
            latest: 0,
            known: BTreeSet::new(),
            last_full_scan: None,
            lag_ms: 0,
        }
    }
}

impl Window {
    pub(crate) fn knows(&self, key: &RowKey) -> bool {
        *key <= self.low || self.known.contains(key)
    }

    /// The start of a quick scan, which goes back as far as rows were found lately. `None` if it is time for
    /// a full scan.
    pub(crate) fn quick_scan_start(&self, now: Moment, settle: i64) -> Option<RowKey> {
        let (at, wall) = self.last_full_scan?;
        if self.known.len() < FEW || now.since(at) >= FULL_SCAN_INTERVAL {
            return None;
        }
        let lag_ms = self.lag_ms.max(settle / 10);
        (lag_ms < settle).then(|| self.low.max(RowKey::end_of(wall - lag_ms)))
    }

    /// Records a full scan: all rows after `low` were read.
    pub(crate) fn full_scan_done(&mut self, now: Moment, wall: i64) {
        self.last_full_scan = Some((now, wall));
    }

    /// The end of the range in which nothing can arrive that the last full scan has not seen.
    pub(crate) fn settled(&self, settle: i64) -> RowKey {
        self.last_full_scan.map_or(RowKey::FIRST, |(_, wall)| RowKey::end_of(wall - settle))
    }

    /// Records how far behind the wall clock rows were found.
    pub(crate) fn record_lag(&mut self, millis: i64) {
        self.lag_ms = (millis.max(0) * 5 / 4).max(self.lag_ms * 9 / 10);
    }

    /// Closes the window up to here: no row will arrive there any more, and all are named.
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

    /// Starts from the state after the last segment.
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

    /// Per kind, the segment from which earlier ones are to be recalled.
    pub(crate) fn to_recall(&self) -> [u64; 2] {
        [0, 1].map(|kind| self.windows[kind].latest)
    }

    /// Adds a segment from before the end, which may name rows in the windows. `wanted` holds, per kind, the
    /// number of the next segment to recall, going backwards, or 0. Segments that name no rows of a wanted
    /// kind are skipped: there may be any number of them since the last row of that kind.
    pub(crate) fn recall(&mut self, segment: Segment, wanted: &mut [u64; 2]) {
        for (kind, wanted) in wanted.iter_mut().enumerate().filter(|(_, wanted)| **wanted >= segment.n) {
            let needed = segment.state.high[kind] >= self.windows[kind].low.at;
            *wanted = if needed { segment.state.latest[kind].min(segment.n - 1) } else { 0 };
        }
        self.note(&segment.named);
        // The cache has no gaps.
        let next = self.recent.front().map_or(self.n, |first| first.n - 1);
        if self.recent.len() < RECENT && segment.n == next {
            self.recent.push_front(Arc::new(segment));
        }
    }

    /// Adds the next segment.
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

    /// Makes the next segment, which names these rows. Up to `low` all rows are named and none will arrive.
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
        assert!(!tail.window(Kind::Aside).knows(&key(10)), "the kinds are independent");
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

    /// Counts the pages of segments that it takes to restore the end.
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
        // No delayed rows; one long ago; only delayed rows of late.
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
