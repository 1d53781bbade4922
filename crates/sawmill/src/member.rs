//! Who is alive, without comparing clocks.
//!
//! Each worker keeps one member entry and beats by writing it anew. Another may declare it dead only after it has itself
//! seen that entry unchanged for a full TTL, on its own steady clock, and does so by deleting the entry with the version it
//! saw: a beat in between makes that fail. The worker, for its part, counts its lease from before a beat was sent, and
//! stops starting messages a good while before the TTL is over.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::claim::is_false;
use crate::clock::{Moment, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::format::Format;
use crate::ledger::{Entry, Version};
use crate::message::MessageId;
use crate::planted::{self, Bug};

/// What a member entry says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Member {
    /// Grows with every beat.
    pub beat: u64,
    /// The topics it works.
    pub topics: Vec<String>,
    /// How many messages it can run at once.
    pub slots: u32,
    /// How long it may be silent, in milliseconds.
    pub ttl_ms: u64,
    /// It works the messages of a key in their order.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ordered: bool,
    /// When it beat, by its own clock. For people alone: nobody decides by it who is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beat_at: Option<Timestamp>,
    /// How much it holds of its group's limits, by the uid of the topic; nothing if it has none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub in_use: BTreeMap<String, InUse>,
    /// The messages it runs that have something to say, not all it runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<Running>,
    /// The newest format that its program understands.
    #[serde(default, skip_serializing_if = "Format::is_first")]
    pub format: Format,
}

/// How much a worker holds of its group's limit on a topic: it never uses more than its entry says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InUse {
    /// How many messages it may run at once, or still runs.
    pub running: u64,
    /// How many messages it may start in a second, in billionths.
    pub rate: u64,
}

impl std::ops::AddAssign for InUse {
    fn add_assign(&mut self, other: Self) {
        self.running = self.running.saturating_add(other.running);
        self.rate = self.rate.saturating_add(other.rate);
    }
}

/// A message that runs, and how far it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Running {
    /// The id that the push returned.
    pub id: MessageId,
    /// The name of the topic it was pushed to.
    pub topic: String,
    /// Since when it runs, by its worker's clock.
    pub since: Timestamp,
    /// What its handler [noted](crate::Context::note) last.
    pub note: String,
}

impl Member {
    /// What an entry says; no panic on whatever is stored there.
    pub fn decode(entry: &Entry) -> Result<Self> {
        serde_json::from_slice(&entry.value).map_err(|error| {
            let what = format!(
                "ledger entry {} cannot be understood; was it written by a newer version?",
                entry.key
            );
            Error::new(ErrorKind::Corrupt, what).caused_by(error)
        })
    }

    /// The value to store.
    pub fn encode(&self) -> Bytes {
        serde_json::to_vec(self).unwrap_or_default().into()
    }
}

/// How long a worker may start messages after sending a beat that was accepted: less than the TTL, because two clocks may
/// run at slightly different speeds.
pub fn lease(ttl: Duration) -> Duration {
    if planted::is(Bug::NoLeaseMargin) { ttl } else { ttl * 4 / 5 }
}

/// How often a worker beats.
pub fn beat_interval(ttl: Duration) -> Duration {
    ttl / 4
}

/// What this worker has seen of the others, and since when.
#[derive(Debug, Default)]
pub struct Sightings {
    seen: BTreeMap<String, Sighting>,
}

/// An entry as it was seen.
#[derive(Debug)]
struct Sighting {
    version: Version,
    /// When it was first seen like this.
    since: Moment,
    /// When it is dead if it stays like this.
    until: Moment,
}

impl Sightings {
    /// Notes the entries as they are at this moment, and returns those that have not changed for a full TTL: each one's
    /// own, or the one given if it says none.
    pub fn look(&mut self, entries: &[Entry], now: Moment, ttl: Duration) -> Vec<Entry> {
        let before = std::mem::take(&mut self.seen);
        let mut silent = Vec::new();
        for entry in entries {
            let since = match before.get(entry.key.as_str()) {
                Some(seen) if seen.version == entry.version => seen.since,
                _ => now,
            };
            let own = Member::decode(entry).ok().filter(|_| !planted::is(Bug::OwnTtlForAll));
            let ttl = own.map_or(ttl, |member| Duration::from_millis(member.ttl_ms));
            let ttl = match () {
                () if planted::is(Bug::HastyDeath) => ttl / 2,
                () if planted::is(Bug::SlowDeath) => ttl * 2 + Duration::from_secs(4),
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

    /// When the first of them is dead, if it stays silent: looking again earlier tells nothing about that.
    pub fn first_death(&self) -> Option<Moment> {
        self.seen.values().map(|seen| seen.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::EntryKey;

    const TTL: Duration = Duration::from_secs(10);

    fn entry(name: &str, version: u64) -> Entry {
        Entry { key: EntryKey::raw(name), version: Version(version), value: Bytes::new() }
    }

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    #[test]
    fn g1_only_a_full_ttl_of_silence_seen_with_own_eyes_counts() {
        let mut sightings = Sightings::default();
        assert!(sightings.look(&[entry("a", 1)], at(100), TTL).is_empty());
        assert!(sightings.look(&[entry("a", 1)], at(109), TTL).is_empty());
        assert_eq!(sightings.look(&[entry("a", 1)], at(110), TTL), [entry("a", 1)]);
    }

    #[test]
    fn a_beat_starts_the_count_anew() {
        let mut sightings = Sightings::default();
        sightings.look(&[entry("a", 1)], at(0), TTL);
        sightings.look(&[entry("a", 2)], at(9), TTL);
        assert!(sightings.look(&[entry("a", 2)], at(18), TTL).is_empty());
        assert_eq!(sightings.look(&[entry("a", 2)], at(19), TTL).len(), 1);
    }

    #[test]
    fn each_is_judged_by_its_own_ttl() {
        let slow = Member { beat: 1, slots: 1, ttl_ms: 60_000, ..Member::default() };
        let entry = Entry { value: slow.encode(), ..entry("a", 1) };
        let mut sightings = Sightings::default();
        sightings.look(std::slice::from_ref(&entry), at(0), TTL);
        assert!(sightings.look(std::slice::from_ref(&entry), at(59), TTL).is_empty());
        assert_eq!(sightings.look(std::slice::from_ref(&entry), at(60), TTL).len(), 1);
    }

    #[test]
    fn what_runs_is_read_back_and_need_not_be_there() {
        let old: Member = serde_json::from_str(r#"{"beat":1,"topics":[],"slots":1,"ttl_ms":5}"#).unwrap();
        assert!(!String::from_utf8_lossy(&old.encode()).contains("running"));
        let (id, topic, note) = (MessageId::from_u128(7), "t".to_owned(), "half".to_owned());
        let running = vec![Running { id, topic, since: Timestamp::from_millis(5), note }];
        let new = Member { running, ..old };
        assert_eq!(Member::decode(&Entry { value: new.encode(), ..entry("a", 1) }).unwrap(), new);
    }

    #[test]
    fn the_first_death_is_that_of_the_one_silent_for_longest() {
        let mut sightings = Sightings::default();
        assert_eq!(sightings.first_death(), None);
        sightings.look(&[entry("a", 1), entry("b", 1)], at(0), TTL);
        sightings.look(&[entry("a", 2), entry("b", 1)], at(3), TTL);
        assert_eq!(sightings.first_death(), Some(at(10)));
        sightings.look(&[entry("a", 2)], at(4), TTL);
        assert_eq!(sightings.first_death(), Some(at(13)));
    }

    #[test]
    fn one_that_went_and_came_back_is_new() {
        let mut sightings = Sightings::default();
        sightings.look(&[entry("a", 1)], at(0), TTL);
        sightings.look(&[], at(5), TTL);
        assert!(sightings.look(&[entry("a", 1)], at(11), TTL).is_empty());
    }

    #[test]
    fn the_lease_ends_before_anyone_may_declare_death() {
        assert!(lease(TTL) < TTL);
        assert!(beat_interval(TTL) * 2 < lease(TTL), "a lost beat does not end the lease");
    }
}
