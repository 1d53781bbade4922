//! The rules of the coordination topic: how one order of records decides who may change an entry. They are pure, and the model
//! beside this file tries every history of them.
//!
//! A compacted topic has no compare-and-set, but it has one order that all readers see. A writer sends a *bid*: a record that asks
//! to be the next version of an entry. The first bid for a version wins, and a later one for the same version loses.
//! Who has bid reads up to their own record, and knows.
//!
//! **Every bid has a record key of its own**, so that compaction hides nothing by itself: what is not needed any more is removed
//! by name. With the entry as the key, a losing bid would hide the winner. With (entry, writer), a bid that is sent
//! again because nobody knew what had become of it would hide the first one, which may have won.
//!
//! **What may be removed.** A bid that has lost, at any time. A bid that has won, when a later version has won. Nobody bids with its key
//! again, so that a removal that comes late, or twice, does no harm.
//!
//! **A deleted entry** has a last version that says so. If that were removed too early, a bid that was on its way for a long time
//! would find nothing in its way, and bring the entry back. So a bid says how far its writer had read, by the broker's own time, and is *void*
//! for everyone if it arrives more than [`LATEST`](Table::new) later. When a last version is older than that, whoever bids has read
//! it. No two clocks are compared: all times are the broker's.
//!
//! **What a reader must do.** Compaction may remove a bid that a reader has not come to, after the one that replaced it was written: so
//! a reader knows an entry only when it has come to an end that was asked for after it was called. Compaction leaves
//! young records alone (`min.compaction.lag.ms`), for longer than any call takes: so nothing is hidden by records after that end.

use std::collections::BTreeMap;

/// A record of the coordination topic. `K` names entries, `R` tells the bids for an entry apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Line<K, R, V> {
    /// A writer asks to change an entry.
    Bid(Bid<K, R, V>),
    /// A bid is not needed any more.
    Removed {
        /// The entry.
        entry: K,
        /// Which bid.
        id: R,
    },
}

/// The wish to change an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Bid<K, R, V> {
    /// The entry.
    pub(crate) entry: K,
    /// Tells this bid from all others.
    pub(crate) id: R,
    /// The version that it wants to be: one more than the one that it replaces.
    pub(crate) version: u64,
    /// The time, by the broker, of the last record that the writer had read.
    pub(crate) seen: u64,
    /// The new value; none if the entry is to be deleted.
    pub(crate) value: Option<V>,
}

/// What became of a bid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Fate {
    /// It is the entry's version now.
    Won,
    /// Another was first.
    Lost,
    /// It was on its way for too long.
    Void,
}

/// What a writer may do, by what it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum May {
    /// Bid for this version.
    Bid(u64),
    /// Nothing: the entry is not as expected, and never will be again.
    Never,
    /// The entry is not as expected, by a reader who may be behind. If it has read to the end: nothing.
    NotYet,
}

/// What a reader knows after some records, in their order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Table<K, R, V> {
    entries: BTreeMap<K, Standing<R, V>>,
    /// Bids that are not needed, and the time of each.
    litter: BTreeMap<K, BTreeMap<R, u64>>,
    /// The time of the last record.
    now: u64,
    /// How long a bid may be on its way.
    latest: u64,
}

/// The last version of an entry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Standing<R, V> {
    /// The version.
    pub(crate) version: u64,
    /// The bid that won it.
    pub(crate) id: R,
    /// The value; none if the entry was deleted.
    pub(crate) value: Option<V>,
    /// When it was written.
    pub(crate) time: u64,
}

impl<K: Ord + Clone, R: Ord + Clone, V> Table<K, R, V> {
    /// What is known before the first record. A bid is void that comes more than `latest` after what its writer had read.
    pub(crate) fn new(latest: u64) -> Self {
        Self { entries: BTreeMap::new(), litter: BTreeMap::new(), now: 0, latest }
    }

    /// Takes the next record, written at this time. Of a bid it says what became of it, and what it replaced.
    pub(crate) fn apply(&mut self, time: u64, line: Line<K, R, V>) -> Option<(Fate, Option<Standing<R, V>>)> {
        // A broker's clock may be set back a little.
        self.now = self.now.max(time);
        match line {
            Line::Bid(bid) => Some(self.decide(time, bid)),
            Line::Removed { entry, id } => {
                if self.entries.get(&entry).is_some_and(|standing| standing.id == id) {
                    self.entries.remove(&entry);
                }
                if let Some(bids) = self.litter.get_mut(&entry) {
                    bids.remove(&id);
                    if bids.is_empty() {
                        self.litter.remove(&entry);
                    }
                }
                None
            }
        }
    }

    fn decide(&mut self, time: u64, bid: Bid<K, R, V>) -> (Fate, Option<Standing<R, V>>) {
        let Bid { entry, id, version, seen, value } = bid;
        let standing = self.entries.get(&entry);
        let fate = match standing {
            _ if time.saturating_sub(seen) > self.latest => Fate::Void,
            // What a bid replaces may be compacted away: a higher version is enough.
            Some(standing) if standing.version >= version => Fate::Lost,
            _ => Fate::Won,
        };
        if fate != Fate::Won {
            // The winner itself, read twice.
            if standing.is_none_or(|standing| standing.id != id) {
                self.litter.entry(entry).or_default().insert(id, time);
            }
            return (fate, None);
        }
        let replaced = self.entries.insert(entry.clone(), Standing { version, id, value, time });
        if let Some(replaced) = &replaced {
            self.litter.entry(entry).or_default().insert(replaced.id.clone(), replaced.time);
        }
        (Fate::Won, replaced)
    }

    /// The entry's last version, also if that says that it was deleted.
    pub(crate) fn standing(&self, entry: &K) -> Option<&Standing<R, V>> {
        self.entries.get(entry)
    }

    /// All of them, from this entry on.
    pub(crate) fn from(&self, entry: &K) -> impl Iterator<Item = (&K, &Standing<R, V>)> {
        self.entries.range(entry.clone()..)
    }

    /// The time of the last record: what a bid is to say that its writer has seen.
    pub(crate) fn now(&self) -> u64 {
        self.now
    }

    /// What a writer may do that expects this version, or no entry.
    pub(crate) fn may(&self, entry: &K, expect: Option<u64>) -> May {
        match (self.entries.get(entry), expect) {
            (None, None) => May::Bid(1),
            (Some(standing), Some(expect)) if standing.value.is_some() && standing.version == expect => {
                May::Bid(expect.saturating_add(1))
            }
            // A version that was there is there no more. One that is deleted does not come back.
            (Some(standing), Some(expect)) if standing.version >= expect => May::Never,
            (Some(_), None) => May::Never,
            (_, Some(_)) => May::NotYet,
        }
    }

    /// Bids that can be removed, at most so many: those that are `age` old, and the last versions of deleted entries of which
    /// nothing else is left and which nobody can miss any more.
    pub(crate) fn litter(&self, age: u64, most: usize) -> Vec<(K, R)> {
        let all =
            self.litter.iter().flat_map(|(entry, bids)| bids.iter().map(move |(id, time)| (entry, id, time)));
        let old = all.filter(|(_, _, time)| self.now.saturating_sub(**time) >= age);
        let old = old.map(|(entry, id, _)| (entry.clone(), id.clone()));
        let forgotten = self.entries.iter().filter(|(entry, standing)| {
            standing.value.is_none()
                && self.now.saturating_sub(standing.time) > self.latest
                && !self.litter.contains_key(*entry)
        });
        let forgotten = forgotten.map(|(entry, standing)| (entry.clone(), standing.id.clone()));
        old.chain(forgotten).take(most).collect()
    }
}
