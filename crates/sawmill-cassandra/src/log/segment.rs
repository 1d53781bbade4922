//! Segments fix the order of a shard, a piece at a time.
//!
//! Writes arrive out of order, so the times of rows cannot be the order of delivery: a late row would come
//! before rows that were already delivered. A reader that finds rows that no segment names adds the next
//! segment with their names, by a lightweight transaction. From then on these rows have a number that is the
//! same for all readers, and no row comes before them any more. A position is a place in this numbering.

use bytes::{Buf, BufMut};
use sawmill_engine::storage::{Position, Span};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::log::row::{Kind, Named, RowKey};

/// How many segments share a partition.
pub(crate) const CHAPTER: u64 = 1000;
/// The most rows that one segment names, which keeps it a small write.
pub(crate) const MAX_NAMED: usize = 512;

const FORMAT: u8 = 2;

/// Some rows, in their order of delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// The number of the segment, from 1.
    pub(crate) n: u64,
    pub(crate) named: Vec<Named>,
    pub(crate) state: State,
}

/// The state of the shard after a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    /// The number of messages that all segments up to this one name.
    pub(crate) total: u64,
    /// Per kind: all rows up to here are named, and none will arrive any more.
    pub(crate) low: [RowKey; 2],
    /// Per kind: the latest time of a named row.
    pub(crate) high: [i64; 2],
    /// Per kind: the last segment that names such a row; 0 if none does.
    pub(crate) latest: [u64; 2],
    /// The latest creation time of the named messages.
    pub(crate) created: i64,
}

impl Default for State {
    fn default() -> Self {
        Self { total: 0, low: [RowKey::FIRST; 2], high: [-1; 2], latest: [0; 2], created: -1 }
    }
}

impl Segment {
    pub(crate) fn many(&self) -> u64 {
        self.named.iter().map(|named| u64::from(named.many)).sum()
    }

    /// The number of messages before this segment.
    pub(crate) fn before(&self) -> u64 {
        self.state.total.saturating_sub(self.many())
    }

    /// The number of messages before this row in the segment, if the segment names it.
    pub(crate) fn before_row(&self, kind: Kind, key: RowKey) -> Option<u32> {
        let nth = self.named.iter().position(|row| row.kind == kind && row.key == key)?;
        Some(self.named[..nth].iter().map(|row| row.many).sum())
    }

    /// Encodes the segment, without its number.
    pub(crate) fn encode(&self) -> (Vec<u8>, Vec<u8>) {
        let mut out = vec![FORMAT];
        for named in &self.named {
            out.put_i8(named.kind.number());
            put_key(&mut out, &named.key);
            out.put_u32(named.many);
            out.put_u32(named.bytes);
            out.put_i64(named.created);
        }
        (out, self.state.encode())
    }

    /// Decodes a segment; `None` if it is malformed.
    pub(crate) fn decode(n: i64, mut named: &[u8], state: &[u8]) -> Option<Self> {
        let n = u64::try_from(n).ok()?;
        if named.try_get_u8().ok()? != FORMAT {
            return None;
        }
        let mut rows = Vec::new();
        while !named.is_empty() {
            rows.push(Named {
                kind: Kind::of(named.try_get_i8().ok()?)?,
                key: key(&mut named)?,
                many: named.try_get_u32().ok()?,
                bytes: named.try_get_u32().ok()?,
                created: named.try_get_i64().ok()?,
                slow: false,
            });
        }
        Some(Self { n, named: rows, state: State::decode(state)? })
    }
}

impl State {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.put_u64(self.total);
        for kind in 0..2 {
            put_key(&mut out, &self.low[kind]);
            out.put_i64(self.high[kind]);
            out.put_u64(self.latest[kind]);
        }
        out.put_i64(self.created);
        out
    }

    pub(crate) fn decode(mut bytes: &[u8]) -> Option<Self> {
        if bytes.try_get_u8().ok()? != FORMAT {
            return None;
        }
        let mut state = Self { total: bytes.try_get_u64().ok()?, ..Self::default() };
        for kind in 0..2 {
            state.low[kind] = key(&mut bytes)?;
            state.high[kind] = bytes.try_get_i64().ok()?;
            state.latest[kind] = bytes.try_get_u64().ok()?;
        }
        state.created = bytes.try_get_i64().ok()?;
        bytes.is_empty().then_some(state)
    }
}

fn put_key(out: &mut Vec<u8>, key: &RowKey) {
    out.put_i64(key.at);
    out.put_i64(key.seq);
    out.put_i64(key.writer);
}

fn key(bytes: &mut &[u8]) -> Option<RowKey> {
    Some(RowKey {
        at: bytes.try_get_i64().ok()?,
        seq: bytes.try_get_i64().ok()?,
        writer: bytes.try_get_i64().ok()?,
    })
}

/// A place between two messages: a segment, and the number of its messages before the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Place {
    pub(crate) n: u64,
    pub(crate) after: u32,
}

impl Place {
    pub(crate) fn of(position: &Position) -> Result<Self> {
        let mut bytes = position.as_bytes();
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let place = Self::take(&mut bytes).filter(|_| bytes.is_empty());
        place.ok_or_else(|| foreign(position))
    }

    fn take(bytes: &mut &[u8]) -> Option<Self> {
        Some(Self { n: bytes.try_get_u64().ok()?, after: bytes.try_get_u32().ok()? })
    }

    fn put(self, out: &mut Vec<u8>) {
        out.put_u64(self.n);
        out.put_u32(self.after);
    }

    pub(crate) fn position(self) -> Position {
        if self == Self::default() {
            return Position::default();
        }
        let mut out = Vec::new();
        self.put(&mut out);
        Position::new(out)
    }
}

fn foreign(what: &dyn std::fmt::Debug) -> Error {
    Error::new(ErrorKind::Corrupt, format!("{what:?} was made by another engine"))
}

/// The messages between two places, and their number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PlaceRange {
    pub(crate) from: Place,
    pub(crate) upto: Place,
    pub(crate) many: usize,
}

impl PlaceRange {
    pub(crate) fn span(self) -> Span {
        let mut out = Vec::new();
        self.from.put(&mut out);
        self.upto.put(&mut out);
        out.put_u32(u32::try_from(self.many).unwrap_or(u32::MAX));
        Span::new(out)
    }

    pub(crate) fn of(span: &Span) -> Result<Self> {
        let mut bytes = span.as_bytes();
        let read = |bytes: &mut &[u8]| {
            let (from, upto) = (Place::take(bytes)?, Place::take(bytes)?);
            let many = bytes.try_get_u32().ok()? as usize;
            bytes.is_empty().then_some(Self { from, upto, many })
        };
        read(&mut bytes).ok_or_else(|| foreign(span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_read_back() {
        let key = |at| RowKey { at, seq: at * 1000, writer: -at };
        let named =
            |kind, at| Named { kind, key: key(at), many: 3, bytes: 400, created: at - 1, slow: false };
        let state =
            State { total: 77, low: [key(5), RowKey::FIRST], high: [9, -1], latest: [8, 0], created: 6 };
        let segment =
            Segment { n: 8, named: vec![named(Kind::Ready, 7), named(Kind::Aside, i64::MAX / 2000)], state };
        let (rows, after) = segment.encode();
        assert_eq!(Segment::decode(8, &rows, &after), Some(segment.clone()));
        assert_eq!((segment.many(), segment.before()), (6, 71));
        for end in 0..after.len() {
            assert_eq!(State::decode(&after[..end]), None);
        }
        assert_eq!(Segment::decode(8, &rows[..rows.len() - 1], &after), None);
    }

    #[test]
    fn places_are_read_back() {
        for place in [Place::default(), Place { n: 3, after: 9 }] {
            assert_eq!(Place::of(&place.position()).unwrap(), place);
        }
        assert_eq!(Place::default().position(), Position::default());
        let range = PlaceRange { from: Place { n: 1, after: 2 }, upto: Place { n: 3, after: 4 }, many: 5 };
        assert_eq!(PlaceRange::of(&range.span()).unwrap(), range);
        assert!(Place::of(&Position::new(vec![1; 8])).is_err());
        assert!(PlaceRange::of(&Span::from_range(1, 2, 3)).is_err());
    }
}
