//! Schedules: messages that are pushed repeatedly, at times given by a cron expression or a period.
//!
//! This file has the arithmetic of time, as pure functions. The crate `sawmill` keeps schedules in the ledger
//! and pushes their messages. A *tick* is a time at which a message is due. The id of a tick's message
//! derives from the schedule's name and that time, so that two workers that push it add one message where the
//! engine can tell.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::fault;
use crate::model::{Due, Message, MessageId, Push, check_name};
use crate::runtime::Timestamp;
use crate::{Error, Result};

/// The maximum length of a schedule's name, in characters.
const MAX_NAME: usize = 60;
/// The maximum size of the payload of a scheduled message, in bytes. It is kept in the ledger, where values
/// are small.
const MAX_PAYLOAD: usize = 64 << 10;
/// The shortest period.
const SHORTEST: Duration = Duration::from_secs(1);
/// The maximum number of ticks that are pushed at a time.
const MOST_TICKS: usize = 1000;
/// The age at which missed ticks are skipped under [`Missed::Skip`].
const SKIPPED_AFTER: Duration = Duration::from_secs(60);

/// The header that contains the tick for which a message was pushed.
const TICK: &str = "sawmill-tick";

/// A message to push, and the times at which to push it. `Sawmill::schedule` of the crate `sawmill` adds it
/// to a topic.
#[derive(Debug, Clone)]
pub struct Schedule {
    /// The name, which is unique in the topic.
    pub name: String,
    /// The times at which the schedule ticks.
    pub timing: Timing,
    /// The message to push at each tick.
    pub message: Push,
    /// The treatment of missed ticks.
    pub missed: Missed,
}

/// The treatment of ticks that passed while nobody was there to push them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Missed {
    /// Push the latest of them.
    #[default]
    Once,
    /// Push each of them, oldest first.
    All,
    /// Push none that is older than a minute.
    Skip,
}

impl Schedule {
    /// Creates a schedule of the times that a cron expression gives in a time zone. The fields are minute,
    /// hour, day of month, month and day of week.
    ///
    /// When clocks are put forward, a tick that falls into the missing hour is pushed at the end of that
    /// hour. When clocks are put back, it is pushed once. Expressions with a `*` or a step in minute or hour
    /// follow real time instead, through both hours.
    ///
    /// ```
    /// use sawmill::{Missed, Push, Schedule};
    ///
    /// # fn main() -> sawmill::Result<()> {
    /// let nightly = Schedule::cron("nightly", "0 3 * * *", "Europe/Berlin")?
    ///     .message(Push::new("all customers"))
    ///     .missed(Missed::Once);
    /// # let _ = nightly;
    /// let error = Schedule::cron("never", "0 0 31 2 *", "UTC").unwrap_err();
    /// assert!(error.to_string().contains("no such time"));
    /// # Ok(()) }
    /// ```
    pub fn cron(
        name: impl Into<String>,
        expression: impl Into<String>,
        zone: impl Into<String>,
    ) -> Result<Self> {
        Self::new(name.into(), Timing::cron(expression.into(), zone.into())?)
    }

    /// Creates a schedule of the whole multiples of a period since 1970: a period of one hour ticks at the
    /// full hour, UTC.
    pub fn every(name: impl Into<String>, period: Duration) -> Result<Self> {
        Self::new(name.into(), Timing::every(period)?)
    }

    /// Creates a schedule with an empty message. Returns an error if the name is not allowed.
    pub fn new(name: String, timing: Timing) -> Result<Self> {
        check_name("schedule", &name, MAX_NAME)?;
        Ok(Self { name, timing, message: Push::new(""), missed: Missed::default() })
    }

    /// Sets the message to push at each tick. It is empty by default.
    #[must_use]
    pub fn message(mut self, message: impl Into<Push>) -> Self {
        self.message = message.into();
        self
    }

    /// Sets the treatment of ticks that passed while no worker was there to push them.
    #[must_use]
    pub fn missed(mut self, missed: Missed) -> Self {
        self.missed = missed;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Describes in words when the schedule ticks.
    pub fn timing(&self) -> String {
        self.timing.to_string()
    }

    /// Returns the payload of each tick's message.
    pub fn payload(&self) -> &Bytes {
        &self.message.payload
    }

    /// Returns the key of each tick's message.
    pub fn key(&self) -> Option<&Bytes> {
        self.message.key.as_ref()
    }

    /// Returns the treatment of ticks that passed while no worker was there to push them.
    pub fn when_missed(&self) -> Missed {
        self.missed
    }

    /// Returns the first tick after this time.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        self.timing.next(after)
    }

    /// Returns an error if the message cannot be scheduled.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::invalid(format!("schedule {}: {what}", self.name)));
        if self.message.due != Due::Now {
            return wrong("its message has a due time; the schedule says when it is due, so leave that out");
        }
        if self.message.unique.is_some() {
            return wrong("its message is unique; each tick is pushed once anyway, so leave that out");
        }
        if self.message.payload.len() > MAX_PAYLOAD {
            return wrong(
                "its message has more than 64 KiB: store it elsewhere and schedule a reference to it",
            );
        }
        Ok(())
    }

    /// Returns the ticks to push at `now`, if all ticks up to `last` are dealt with.
    pub fn due(&self, last: Timestamp, now: Timestamp) -> DueTicks {
        let mut due = DueTicks { ticks: Vec::new(), last };
        if self.next(last).is_none_or(|next| next > now) {
            return due;
        }
        let second = || self.next(last).and_then(|first| self.next(first));
        if fault!(StopsTicking) && second().is_some_and(|second| second <= now) {
            return due;
        }
        if self.missed == Missed::Skip && !fault!(OldTicksPushed) {
            due.last = last.max(now - SKIPPED_AFTER);
        }
        let due_by = |after| self.next(after).filter(|tick| *tick <= now);
        let missed = if fault!(AllMissedTicksPushed) { Missed::All } else { self.missed };
        match missed {
            Missed::Once if fault!(NoMissedTickPushed) => due.last = self.latest(last, now).unwrap_or(last),
            Missed::Once if fault!(OldestTickPushed) => due.ticks.extend(due_by(last)),
            Missed::Once => due.ticks.extend(self.latest(last, now)),
            Missed::All | Missed::Skip => {
                let ticks = std::iter::successors(due_by(due.last), |tick| due_by(*tick));
                due.ticks.extend(ticks.take(MOST_TICKS));
            }
        }
        due.last = due.ticks.last().copied().unwrap_or(due.last);
        due
    }

    /// Returns the latest tick after `last` and not after `now`. There may be very many ticks between them,
    /// so the search begins at the end.
    fn latest(&self, last: Timestamp, now: Timestamp) -> Option<Timestamp> {
        let due_by = |after| self.next(after).filter(|tick| *tick <= now);
        let mut window = Duration::from_secs(60);
        loop {
            let from = last.max(now - window);
            if let Some(first) = due_by(from) {
                return std::iter::successors(Some(first), |tick| due_by(*tick)).last();
            }
            if from == last {
                return None;
            }
            window = window.saturating_mul(10);
        }
    }

    /// Makes the message of a tick.
    pub fn message_at(&self, tick: Timestamp, id: MessageId, now: Timestamp) -> Result<Message> {
        let mut message = self.message.clone().into_message(id, now)?;
        message.headers.set(TICK, tick.as_millis().to_string());
        Ok(message)
    }

    /// Returns the id of a tick's message.
    pub fn id_at(&self, tick: Timestamp) -> MessageId {
        MessageId::from_u128(u128::from(tick.as_millis()) << 80).derive(&format!("tick {}", self.name))
    }
}

/// The ticks to push, and the progress of the schedule after that.
#[derive(Debug, PartialEq, Eq)]
pub struct DueTicks {
    /// The ticks to push, oldest first.
    pub ticks: Vec<Timestamp>,
    /// The time up to which all ticks are dealt with once these are pushed.
    pub last: Timestamp,
}

/// The times at which a schedule ticks.
#[derive(Debug, Clone)]
pub enum Timing {
    /// The times that a cron expression gives in a time zone.
    Cron {
        /// The expression, as it was written.
        expression: String,
        /// The name of the time zone, as it was written.
        zone: String,
        /// The parsed expression.
        cron: Box<Cron>,
        /// The time zone with this name.
        time_zone: TimeZone,
    },
    /// The whole multiples of a period since 1970.
    Every(Duration),
}

impl Timing {
    /// Parses a cron expression and the name of a time zone. Returns an error if one of them is invalid, or
    /// if the expression never matches.
    pub fn cron(expression: String, zone: String) -> Result<Self> {
        let advice = "write minute, hour, day of month, month and day of week, like 0 3 * * *";
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = parser.parse(&expression).map_err(|error| {
            Error::invalid(format!("cron expression {expression:?} cannot be read: {advice}"))
                .caused_by(error)
        })?;
        let time_zone = TimeZone::get(&zone).map_err(|_| {
            Error::invalid(format!("there is no time zone {zone:?}: write UTC, or a name like Europe/Berlin"))
        })?;
        let timing = Self::Cron { expression, zone, cron: Box::new(cron), time_zone };
        // Any beginning will do, because calendars repeat.
        match timing.next(Timestamp::from_millis(1_700_000_000_000)) {
            Some(_) => Ok(timing),
            None => Err(Error::invalid(format!("{timing}: there is no such time, ever: {advice}"))),
        }
    }

    /// Uses a period. Returns an error unless it is between one second and ten years.
    pub fn every(period: Duration) -> Result<Self> {
        match (SHORTEST..=Duration::from_secs(10 * 366 * 86_400)).contains(&period) {
            true => Ok(Self::Every(period)),
            false => Err(Error::invalid(format!(
                "a schedule cannot tick every {period:?}: choose a period from one second to ten years"
            ))),
        }
    }

    /// Returns the first tick after this time.
    fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every(period) => {
                let period = period.as_millis() as u64;
                Some(Timestamp::from_millis((after.as_millis() / period + 1).saturating_mul(period)))
            }
            Self::Cron { cron, time_zone, .. } => {
                let second = i64::try_from(after.as_millis() / 1000).ok()?;
                let after = jiff::Timestamp::from_second(second).ok()?.to_zoned(time_zone.clone());
                let next = cron.find_next_occurrence(&after, false).ok()?;
                let millis = u64::try_from(next.timestamp().as_millisecond()).ok()?;
                Some(Timestamp::from_millis(millis))
            }
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cron { expression, zone, .. } => write!(f, "{expression} in {zone}"),
            Self::Every(period) => write!(f, "every {period:?}"),
        }
    }
}

impl Message {
    /// Returns the tick for which the message was pushed, if a [`Schedule`] pushed it.
    pub fn tick(&self) -> Option<Timestamp> {
        self.headers.text(TICK)?.parse().ok().map(Timestamp::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BERLIN: &str = "Europe/Berlin";

    fn at(text: &str) -> Timestamp {
        Timestamp::from_millis(text.parse::<jiff::Timestamp>().unwrap().as_millisecond() as u64)
    }

    fn cron(expression: &str, zone: &str) -> Schedule {
        Schedule::cron("test", expression, zone).unwrap()
    }

    /// Checks the next ticks after a time.
    #[track_caller]
    fn ticks(expression: &str, zone: &str, after: &str, expected: &[&str]) {
        let schedule = cron(expression, zone);
        let mut last = at(after);
        for expected in expected {
            last = schedule.next(last).unwrap();
            assert_eq!(last, at(expected), "{expression} in {zone}: {expected}");
        }
    }

    #[test]
    fn clocks_are_put_forward() {
        // From 02:00 at once to 03:00, which is 01:00 UTC.
        ticks(
            "30 2 * * *",
            BERLIN,
            "2025-03-29T12:00:00Z",
            &["2025-03-30T01:00:00Z", "2025-03-31T00:30:00Z", "2025-04-01T00:30:00Z"],
        );
        ticks("0 3 * * *", BERLIN, "2025-03-29T12:00:00Z", &["2025-03-30T01:00:00Z", "2025-03-31T01:00:00Z"]);
        ticks(
            "30 * * * *",
            BERLIN,
            "2025-03-30T00:00:00Z",
            &["2025-03-30T00:30:00Z", "2025-03-30T01:30:00Z"],
        );
    }

    #[test]
    fn clocks_are_put_back() {
        // From 03:00 back to 02:00, which is 01:00 UTC.
        ticks(
            "30 2 * * *",
            BERLIN,
            "2025-10-25T12:00:00Z",
            &["2025-10-26T00:30:00Z", "2025-10-27T01:30:00Z"],
        );
        ticks(
            "*/30 * * * *",
            BERLIN,
            "2025-10-25T23:45:00Z",
            &["2025-10-26T00:00:00Z", "2025-10-26T00:30:00Z", "2025-10-26T01:00:00Z", "2025-10-26T01:30:00Z"],
        );
    }

    #[test]
    fn months_end_when_they_end() {
        ticks("0 0 31 * *", "UTC", "2025-01-31T00:00:00Z", &["2025-03-31T00:00:00Z", "2025-05-31T00:00:00Z"]);
        ticks("0 0 L * *", "UTC", "2024-01-31T00:00:00Z", &["2024-02-29T00:00:00Z", "2024-03-31T00:00:00Z"]);
        ticks("0 0 29 2 *", "UTC", "2025-01-01T00:00:00Z", &["2028-02-29T00:00:00Z"]);
        ticks("@daily", "UTC", "2025-12-31T23:59:59.999Z", &["2026-01-01T00:00:00Z"]);
        ticks("0 0 * * *", "UTC", "2026-01-01T00:00:00.5Z", &["2026-01-02T00:00:00Z"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_advice() {
        for (name, expression, zone, said) in [
            ("", "0 3 * * *", "UTC", "schedule name is empty"),
            ("a b", "0 3 * * *", "UTC", "' '"),
            ("a", "", "UTC", "like 0 3 * * *"),
            ("a", "61 * * * *", "UTC", "like 0 3 * * *"),
            ("a", "0 3 * *", "UTC", "like 0 3 * * *"),
            ("a", "0 0 3 * * *", "UTC", "like 0 3 * * *"),
            ("a", "0 0 31 2 *", "UTC", "no such time, ever"),
            ("a", "0 0 31 4,6,9,11 *", BERLIN, "no such time, ever"),
            ("a", "0 3 * * *", "Mars/Olympus", "like Europe/Berlin"),
            ("a", "0 3 * * *", "", "like Europe/Berlin"),
        ] {
            let error = Schedule::cron(name, expression, zone).unwrap_err().to_string();
            assert!(error.contains(said), "{expression} in {zone}: {error}");
        }
        for period in [Duration::ZERO, Duration::from_millis(999), Duration::MAX] {
            assert!(Schedule::every("a", period).unwrap_err().to_string().contains("one second"));
        }
        let due = Schedule::every("a", SHORTEST).unwrap().message(Push::new("x").after(SHORTEST));
        assert!(due.check().unwrap_err().to_string().contains("due time"));
        let unique = Schedule::every("a", SHORTEST).unwrap().message(Push::new("x").unique("x"));
        assert!(unique.check().unwrap_err().to_string().contains("unique"));
    }

    #[test]
    fn of_missed_ticks_the_latest_is_pushed_or_all_or_none_that_is_old() {
        let hourly = cron("0 * * * *", "UTC");
        let (last, now) = (at("2025-01-01T00:00:00Z"), at("2025-01-01T03:00:30Z"));
        let three = ["2025-01-01T01:00:00Z", "2025-01-01T02:00:00Z", "2025-01-01T03:00:00Z"].map(at);
        let due = |missed, last, now| hourly.clone().missed(missed).due(last, now);
        assert_eq!(due(Missed::Once, last, now), DueTicks { ticks: vec![three[2]], last: three[2] });
        assert_eq!(due(Missed::All, last, now), DueTicks { ticks: three.to_vec(), last: three[2] });
        assert_eq!(due(Missed::Skip, last, now), DueTicks { ticks: vec![three[2]], last: three[2] });
        let later = now + Duration::from_secs(60);
        assert_eq!(due(Missed::Skip, last, later), DueTicks { ticks: vec![], last: later - SKIPPED_AFTER });
        for missed in [Missed::Once, Missed::All, Missed::Skip] {
            assert_eq!(due(missed, three[2], now), DueTicks { ticks: vec![], last: three[2] }, "nothing new");
            assert_eq!(
                due(missed, now, last),
                DueTicks { ticks: vec![], last: now },
                "a clock that is behind"
            );
        }
    }

    #[test]
    fn very_many_missed_ticks_are_pushed_in_parts() {
        let schedule = Schedule::every("a", SHORTEST).unwrap();
        let (last, now) = (Timestamp::from_millis(500), Timestamp::from_millis(1_700_000_000_500));
        let latest = Timestamp::from_millis(1_700_000_000_000);
        assert_eq!(schedule.due(last, now).ticks, [latest]);
        let all = schedule.clone().missed(Missed::All).due(last, now);
        assert_eq!((all.ticks.len(), all.ticks[0]), (MOST_TICKS, Timestamp::from_millis(1000)));
        assert_eq!(all.last, Timestamp::from_millis(1_000_000));
        let rare = cron("0 0 29 2 *", "UTC").due(Timestamp::from_millis(0), now);
        assert_eq!(rare.ticks, [at("2020-02-29T00:00:00Z")]);
    }

    #[test]
    fn the_id_of_a_tick_follows_from_its_time() {
        let (one, two) = (Schedule::every("a", SHORTEST).unwrap(), Schedule::every("b", SHORTEST).unwrap());
        let tick = Timestamp::from_millis(1_700_000_000_000);
        assert_eq!(one.id_at(tick), one.clone().message("else").id_at(tick));
        assert_ne!(one.id_at(tick), two.id_at(tick));
        assert_ne!(one.id_at(tick), one.id_at(tick + SHORTEST));
        let message = one.message_at(tick, one.id_at(tick), tick + SHORTEST).unwrap();
        assert_eq!((message.tick(), message.own_headers().is_empty()), (Some(tick), true));
    }
}
