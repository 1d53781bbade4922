//! Liveness: finds silent members and removes them.
//!
//! A member may be declared dead only by a process that has seen its entry unchanged for a full TTL, by its
//! own monotonic clock; see [`Member`]. To declare it dead, its entry is deleted on condition of the seen
//! version, so a heartbeat in between makes the deletion fail.

use std::collections::BTreeMap;
use std::time::Duration;

use sawmill_engine::Result;
use sawmill_engine::fault;
use sawmill_engine::model::Member;
use sawmill_engine::runtime::Moment;
use sawmill_engine::storage::{Commit, Entry, EntryKey, Version, Write};

use super::Store;
use crate::telemetry;

/// The versions of member entries, and since when they were seen unchanged.
#[derive(Debug, Default)]
pub(crate) struct LivenessTracker {
    seen: BTreeMap<String, Sighting>,
}

/// An entry as it was seen.
#[derive(Debug)]
struct Sighting {
    version: Version,
    /// When this version was first seen.
    since: Moment,
    /// When the member counts as dead, if the version stays.
    until: Moment,
}

impl LivenessTracker {
    /// Records the entries as they are at this moment, and returns those unchanged for a full TTL: their own,
    /// or `ttl` for entries that cannot be decoded.
    pub(crate) fn observe(&mut self, entries: &[Entry], now: Moment, ttl: Duration) -> Vec<Entry> {
        let before = std::mem::take(&mut self.seen);
        let mut silent = Vec::new();
        for entry in entries {
            let since = match before.get(entry.key.as_str()) {
                Some(seen) if seen.version == entry.version => seen.since,
                _ => now,
            };
            let own = Member::decode(&entry.key, &entry.value).ok().filter(|_| !fault!(OwnTtlForAll));
            let ttl = own.map_or(ttl, |member| Duration::from_millis(member.ttl_ms));
            let ttl = match () {
                () if fault!(HastyDeath) => ttl / 2,
                () if fault!(SlowDeath) => ttl * 2 + Duration::from_secs(4),
                () => ttl,
            };
            if now.since(since) >= ttl {
                silent.push(entry.clone());
            }
            let seen = Sighting { version: entry.version, since, until: since + ttl };
            self.seen.insert(entry.key.as_str().to_owned(), seen);
        }
        silent
    }

    /// Returns when the first member counts as dead, if it stays silent. There is no need to observe earlier.
    pub(crate) fn first_death(&self) -> Option<Moment> {
        self.seen.values().map(|seen| seen.until).min()
    }
}

/// Observes member entries, and declares members dead that were silent for their TTL. Returns the keys of the
/// dead.
pub(crate) async fn remove_silent(
    store: &Store,
    tracker: &mut LivenessTracker,
    members: &[Entry],
    ttl: Duration,
) -> Result<Vec<EntryKey>> {
    let ledger = store.ledger();
    let mut removed = Vec::new();
    for silent in tracker.observe(members, store.env().now(), ttl) {
        let expect = match fault!(UncheckedDeath) {
            true => ledger.get(&silent.key).await?.map(|entry| entry.version),
            false => Some(silent.version),
        };
        // After a conflict the member is alive. After an unknown outcome it is observed again.
        let write = Write { key: silent.key.clone(), expect, value: None };
        if let Commit::Done(_) = ledger.commit(write).await? {
            telemetry::declared_dead(store.events(), &silent.key);
            removed.push(silent.key);
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn entry(name: &str, version: u64) -> Entry {
        Entry { key: EntryKey::raw(name), version: Version(version), value: Bytes::new() }
    }

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    #[test]
    fn g1_only_a_full_ttl_of_silence_seen_with_own_eyes_counts() {
        let mut tracker = LivenessTracker::default();
        assert!(tracker.observe(&[entry("a", 1)], at(100), TTL).is_empty());
        assert!(tracker.observe(&[entry("a", 1)], at(109), TTL).is_empty());
        assert_eq!(tracker.observe(&[entry("a", 1)], at(110), TTL), [entry("a", 1)]);
    }

    #[test]
    fn a_beat_starts_the_count_anew() {
        let mut tracker = LivenessTracker::default();
        tracker.observe(&[entry("a", 1)], at(0), TTL);
        tracker.observe(&[entry("a", 2)], at(9), TTL);
        assert!(tracker.observe(&[entry("a", 2)], at(18), TTL).is_empty());
        assert_eq!(tracker.observe(&[entry("a", 2)], at(19), TTL).len(), 1);
    }

    #[test]
    fn each_is_judged_by_its_own_ttl() {
        let slow = Member { beat: 1, slots: 1, ttl_ms: 60_000, ..Member::default() };
        let entry = Entry { value: slow.encode(), ..entry("a", 1) };
        let mut tracker = LivenessTracker::default();
        tracker.observe(std::slice::from_ref(&entry), at(0), TTL);
        assert!(tracker.observe(std::slice::from_ref(&entry), at(59), TTL).is_empty());
        assert_eq!(tracker.observe(std::slice::from_ref(&entry), at(60), TTL).len(), 1);
    }

    #[test]
    fn the_first_death_is_that_of_the_one_silent_for_longest() {
        let mut tracker = LivenessTracker::default();
        assert_eq!(tracker.first_death(), None);
        tracker.observe(&[entry("a", 1), entry("b", 1)], at(0), TTL);
        tracker.observe(&[entry("a", 2), entry("b", 1)], at(3), TTL);
        assert_eq!(tracker.first_death(), Some(at(10)));
        tracker.observe(&[entry("a", 2)], at(4), TTL);
        assert_eq!(tracker.first_death(), Some(at(13)));
    }

    #[test]
    fn one_that_went_and_came_back_is_new() {
        let mut tracker = LivenessTracker::default();
        tracker.observe(&[entry("a", 1)], at(0), TTL);
        tracker.observe(&[], at(5), TTL);
        assert!(tracker.observe(&[entry("a", 1)], at(11), TTL).is_empty());
    }
}
