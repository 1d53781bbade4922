//! The timetable: a topic's schedules, as they are kept in the ledger, and their ticks, as they are pushed.
//!
//! The worker that tends a topic pushes what is due by its wall clock. It appends first and then notes up to where all is
//! dealt with, so that a crash in between loses no tick; the tick is appended again then, under the same id.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::clock::{Moment, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::format;
use crate::ledger::{Commit, Entry, EntryKey, Write};
use crate::log::Record;
use crate::message::{MessageId, Push};
use crate::mill::Sawmill;
use crate::planted::{self, Bug};
use crate::schedule::{Missed, Schedule, Timing};
use crate::topic::Topic;

/// How often the schedules of a topic are listed.
const LIST_EVERY: Duration = Duration::from_secs(3);
/// The pause before a write is tried again that somebody else was faster with.
const PAUSE: Duration = Duration::from_millis(10);

/// A schedule of a topic, and how far it has come.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Scheduled {
    /// The schedule.
    pub schedule: Schedule,
    /// Up to here all ticks are dealt with; at first, when it was added.
    pub last: Timestamp,
}

impl Scheduled {
    /// The next tick. One that has passed was missed, and is dealt with when a worker is there.
    pub fn next(&self) -> Option<Timestamp> {
        self.schedule.next(self.last)
    }
}

/// A schedule as it is kept in the ledger, for a person to read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cron: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    every_ms: Option<u64>,
    payload: Written,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Written>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    headers: Vec<(String, Written)>,
    missed: Missed,
    last: Timestamp,
    /// The name stays: a key of the ledger is never used again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    removed: bool,
}

/// Bytes as they are written in JSON: as text if they are text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Written {
    Text(String),
    Bytes(Vec<u8>),
}

impl Written {
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

impl Stored {
    fn new(schedule: &Schedule, last: Timestamp) -> Self {
        let (cron, zone, every_ms) = match &schedule.timing {
            Timing::Cron { expression, zone, .. } => (Some(expression.clone()), Some(zone.clone()), None),
            Timing::Every(period) => (None, None, Some(period.as_millis() as u64)),
        };
        let message = &schedule.message;
        let header = |(name, value): (&str, &Bytes)| (name.to_owned(), Written::new(value));
        Self {
            cron,
            zone,
            every_ms,
            payload: Written::new(&message.payload),
            key: message.key.as_ref().map(Written::new),
            headers: message.headers.iter().map(header).collect(),
            missed: schedule.missed,
            last,
            removed: false,
        }
    }

    fn decode(entry: &Entry) -> Result<Self> {
        serde_json::from_slice(&entry.value).map_err(|error| format::unreadable(&entry.key, error))
    }

    fn encode(&self) -> Bytes {
        // Plain values only, so that writing them cannot fail.
        serde_json::to_vec(self).unwrap_or_default().into()
    }

    fn same_timing(&self, other: &Self) -> bool {
        (&self.cron, &self.zone, self.every_ms) == (&other.cron, &other.zone, other.every_ms)
    }

    /// The schedule and how far it has come; none if it was removed.
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
        message.key = self.key.as_ref().map(Written::bytes);
        message.headers = self.headers.iter().map(|(name, value)| (name.as_str(), value.bytes())).collect();
        let schedule = Schedule::new(key.last().to_owned(), timing)?.message(message).missed(self.missed);
        Ok(Some(Scheduled { schedule, last: self.last }))
    }
}

impl Sawmill {
    /// Pushes a message to a topic again and again, as the schedule says, as long as the topic has a worker. Each tick is
    /// pushed once (twice at times, on engines that cannot tell), by the clock of the worker that tends the topic, which
    /// notices the schedule within seconds. The first tick is the first after this call.
    ///
    /// A schedule of the same name is replaced, and goes on from where it is unless its times have changed: so a program can
    /// say this each time it starts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sawmill::{Context, Sawmill, Schedule};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("reports").await?;
    /// let nightly = Schedule::cron("nightly", "0 3 * * *", "Europe/Berlin")?.message("all customers");
    /// mill.schedule("reports", nightly).await?;
    /// let worker = mill.worker("reports").start(|report: Context| async move {
    ///     println!("the report of {:?}", report.tick());
    /// }).await?;
    /// assert_eq!(mill.schedules("reports").await?.len(), 1);
    /// mill.unschedule("reports", "nightly").await?;
    /// # worker.stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn schedule(&self, topic: &str, schedule: Schedule) -> Result<()> {
        let topic = self.find_topic(topic).await?;
        schedule.check()?;
        // What could not be pushed must not be scheduled.
        self.check(schedule.message.clone(), MessageId::from_u128(0), self.env().wall())?;
        let key = EntryKey::schedule(&topic, schedule.name());
        loop {
            let entry = self.ledger().get(&key).await?;
            let old = entry.as_ref().map(Stored::decode).transpose()?;
            let now = self.env().wall();
            let mut new = Stored::new(&schedule, now);
            match &old {
                Some(old) if !old.removed && old.same_timing(&new) => new.last = old.last,
                Some(old) => new.last = old.last.max(now),
                None => {}
            }
            if old.as_ref() == Some(&new) {
                return Ok(());
            }
            let expect = entry.map(|entry| entry.version);
            let write = Write { key: key.clone(), expect, value: Some(new.encode()) };
            if let Commit::Done(_) = self.ledger().commit(write).await? {
                return Ok(());
            }
            // Someone else was faster, or nobody knows: look again.
            self.env().sleep(PAUSE).await;
        }
    }

    /// The schedules of a topic, by name.
    pub async fn schedules(&self, topic: &str) -> Result<Vec<Scheduled>> {
        let topic = self.find_topic(topic).await?;
        let mut schedules = Vec::new();
        for entry in self.ledger().list(&EntryKey::schedules(&topic)).await? {
            schedules.extend(Stored::decode(&entry)?.scheduled(&entry.key)?);
        }
        Ok(schedules)
    }

    /// Removes a schedule. What it has pushed stays. False if there is none with this name.
    pub async fn unschedule(&self, topic: &str, name: &str) -> Result<bool> {
        let topic = self.find_topic(topic).await?;
        let key = EntryKey::schedule(&topic, name);
        let mut unsure = false;
        loop {
            let Some(entry) = self.ledger().get(&key).await? else { return Ok(false) };
            let mut stored = Stored::decode(&entry)?;
            if stored.removed {
                return Ok(unsure);
            }
            stored.removed = true;
            let write = Write { key: key.clone(), expect: Some(entry.version), value: Some(stored.encode()) };
            match self.ledger().commit(write).await? {
                Commit::Done(_) => return Ok(true),
                Commit::Conflict => {}
                Commit::Unknown => unsure = true,
            }
            self.env().sleep(PAUSE).await;
        }
    }
}

/// What the tender of a topic knows of its schedules.
#[derive(Default)]
pub(crate) struct Timetable {
    known: Vec<(EntryKey, Scheduled)>,
    list_at: Moment,
}

impl Timetable {
    /// Pushes what is due, and says when the next tick is.
    pub(crate) async fn tend(&mut self, mill: &Sawmill, topic: &Topic) -> Result<Option<Timestamp>> {
        let now = mill.env().now();
        if now >= self.list_at {
            self.list(mill, topic).await?;
            self.list_at = now + mill.env().dice().jitter(LIST_EVERY);
        }
        let mut next: Option<Timestamp> = None;
        let mut gone = Vec::new();
        for (key, known) in &mut self.known {
            let is_due = known.next().is_some_and(|tick| tick <= mill.env().wall());
            if is_due {
                match push_due(mill, topic, key).await? {
                    Pushed::UpTo(scheduled) => *known = *scheduled,
                    Pushed::Removed => gone.push(key.clone()),
                    // Somebody else has changed it, or nobody knows: it is looked at again at the next round.
                    Pushed::Unsure => continue,
                }
            }
            next = [next, known.next()].into_iter().flatten().min();
        }
        self.known.retain(|(key, _)| !gone.contains(key));
        Ok(next)
    }

    async fn list(&mut self, mill: &Sawmill, topic: &Topic) -> Result<()> {
        let entries = mill.ledger().list(&EntryKey::schedules(topic)).await?;
        self.known.clear();
        for entry in entries {
            match Stored::decode(&entry).and_then(|stored| stored.scheduled(&entry.key)) {
                Ok(scheduled) => self.known.extend(scheduled.map(|scheduled| (entry.key, scheduled))),
                // The others must not wait for this one.
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

/// Pushes the ticks of a schedule that are due, and notes that.
async fn push_due(mill: &Sawmill, topic: &Topic, key: &EntryKey) -> Result<Pushed> {
    let Some(entry) = mill.ledger().get(key).await? else { return Ok(Pushed::Removed) };
    let stored = Stored::decode(&entry)?;
    let Some(mut scheduled) = stored.scheduled(key)? else { return Ok(Pushed::Removed) };
    let now = mill.env().wall();
    let due = scheduled.schedule.due(scheduled.last, now);
    if due.last == scheduled.last {
        return Ok(Pushed::UpTo(Box::new(scheduled)));
    }
    let mut records = Vec::new();
    for tick in &due.ticks {
        let id = match planted::is(Bug::TickTwice) {
            true => MessageId::from_u128(u128::from(mill.env().dice().roll())),
            false => scheduled.schedule.id_at(*tick),
        };
        records.push(Record::repeatable_in(
            mill.log(),
            topic,
            scheduled.schedule.message_at(*tick, id, now)?,
        ));
    }
    if !records.is_empty() {
        mill.log().append(topic, now, records).await?;
    }
    scheduled.last = due.last;
    let value = Some(Stored { last: due.last, ..stored }.encode());
    let write = Write { key: key.clone(), expect: Some(entry.version), value };
    match mill.ledger().commit(write).await? {
        Commit::Done(_) => Ok(Pushed::UpTo(Box::new(scheduled))),
        Commit::Conflict | Commit::Unknown => Ok(Pushed::Unsure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_is_read_back_from_the_ledger() {
        let key = EntryKey::raw("schedules/t/nightly");
        let message = Push::new(vec![0, 255]).key("k").header("lang", "en");
        for schedule in [
            Schedule::cron("nightly", "0 3 * * *", "Europe/Berlin").unwrap(),
            Schedule::every("nightly", Duration::from_secs(90)).unwrap(),
        ] {
            let schedule = schedule.message(message.clone()).missed(Missed::All);
            let stored = Stored::new(&schedule, Timestamp::from_millis(7));
            let entry =
                Entry { key: key.clone(), version: crate::ledger::Version(1), value: stored.encode() };
            assert_eq!(Stored::decode(&entry).unwrap(), stored);
            let back = stored.scheduled(&key).unwrap().unwrap();
            assert_eq!((back.schedule.name(), back.schedule.timing()), ("nightly", schedule.timing()));
            assert_eq!((&back.schedule.message, back.schedule.missed), (&message, Missed::All));
            assert_eq!(back.last, Timestamp::from_millis(7));
            let removed = Stored { removed: true, ..stored };
            assert!(removed.scheduled(&key).unwrap().is_none());
        }
    }

    #[test]
    fn what_is_no_schedule_is_an_error_and_no_panic() {
        let key = EntryKey::raw("schedules/t/nightly");
        for text in ["", "{}", r#"{"payload":{"text":""},"missed":"once","last":1}"#] {
            let value = Bytes::from_static(text.as_bytes());
            let entry = Entry { key: key.clone(), version: crate::ledger::Version(1), value };
            assert!(Stored::decode(&entry).and_then(|stored| stored.scheduled(&key)).is_err(), "{text}");
        }
    }
}
