//! Schedules: stores those of a topic in the ledger, and pushes their ticks.
//!
//! The worker that maintains a topic pushes the ticks that are due by its wall clock. It appends first, and
//! then stores how far it has come. A crash in between loses no tick: the tick is appended again, under the
//! same id.

use std::time::Duration;

use bytes::Bytes;
use sawmill_engine::fault;
use sawmill_engine::model::{MessageId, Missed, Push, Schedule, Timing, Topic};
use sawmill_engine::runtime::{Moment, Timestamp};
use sawmill_engine::storage::{Commit, EntryKey, Record};
use sawmill_engine::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use super::{Cell, CellValue, Edit, Store, json_cell};

/// How often the maintaining worker lists the schedules of a topic.
const LIST_EVERY: Duration = Duration::from_secs(3);

/// A schedule of a topic, and how far it has come; returned by
/// [`Sawmill::schedules`](crate::Sawmill::schedules).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Scheduled {
    /// The schedule.
    pub schedule: Schedule,
    /// All ticks up to this time are dealt with. At first, the time when the schedule was added.
    pub last: Timestamp,
}

impl Scheduled {
    /// Returns the next tick, if there is one. A tick in the past was missed, and is dealt with once the
    /// topic has a worker.
    pub fn next(&self) -> Option<Timestamp> {
        self.schedule.next(self.last)
    }
}

/// A schedule as the ledger stores it, readable for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredSchedule {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
    payload: StoredBytes,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<StoredBytes>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, StoredBytes)>,
    missed: Missed,
    last: Timestamp,
    /// A removed schedule keeps its entry, because keys of the ledger are never used again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

/// Bytes as JSON stores them: as text if they are UTF-8, otherwise as numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredBytes {
    Text(String),
    Bytes(Vec<u8>),
}

impl StoredBytes {
    fn new(bytes: &Bytes) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Self::Text(text.to_owned()),
            Err(_) => Self::Bytes(bytes.to_vec()),
        }
    }

    fn bytes(&self) -> Bytes {
        match self {
            Self::Text(text) => text.clone().into(),
            Self::Bytes(bytes) => bytes.clone().into(),
        }
    }
}

json_cell!(shared StoredSchedule);

impl StoredSchedule {
    fn new(schedule: &Schedule, last: Timestamp) -> Self {
        let (cron, zone, every_ms) = match &schedule.timing {
            Timing::Cron { expression, zone, .. } => (Some(expression.clone()), Some(zone.clone()), None),
            Timing::Every(period) => (None, None, Some(period.as_millis() as u64)),
        };
        let message = &schedule.message;
        let header = |(name, value): (&str, &Bytes)| (name.to_owned(), StoredBytes::new(value));
        Self {
            cron,
            zone,
            every_ms,
            payload: StoredBytes::new(&message.payload),
            key: message.key.as_ref().map(StoredBytes::new),
            headers: message.headers.iter().map(header).collect(),
            missed: schedule.missed,
            last,
            removed: false,
        }
    }

    fn same_timing(&self, other: &Self) -> bool {
        (&self.cron, &self.zone, self.every_ms) == (&other.cron, &other.zone, other.every_ms)
    }

    /// Returns the schedule and how far it has come; `None` if it was removed.
    fn scheduled(&self, key: &EntryKey) -> Result<Option<Scheduled>> {
        if self.removed {
            return Ok(None);
        }
        let timing = match (&self.cron, &self.zone, self.every_ms) {
            (Some(cron), Some(zone), None) => Timing::cron(cron.clone(), zone.clone())?,
            (None, None, Some(millis)) => Timing::every(Duration::from_millis(millis))?,
            _ => {
                let what = format!(
                    "ledger entry {key} does not say when its schedule ticks: add the schedule again"
                );
                return Err(Error::new(ErrorKind::Corrupt, what));
            }
        };
        let mut message = Push::new(self.payload.bytes());
        message.key = self.key.as_ref().map(StoredBytes::bytes);
        message.headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.bytes())).collect();
        let schedule = Schedule::new(key.last().to_owned(), timing)?.message(message).missed(self.missed);
        Ok(Some(Scheduled { schedule, last: self.last }))
    }
}

/// Adds a schedule to a topic, or replaces the one with the same name.
pub(crate) async fn add(store: &Store, topic: &str, schedule: Schedule) -> Result<()> {
    let topic = store.find_topic(topic).await?;
    schedule.check()?;
    // Refuse a schedule whose message could not be pushed.
    store.check(schedule.message.clone(), MessageId::from_u128(0), store.env().wall())?;
    let cell = Cell::<StoredSchedule>::new(store, EntryKey::schedule(&topic, schedule.name()));
    cell.edit(|old, _| {
        let now = store.env().wall();
        let mut new = StoredSchedule::new(&schedule, now);
        match &old {
            Some(old) if !old.removed && old.same_timing(&new) => new.last = old.last,
            Some(old) => new.last = old.last.max(now),
            None => {}
        }
        match old.as_ref() == Some(&new) {
            true => Ok(Edit::Keep(())),
            false => Ok(Edit::Write(new, ())),
        }
    })
    .await
}

/// Lists the schedules of a topic, by name.
pub(crate) async fn list(store: &Store, topic: &str) -> Result<Vec<Scheduled>> {
    let topic = store.find_topic(topic).await?;
    let mut schedules = Vec::new();
    for entry in store.ledger().list(&EntryKey::schedules(&topic)).await? {
        schedules.extend(StoredSchedule::decode(store, &entry)?.scheduled(&entry.key)?);
    }
    Ok(schedules)
}

/// Removes a schedule. Returns false if there is none with this name.
pub(crate) async fn remove(store: &Store, topic: &str, name: &str) -> Result<bool> {
    let topic = store.find_topic(topic).await?;
    let cell = Cell::<StoredSchedule>::new(store, EntryKey::schedule(&topic, name));
    cell.edit(|stored, in_doubt| match stored {
        None => Ok(Edit::Keep(false)),
        Some(stored) if stored.removed => Ok(Edit::Keep(in_doubt)),
        Some(stored) => Ok(Edit::Write(StoredSchedule { removed: true, ..stored }, true)),
    })
    .await
}

/// The schedules of a topic, as the worker that maintains it knows them.
#[derive(Default)]
pub(crate) struct Timetable {
    known: Vec<(EntryKey, Scheduled)>,
    list_at: Moment,
}

impl Timetable {
    /// Pushes the ticks that are due, and returns the time of the next one.
    pub(crate) async fn push_due_ticks(&mut self, store: &Store, topic: &Topic) -> Result<Option<Timestamp>> {
        let now = store.env().now();
        if now >= self.list_at {
            self.list(store, topic).await?;
            self.list_at = now + store.env().rng().jitter(LIST_EVERY);
        }
        let mut next: Option<Timestamp> = None;
        let mut gone = Vec::new();
        for (key, known) in &mut self.known {
            let is_due = known.next().is_some_and(|tick| tick <= store.env().wall());
            if is_due {
                match push_due(store, topic, key).await? {
                    Pushed::UpTo(scheduled) => *known = *scheduled,
                    Pushed::Removed => gone.push(key.clone()),
                    // Another worker changed the entry, or the outcome is unknown: the next round tries
                    // again.
                    Pushed::Unsure => continue,
                }
            }
            next = [next, known.next()].into_iter().flatten().min();
        }
        self.known.retain(|(key, _)| !gone.contains(key));
        Ok(next)
    }

    async fn list(&mut self, store: &Store, topic: &Topic) -> Result<()> {
        let entries = store.ledger().list(&EntryKey::schedules(topic)).await?;
        self.known.clear();
        for entry in entries {
            match StoredSchedule::decode(store, &entry).and_then(|stored| stored.scheduled(&entry.key)) {
                Ok(scheduled) => self.known.extend(scheduled.map(|scheduled| (entry.key, scheduled))),
                // One broken schedule must not hold up the others.
                Err(error) => tracing::error!(%error, key = %entry.key, "a schedule is left out"),
            }
        }
        Ok(())
    }
}

enum Pushed {
    UpTo(Box<Scheduled>),
    Removed,
    Unsure,
}

/// Pushes the due ticks of a schedule, and stores how far it has come.
async fn push_due(store: &Store, topic: &Topic, key: &EntryKey) -> Result<Pushed> {
    let cell = Cell::<StoredSchedule>::new(store, key.clone());
    let Some((version, stored)) = cell.read_versioned().await? else { return Ok(Pushed::Removed) };
    let Some(mut scheduled) = stored.scheduled(key)? else { return Ok(Pushed::Removed) };
    let now = store.env().wall();
    let due = scheduled.schedule.due(scheduled.last, now);
    if due.last == scheduled.last {
        return Ok(Pushed::UpTo(Box::new(scheduled)));
    }
    let mut records = Vec::new();
    for tick in &due.ticks {
        let id = match fault!(TickTwice) {
            true => MessageId::from_u128(u128::from(store.env().rng().next_u64())),
            false => scheduled.schedule.id_at(*tick),
        };
        let message = scheduled.schedule.message_at(*tick, id, now)?;
        records.push(Record::repeatable_in(store.log(), topic, message));
    }
    if !records.is_empty() {
        store.log().append(topic, now, records).await?;
    }
    scheduled.last = due.last;
    match cell.replace(Some(version), &mut StoredSchedule { last: due.last, ..stored }).await? {
        Commit::Done(_) => Ok(Pushed::UpTo(Box::new(scheduled))),
        Commit::Conflict | Commit::Unknown => Ok(Pushed::Unsure),
    }
}

#[cfg(test)]
mod tests {
    use sawmill_engine::storage::Entry;

    use super::*;
    use crate::store::{decode_shared_json, encode_json};

    #[test]
    fn a_schedule_is_read_back_from_the_ledger() {
        let key = EntryKey::raw("schedules/t/nightly");
        let message = Push::new(vec![0, 255]).key("k").header("lang", "en");
        for schedule in [
            Schedule::cron("nightly", "0 3 * * *", "Europe/Berlin").unwrap(),
            Schedule::every("nightly", Duration::from_secs(90)).unwrap(),
        ] {
            let schedule = schedule.message(message.clone()).missed(Missed::All);
            let stored = StoredSchedule::new(&schedule, Timestamp::from_millis(7));
            let entry = Entry {
                key: key.clone(),
                version: sawmill_engine::storage::Version(1),
                value: encode_json(&stored),
            };
            assert_eq!(decode_shared_json::<StoredSchedule>(&entry).unwrap(), stored);
            let back = stored.scheduled(&key).unwrap().unwrap();
            assert_eq!((back.schedule.name(), back.schedule.timing()), ("nightly", schedule.timing()));
            assert_eq!((&back.schedule.message, back.schedule.missed), (&message, Missed::All));
            assert_eq!(back.last, Timestamp::from_millis(7));
            let removed = StoredSchedule { removed: true, ..stored };
            assert!(removed.scheduled(&key).unwrap().is_none());
        }
    }

    #[test]
    fn what_is_no_schedule_is_an_error_and_no_panic() {
        let key = EntryKey::raw("schedules/t/nightly");
        for text in ["", "{}", r#"{"payload":{"text":""},"missed":"once","last":1}"#] {
            let value = Bytes::from_static(text.as_bytes());
            let entry = Entry { key: key.clone(), version: sawmill_engine::storage::Version(1), value };
            assert!(
                decode_shared_json::<StoredSchedule>(&entry)
                    .and_then(|stored| stored.scheduled(&key))
                    .is_err(),
                "{text}"
            );
        }
    }
}
