//! Encodes positions and spans as they are stored in ledger entries: small, and validated when read.

use sawmill_engine::storage::{Position, Span};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::log::snapshot::{Range, Snapshot, Spot, ranges};

/// A decoded position in a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// After everything that a snapshot contains.
    After(Snapshot),
    /// In the window between two snapshots, after a spot.
    Inside(Window, Spot),
}

/// The transactions that one snapshot contains and an earlier one does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) old: Snapshot,
    pub(crate) new: Snapshot,
}

/// A decoded span: a block that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) window: Window,
    /// The spot before the block, or `None` for the beginning of the window.
    pub(crate) after: Option<Spot>,
    /// The last spot of the block.
    pub(crate) upto: Spot,
    pub(crate) count: usize,
}

const AFTER: u8 = 1;
const INSIDE: u8 = 2;
const READ: u8 = 3;

impl Place {
    pub(crate) fn of(position: &Position) -> Result<Self> {
        let bytes = position.as_bytes();
        if bytes.is_empty() {
            return Ok(Self::After(Snapshot::default()));
        }
        Self::decode(&mut Bytes(bytes)).ok_or_else(|| foreign(position))
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Self> {
        let place = match bytes.byte()? {
            AFTER => Self::After(bytes.snapshot()?),
            INSIDE => Self::Inside(bytes.window()?, bytes.spot()?),
            _ => return None,
        };
        bytes.0.is_empty().then_some(place)
    }

    pub(crate) fn position(&self) -> Position {
        let mut out = Vec::new();
        match self {
            Self::After(snapshot) => {
                out.push(AFTER);
                put_snapshot(&mut out, snapshot);
            }
            Self::Inside(window, last) => {
                out.push(INSIDE);
                put_window(&mut out, window);
                put_spot(&mut out, *last);
            }
        }
        Position::new(out)
    }

    /// Returns the ranges after this position, without an upper limit.
    pub(crate) fn rest(&self) -> Vec<Range> {
        match self {
            Self::After(snapshot) => ranges(snapshot, None, None),
            Self::Inside(window, last) => {
                let mut rest = ranges(&window.old, Some(&window.new), Some(*last));
                rest.extend(ranges(&window.new, None, None));
                rest
            }
        }
    }
}

impl Read {
    pub(crate) fn of(span: &Span) -> Result<Option<Self>> {
        let bytes = span.as_bytes();
        if bytes.is_empty() {
            return Ok(None);
        }
        Self::decode(&mut Bytes(bytes)).map(Some).ok_or_else(|| foreign(span))
    }

    fn decode(bytes: &mut Bytes<'_>) -> Option<Self> {
        if bytes.byte()? != READ {
            return None;
        }
        let (window, upto) = (bytes.window()?, bytes.spot()?);
        let after = if bytes.byte()? == 0 { None } else { Some(bytes.spot()?) };
        let count = usize::try_from(bytes.number()?).ok()?;
        bytes.0.is_empty().then_some(Self { window, after, upto, count })
    }

    pub(crate) fn span(&self) -> Span {
        let mut out = vec![READ];
        put_window(&mut out, &self.window);
        put_spot(&mut out, self.upto);
        out.push(self.after.is_some().into());
        if let Some(after) = self.after {
            put_spot(&mut out, after);
        }
        put_number(&mut out, self.count as u64);
        Span::new(out)
    }

    /// Returns the ranges of the block's messages. The last range may hold more than the block did.
    pub(crate) fn ranges(&self) -> Vec<Range> {
        let mut ranges = ranges(&self.window.old, Some(&self.window.new), self.after);
        ranges.retain(|range| range.after < self.upto);
        ranges.iter_mut().for_each(|range| range.end = range.end.min(self.upto.0.saturating_add(1)));
        ranges
    }
}

fn foreign(what: &impl std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what:?} was made by another engine"))
}

fn put_window(out: &mut Vec<u8>, window: &Window) {
    put_snapshot(out, &window.old);
    put_snapshot(out, &window.new);
}

fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot) {
    put_number(out, snapshot.end.unsigned_abs());
    put_number(out, snapshot.running.len() as u64);
    // The distances are small unless a transaction runs for hours.
    snapshot.running.iter().for_each(|xid| put_number(out, snapshot.end.abs_diff(*xid)));
}

fn put_spot(out: &mut Vec<u8>, (xid, number): Spot) {
    put_number(out, xid.unsigned_abs());
    // The spot just before the first message of a transaction has the number -1.
    put_number(out, number.saturating_add(1).unsigned_abs());
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// The bytes that are not decoded yet.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Rejects the maximum value, because callers add one to a number.
    fn signed(&mut self) -> Option<i64> {
        i64::try_from(self.number()?).ok().filter(|number| *number < i64::MAX)
    }

    fn spot(&mut self) -> Option<Spot> {
        Some((self.signed()?, self.signed()? - 1))
    }

    fn window(&mut self) -> Option<Window> {
        Some(Window { old: self.snapshot()?, new: self.snapshot()? })
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let (end, count) = (self.signed()?, usize::try_from(self.number()?).ok()?);
        if count > self.0.len() {
            return None;
        }
        let running = (0..count).map(|_| end.checked_sub(self.signed()?)).collect::<Option<Vec<i64>>>()?;
        running.is_sorted().then_some(Snapshot { end, running })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        let old = Snapshot { end: 900, running: vec![3, 700, 899] };
        let new = Snapshot { end: 5_000_000_000, running: vec![700, 4_999_999_999] };
        Window { old, new }
    }

    #[test]
    fn places_and_blocks_are_read_back() {
        let snapshot = window().new;
        for place in [Place::After(snapshot), Place::Inside(window(), (910, -1))] {
            assert_eq!(Place::of(&place.position()).unwrap(), place);
        }
        for after in [None, Some((901, 7))] {
            let read = Read { window: window(), after, upto: (4_000, 12), count: 5 };
            assert_eq!(Read::of(&read.span()).unwrap(), Some(read));
        }
        assert_eq!(Place::of(&Position::default()).unwrap(), Place::After(Snapshot::default()));
        assert_eq!(Read::of(&Span::default()).unwrap(), None);
    }

    #[test]
    fn what_another_engine_wrote_is_refused() {
        let whole = Place::Inside(window(), (910, 4)).position();
        let cut = (1..whole.as_bytes().len()).map(|end| whole.as_bytes()[..end].to_vec());
        // 2^63 - 1 has no successor.
        let last = [&[AFTER][..], &[0xff; 8], &[0x7f, 0]].concat();
        let others = [vec![9], vec![0; 8], vec![AFTER, 5, 200, 1], vec![AFTER; 40], last];
        for bytes in cut.chain(others) {
            assert_eq!(Place::of(&Position::new(bytes.clone())).unwrap_err().kind(), ErrorKind::Corrupt);
            assert_eq!(Read::of(&Span::new(bytes)).unwrap_err().kind(), ErrorKind::Corrupt);
        }
    }

    #[test]
    fn a_position_among_many_transactions_is_small() {
        let running: Vec<i64> = (0..300).map(|i| 7_000_000_000 + 7 * i).collect();
        let snapshot = Snapshot { end: 7_000_002_200, running };
        let window = Window { old: snapshot.clone(), new: snapshot };
        let size = Place::Inside(window, (7_000_000_001, 4)).position().as_bytes().len();
        assert!(size < 1_300, "{size} bytes");
    }

    #[test]
    fn the_rest_of_a_window_is_followed_by_what_comes_after_it() {
        let rest: Vec<_> =
            Place::Inside(window(), (898, 3)).rest().iter().map(|range| (range.after, range.end)).collect();
        let [first, second, third, fourth, fifth] = rest[..] else { panic!("{rest:?}") };
        assert_eq!((first, second), (((899, -1), 900), ((900, -1), 4_999_999_999)));
        assert_eq!((third, fourth), (((700, -1), 701), ((4_999_999_999, -1), 5_000_000_000)));
        assert_eq!(fifth, ((5_000_000_000, -1), i64::MAX));
    }
}
