//! Checks the ticks of schedules: which missed ticks are pushed, and that none is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sawmill::engine::model::TopicName;
use sawmill::{Message, Missed, Timestamp};

use super::book::Book;
use super::invariant::Invariant;
use super::settled::Hidden;
use super::shards::Written;
use crate::features::Feature;

/// [`Missed::Skip`] skips ticks that are older than this.
const SKIPPED_AFTER: Duration = Duration::from_secs(60);

/// The maximum delay of a tick when nothing is wrong.
const LATEST_TICK: Duration = Duration::from_secs(5);

/// A message that a schedule pushes.
pub(super) struct Ticking {
    name: String,
    period: Duration,
    missed: Missed,
    /// The ticks that arrived, and when each was pushed.
    came: BTreeMap<Timestamp, Timestamp>,
}

impl Book {
    /// Records that the schedule with this name pushes the message with this number.
    pub fn ticks(&mut self, number: usize, name: &str, period: Duration, missed: Missed) {
        let (name, came) = (name.to_owned(), BTreeMap::new());
        self.ticking.insert(number, Ticking { name, period, missed, came });
    }

    /// Returns true if a schedule pushes this message.
    pub(super) fn is_ticking(&self, number: usize) -> bool {
        self.ticking.contains_key(&number)
    }

    /// Invariant 2: of several missed ticks, only the right ones are pushed.
    pub(super) fn ticked(&mut self, number: usize, message: &Message) {
        let Some(ticking) = self.ticking.get_mut(&number) else { return };
        let tick = message.tick().unwrap_or(message.created);
        ticking.came.insert(tick, message.created);
        let pushed = ticking.came.values().filter(|pushed| **pushed == message.created).count();
        let (late, missed, period) = (message.created.since(tick), ticking.missed, ticking.period);
        let fine = match missed {
            Missed::All => true,
            Missed::Once => pushed == 1 && late < period,
            Missed::Skip => late <= SKIPPED_AFTER,
        };
        self.check(Invariant::NothingInvented, fine, |_| {
            let what = format!("a tick of a schedule with period {period:?} was pushed {late:?} late");
            let what = format!("{what}, with {} other ticks; policy: Missed::{missed:?}", pushed - 1);
            (what, vec![message.id.to_string()])
        });
    }

    /// Invariant 1: ticks that a schedule counts as pushed are in the log.
    pub(super) fn schedule_written(&mut self, written: &Written<'_>, name: &str, hidden: Hidden<'_>) {
        let last = |value: &[u8]| {
            let value: serde_json::Value = serde_json::from_slice(value).ok()?;
            value.get("last")?.as_u64()
        };
        let old = written.old.and_then(|old| last(&old.value));
        let (Some(old), Some(new)) = (old, written.value.and_then(|value| last(value))) else { return };
        let Some((number, ticking)) = self.ticking.iter().find(|(_, ticking)| ticking.name == name) else {
            return;
        };
        let period = ticking.period.as_millis() as u64;
        let topic = self.pushed[*number].intent.topic.parse::<TopicName>().ok();
        let hidden = topic.map(|topic| hidden(&topic)).unwrap_or_default();
        let mut there: BTreeSet<Timestamp> = ticking.came.keys().copied().collect();
        there.extend(hidden.iter().filter_map(|record| record.message.tick()));
        let passed = (old / period + 1..=new / period).map(|nth| Timestamp::from_millis(nth * period));
        let missing: Vec<Timestamp> = passed.filter(|tick| !there.contains(tick)).collect();
        let slack = 2 * self.rules.skew + Duration::from_millis(1);
        let lost = missing.iter().find(|tick| match ticking.missed {
            Missed::All => true,
            Missed::Once => tick.as_millis() == new / period * period,
            Missed::Skip => self.wall.since(**tick) + slack < SKIPPED_AFTER,
        });
        let lost = lost.copied();
        if ticking.missed == Missed::Skip && !missing.is_empty() {
            self.used.push(Feature::TickSkipped);
        }
        self.check(Invariant::NothingLost, lost.is_none(), |_| {
            let key = written.key.as_str().to_owned();
            (format!("{key} is at {new}, and the tick of {lost:?} was not pushed"), vec![key])
        });
    }

    /// Invariant 1, when nothing is wrong: a schedule keeps ticking.
    pub fn check_still_ticking(&mut self) {
        let slack = 2 * self.rules.skew + LATEST_TICK;
        let late = self.ticking.values().find(|ticking| {
            let latest = ticking.came.keys().next_back().copied().unwrap_or(Timestamp::from_millis(0));
            self.wall.since(latest) > ticking.period + slack
        });
        let late = late.map(|ticking| (ticking.name.clone(), ticking.came.keys().next_back().copied()));
        self.check(Invariant::NothingLost, late.is_none(), |book| {
            let what = format!("it is {}, and the latest tick of a schedule is {late:?}", book.wall);
            (what, vec![])
        });
    }

    /// Invariant 1, at the end: a schedule that pushes all missed ticks has left none out.
    pub fn no_tick_is_missing(&mut self) {
        let mut gaps = Vec::new();
        for ticking in self.ticking.values().filter(|ticking| ticking.missed == Missed::All) {
            let ticks: Vec<&Timestamp> = ticking.came.keys().collect();
            let gap = ticks.windows(2).find(|pair| pair[1].since(*pair[0]) != ticking.period);
            gaps.push(gap.map(|pair| (*pair[0], *pair[1])));
        }
        for gap in gaps {
            self.check(Invariant::NothingLost, gap.is_none(), |_| {
                (format!("ticks of a schedule are missing between {gap:?}"), vec![])
            });
        }
    }
}
