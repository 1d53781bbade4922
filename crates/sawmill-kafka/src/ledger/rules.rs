//! The rules of the coordination topic: how the order of its records decides which writer may change an
//! entry. They are pure functions; `model_tests.rs` checks them against every history within its bounds.
//!
//! A compacted topic has no compare-and-set, but it has one order that all readers see. A writer sends a
//! *bid*: a record that asks to be the next version of an entry. The first bid for a version wins; later ones
//! for the same version lose. The writer reads up to its own bid to learn the outcome.
//!
//! **Every bid has its own record key**, so compaction alone hides nothing; records that are no longer needed
//! are removed by key. If the entry were the key, a losing bid would hide the winner. If (entry, writer) were
//! the key, a bid that is repeated after an unknown outcome would hide the first one, which may have won.
//!
//! **What may be removed.** A lost bid, at any time; a won bid, once a later version has won. No other bid
//! uses its key, so a late or repeated removal is harmless.
//!
//! **A deleted entry** has a last version that marks the deletion. If it were removed too early, a bid
//! delayed for a long time would win and bring the entry back. So a bid carries the broker's time of the last
//! record its writer had read, and is *void* for every reader if it arrives more than
//! [`max_delay`](Table::new) later. Once a last version is older than that, every bid that is not void comes
//! from a writer that has read it. No two clocks are compared: all times are the broker's.
//!
//! **What a reader must do.** Compaction may remove a bid that a reader has not reached, once the bid that
//! replaced it is written. So a reader knows an entry only after reading to an end that was asked for after
//! the call began. Compaction leaves young records alone (`min.compaction.lag.ms`) for longer than any call
//! takes, so records after that end hide nothing.

use std::collections::BTreeMap;

/// A record of the coordination topic. `K` names entries, `R` identifies bids.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Operation<K, R, V> {
    /// Asks to change an entry.
    Bid(Bid<K, R, V>),
    /// Removes a bid that is no longer needed.
    Removed {
        /// The entry.
        entry: K,
        /// The bid to remove.
        id: R,
    },
}

/// A request to change an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Bid<K, R, V> {
    /// The entry.
    pub(crate) entry: K,
    /// The unique id of this bid.
    pub(crate) id: R,
    /// The version to become: one more than the version it replaces.
    pub(crate) version: u64,
    /// The broker's time of the last record that the writer had read.
    pub(crate) seen: u64,
    /// The new value; `None` to delete the entry.
    pub(crate) value: Option<V>,
}

/// The outcome of a bid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BidOutcome {
    /// It is now the entry's version.
    Won,
    /// Another bid was first.
    Lost,
    /// It was on its way for too long.
    Void,
}

/// The decision whether a writer may bid, given the records it has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum BidCheck {
    /// It may bid for this version.
    Bid(u64),
    /// The entry does not have the expected version, and never will again.
    Conflict,
    /// The entry does not have the expected version, but the reader may be behind. After reading to the end:
    /// a conflict.
    MaybeBehind,
}

/// The state after a prefix of the records.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Table<K, R, V> {
    entries: BTreeMap<K, EntryState<R, V>>,
    /// Bids that are no longer needed, with the time of each.
    garbage: BTreeMap<K, BTreeMap<R, u64>>,
    /// The time of the last record.
    now: u64,
    /// How long a bid may be on its way.
    max_delay: u64,
}

/// The last version of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EntryState<R, V> {
    /// The version.
    pub(crate) version: u64,
    /// The bid that won it.
    pub(crate) id: R,
    /// The value; `None` if the entry was deleted.
    pub(crate) value: Option<V>,
    /// When it was written.
    pub(crate) time: u64,
}

impl<K: Ord + Clone, R: Ord + Clone, V> Table<K, R, V> {
    /// Returns the state before the first record. A bid is void if it arrives more than `max_delay` after the
    /// last record that its writer had read.
    pub(crate) fn new(max_delay: u64) -> Self {
        Self { entries: BTreeMap::new(), garbage: BTreeMap::new(), now: 0, max_delay }
    }

    /// Applies the next record, written at this time. For a bid, returns its outcome and the version it
    /// replaced.
    pub(crate) fn apply(
        &mut self,
        time: u64,
        operation: Operation<K, R, V>,
    ) -> Option<(BidOutcome, Option<EntryState<R, V>>)> {
        // A broker's clock may be set back a little.
        self.now = self.now.max(time);
        match operation {
            Operation::Bid(bid) => Some(self.decide(time, bid)),
            Operation::Removed { entry, id } => {
                if self.entries.get(&entry).is_some_and(|current| current.id == id) {
                    self.entries.remove(&entry);
                }
                if let Some(bids) = self.garbage.get_mut(&entry) {
                    bids.remove(&id);
                    if bids.is_empty() {
                        self.garbage.remove(&entry);
                    }
                }
                None
            }
        }
    }

    fn decide(&mut self, time: u64, bid: Bid<K, R, V>) -> (BidOutcome, Option<EntryState<R, V>>) {
        let Bid { entry, id, version, seen, value } = bid;
        let current = self.entries.get(&entry);
        let outcome = match current {
            _ if time.saturating_sub(seen) > self.max_delay => BidOutcome::Void,
            // The version that a bid replaces may be compacted away, so any higher version wins.
            Some(current) if current.version >= version => BidOutcome::Lost,
            _ => BidOutcome::Won,
        };
        if outcome != BidOutcome::Won {
            // Unless it is the winner itself, read twice.
            if current.is_none_or(|current| current.id != id) {
                self.garbage.entry(entry).or_default().insert(id, time);
            }
            return (outcome, None);
        }
        let replaced = self.entries.insert(entry.clone(), EntryState { version, id, value, time });
        if let Some(replaced) = &replaced {
            self.garbage.entry(entry).or_default().insert(replaced.id.clone(), replaced.time);
        }
        (BidOutcome::Won, replaced)
    }

    /// Returns the entry's last version, even if it marks a deletion.
    pub(crate) fn get(&self, entry: &K) -> Option<&EntryState<R, V>> {
        self.entries.get(entry)
    }

    /// Returns all entries from this one on.
    pub(crate) fn range_from(&self, entry: &K) -> impl Iterator<Item = (&K, &EntryState<R, V>)> {
        self.entries.range(entry.clone()..)
    }

    /// Returns the time of the last record, which a bid states as seen.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// Checks whether a writer may bid that expects this version; `None` means no entry.
    pub(crate) fn check_bid(&self, entry: &K, expect: Option<u64>) -> BidCheck {
        match (self.entries.get(entry), expect) {
            (None, None) => BidCheck::Bid(1),
            (Some(current), Some(expect)) if current.value.is_some() && current.version == expect => {
                BidCheck::Bid(expect.saturating_add(1))
            }
            // The expected version was replaced or deleted; neither comes back.
            (Some(current), Some(expect)) if current.version >= expect => BidCheck::Conflict,
            (Some(_), None) => BidCheck::Conflict,
            (_, Some(_)) => BidCheck::MaybeBehind,
        }
    }

    /// Returns at most `most` bids that can be removed: unneeded ones at least `age` old, and last versions
    /// of deleted entries that have no other bids left and that no valid bid can precede.
    pub(crate) fn garbage(&self, age: u64, most: usize) -> Vec<(K, R)> {
        let all = self
            .garbage
            .iter()
            .flat_map(|(entry, bids)| bids.iter().map(move |(id, time)| (entry, id, time)));
        let old = all.filter(|(_, _, time)| self.now.saturating_sub(**time) >= age);
        let old = old.map(|(entry, id, _)| (entry.clone(), id.clone()));
        let forgotten = self.entries.iter().filter(|(entry, current)| {
            current.value.is_none()
                && self.now.saturating_sub(current.time) > self.max_delay
                && !self.garbage.contains_key(*entry)
        });
        let forgotten = forgotten.map(|(entry, current)| (entry.clone(), current.id.clone()));
        old.chain(forgotten).take(most).collect()
    }
}
