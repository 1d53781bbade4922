//! Snapshots of the transactions that a reader has seen, and the difference between two snapshots.
//!
//! Each message carries the id of the transaction that appended it. Ids are assigned before the commit, so a
//! position "all ids up to here" would lose messages that commit late. A snapshot lists exactly the
//! transactions that had ended when it was taken. Everything new since then has a later id, or was still
//! running and has ended meanwhile.
//!
//! A server that crashes forgets ids that it has assigned if nothing written under them or later reached its
//! disk, and assigns them again. So a position must not mention ids beyond the last one that is known to be
//! on disk. The id of any visible message is. See [`Snapshot::known`].

/// The transactions that had ended at one moment: all below `end` except those in `running`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Snapshot {
    /// The first id that was not assigned yet.
    pub(crate) end: i64,
    /// Ids below `end` whose transactions had not ended, ascending.
    pub(crate) running: Vec<i64>,
}

/// The place of a message in the order of its shard: its transaction id, and its number within the
/// transaction.
pub(crate) type Spot = (i64, i64);

/// Part of a shard: the messages after a spot and before a transaction id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) after: Spot,
    pub(crate) end: i64,
}

impl Snapshot {
    /// Parses PostgreSQL's `xmin:xmax:xip,xip,…` and shifts the ids as those of messages are shifted.
    pub(crate) fn parse(text: &str, shift: i64) -> Option<Self> {
        let mut parts = text.split(':');
        let number = |text: &str| text.parse::<i64>().ok()?.checked_add(shift);
        let (_, end, running) = (parts.next()?, number(parts.next()?)?, parts.next()?);
        let mut running: Vec<i64> =
            running.split(',').filter(|part| !part.is_empty()).map(number).collect::<Option<_>>()?;
        running.sort_unstable();
        Some(Self { end, running })
    }

    /// Reduces the snapshot to ids up to `durable`, which no crash takes back, and to those that `old`
    /// covered already. For a shard without a message of a later id, this is equivalent to the whole
    /// snapshot.
    pub(crate) fn known(&self, old: &Self, durable: i64) -> Self {
        let end = self.end.min(durable.saturating_add(1)).max(old.end);
        Self { end, running: self.running.iter().copied().filter(|xid| *xid < end).collect() }
    }

    /// Removes from `running` the transactions that have ended in a later snapshot.
    pub(crate) fn without_ended(&self, later: &Self) -> Self {
        let running = self.running.iter().copied().filter(|xid| !later.has(*xid)).collect();
        Self { end: self.end, running }
    }

    /// Returns true if the transaction had ended.
    fn has(&self, xid: i64) -> bool {
        xid < self.end && self.running.binary_search(&xid).is_err()
    }
}

/// Returns the ranges of transactions that had ended in `new` and not in `old`, in ascending order and after
/// the spot `last`. Without `new` there is no upper limit.
pub(crate) fn ranges(old: &Snapshot, new: Option<&Snapshot>, last: Option<Spot>) -> Vec<Range> {
    let whole = |from: i64, end: i64| Range { after: (from, -1), end };
    let mut ranges: Vec<Range> = old
        .running
        .iter()
        .filter(|xid| new.is_none_or(|new| new.has(**xid)))
        .map(|xid| whole(*xid, xid.saturating_add(1)))
        .collect();
    let (mut from, still) = (old.end, new.map_or(&[][..], |new| &new.running[..]));
    for xid in still.iter().filter(|xid| **xid >= old.end) {
        ranges.push(whole(from, *xid));
        from = xid.saturating_add(1);
    }
    ranges.push(whole(from, new.map_or(i64::MAX, |new| new.end)));
    if let Some(last) = last {
        ranges.iter_mut().for_each(|range| range.after = range.after.max(last));
    }
    ranges.retain(|range| range.after.0 < range.end);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(text: &str) -> Snapshot {
        Snapshot::parse(text, 0).unwrap()
    }

    fn parts(old: &str, new: Option<&str>, last: Option<Spot>) -> Vec<(Spot, i64)> {
        let new = new.map(snapshot);
        ranges(&snapshot(old), new.as_ref(), last).iter().map(|range| (range.after, range.end)).collect()
    }

    #[test]
    fn a_snapshot_is_read_and_shifted() {
        assert_eq!(snapshot("10:20:10,14"), Snapshot { end: 20, running: vec![10, 14] });
        assert_eq!(Snapshot::parse("10:10:", 5), Some(Snapshot { end: 15, running: vec![] }));
        for text in ["", "10", "10:x:", "10:20:a", "10:20"] {
            assert_eq!(Snapshot::parse(text, 0), None, "{text}");
        }
    }

    #[test]
    fn a_position_speaks_only_of_numbers_that_last() {
        let (old, seen) = (snapshot("3:8:3,5"), snapshot("5:20:5,11,15"));
        assert_eq!(seen.known(&old, 12), Snapshot { end: 13, running: vec![5, 11] });
        assert_eq!(seen.known(&old, 4), Snapshot { end: 8, running: vec![5] });
        assert_eq!(seen.known(&old, i64::MAX), seen);
        assert_eq!(old.without_ended(&seen), Snapshot { end: 8, running: vec![5] });
    }

    #[test]
    fn what_commits_late_is_part_of_a_later_window() {
        assert_eq!(parts("5:9:5,7", None, None), [((5, -1), 6), ((7, -1), 8), ((9, -1), i64::MAX)]);
        assert_eq!(parts("5:9:5,7", Some("7:12:7"), None), [((5, -1), 6), ((9, -1), 12)]);
    }

    #[test]
    fn what_still_runs_is_left_for_later() {
        assert_eq!(parts("9:9:", Some("9:14:9,11,12"), None), [((10, -1), 11), ((13, -1), 14)]);
        assert_eq!(parts("9:9:", Some("9:10:9"), None), []);
    }

    #[test]
    fn a_window_goes_on_after_the_last_that_was_taken() {
        let rest = |last| parts("5:9:5,7", Some("20:20:"), Some(last));
        assert_eq!(rest((5, 3)), [((5, 3), 6), ((7, -1), 8), ((9, -1), 20)]);
        assert_eq!(rest((7, 0)), [((7, 0), 8), ((9, -1), 20)]);
        assert_eq!(rest((12, 4)), [((12, 4), 20)]);
    }

    /// For any two snapshots: a transaction lies in the window between them exactly if the later snapshot has
    /// it and the earlier one does not.
    #[test]
    fn windows_hold_what_is_new_and_nothing_else() {
        let all = ["3:3:", "3:6:3,5", "3:9:3,8", "4:9:5,8", "9:9:", "8:12:8,10"].map(snapshot);
        for (i, old) in all.iter().enumerate() {
            for new in &all[i..] {
                let ranges = ranges(old, Some(new), None);
                for xid in 0..15 {
                    let held = ranges.iter().any(|range| range.after < (xid, 0) && xid < range.end);
                    assert_eq!(held, new.has(xid) && !old.has(xid), "{xid} between {old:?} and {new:?}");
                }
                assert!(ranges.windows(2).all(|pair| pair[0].end <= pair[1].after.0), "{ranges:?}");
            }
        }
    }
}
