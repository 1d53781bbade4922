//! What users do beyond pushing and working. Each seed has some of it, decided by a stream of its own.

use std::time::Duration;

use sawmill::Missed;

use super::deletes::DeletePlan;
use super::plan::GroupPlan;
use super::ticks::TickPlan;
use crate::control::EVEN_PACE;
use crate::dice::Seeded;
use crate::faults::{Chance, Faults};

/// The stream of the seed from which this is made.
const STREAM: u32 = 3;

/// What users do in a history beyond pushing and working.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// What a person does about dead letters.
    pub letters: Vec<LetterTask>,
    /// Those who push use producers.
    pub producers: bool,
    /// Those who do not know what came of a push push again.
    pub repeats: bool,
    /// Every so many messages have one that follows from them.
    pub followers: Option<usize>,
    /// How workers get their messages, by their numbers in turn.
    pub styles: Vec<Style>,
    /// How long a handler may take.
    pub timeout: Option<Duration>,
    /// The TTLs of workers, by their numbers in turn; all have the same if there are none.
    pub ttls: Vec<Duration>,
    /// How fast the clocks of workers run, in thousandths, by their numbers in turn; all run alike if there are none.
    pub paces: Vec<u32>,
    /// For how long a unique message takes its name, if not as long as it is live.
    pub unique_for: Option<Duration>,
    /// How many messages of a key may start in a second, in ordered groups.
    pub per_key: Option<u32>,
    /// A schedule that ticks often.
    pub ticks: Option<TickPlan>,
    /// Reads that are incomplete, promotions that double, and trims that are late.
    pub log_faults: (Chance, Chance, Chance),
    /// At least so many workers are at work at the beginning.
    pub crowd: usize,
    /// Groups are sent back to places whose messages may be trimmed by now.
    pub trims_passed: bool,
    /// How often a person trims the topics.
    pub trims: u32,
    /// At-most-once workers keep journals.
    pub journals: bool,
    /// How often the store crashes.
    pub store_crashes: u32,
    /// The message that kills its workers, by number in turn.
    pub killer: Option<u64>,
    /// How often somebody waits until a worker has nothing to do.
    pub drains: usize,
    /// A topic that is deleted and created again.
    pub deletes: Option<DeletePlan>,
}

/// How a worker gets its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A handler is called for each.
    Each,
    /// A handler is called for so many at once, which are waited for this long.
    Batch(usize, Duration),
    /// A program pulls them.
    Pull,
}

/// What a person does about the dead letters of a group, after a pause.
#[derive(Debug, Clone, Copy)]
pub struct LetterTask {
    /// How long to wait first.
    pub pause: Duration,
    /// Which group.
    pub group: usize,
    /// Of which topic.
    pub topic: usize,
    /// Which letters: all, or one of them.
    pub nth: Option<u64>,
    /// What to do.
    pub what: LetterAction,
}

/// What can be done about dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterAction {
    /// Look at them.
    List,
    /// Send them back to the group.
    Resend,
    /// Drop them.
    Drop,
}

impl Extras {
    pub(super) fn roll(seed: u64, setting: &Setting<'_>) -> Self {
        let dice = &mut Seeded::new(seed, 1 + u64::from(STREAM));
        let Setting { time, ttl, groups, topics, can_tell, seeks } = *setting;
        Self {
            letters: letters(dice, time, groups.len(), topics),
            producers: dice.below(6) == 0,
            repeats: dice.below(3) == 0,
            followers: (dice.below(8) == 0).then(|| 1 + dice.below(4) as usize),
            styles: styles(dice),
            timeout: (dice.below(8) == 0).then(|| Duration::from_millis(20 << dice.below(7))),
            ttls: ttls(dice, ttl),
            paces: if groups.iter().any(|group| group.rate.is_some()) { Vec::new() } else { paces(dice) },
            drains: [0, 0, 1, 4][dice.below(4) as usize],
            unique_for: (dice.below(4) == 0).then(|| Duration::from_millis(500 << dice.below(5))),
            per_key: (dice.below(4) == 0).then(|| [5, 20][dice.below(2) as usize]),
            ticks: ticks(dice).filter(|_| can_tell),
            log_faults: log_faults(dice),
            crowd: if dice.below(40) == 0 { 20 + dice.below(8) as usize } else { 0 },
            trims_passed: dice.below(2) == 0 && seeks,
            journals: cfg!(target_os = "linux") && dice.below(3) == 0,
            store_crashes: if dice.below(5) == 0 { 1 + dice.below(4) as u32 } else { 0 },
            killer: (dice.below(8) == 0).then(|| dice.roll()).filter(|_| ttl <= Duration::from_secs(2)),
            trims: [0, 0, 3][dice.below(3) as usize],
            deletes: DeletePlan::roll(dice, time),
        }
    }

    /// Adds to what may go wrong in the store.
    pub(super) fn log_faults(&self, faults: &mut Faults, idempotent: bool) {
        (faults.short_read, faults.doubled_promotion, faults.late_trim) = self.log_faults;
        if idempotent {
            faults.doubled_promotion = Chance::NEVER;
        }
    }

    /// How this worker gets its messages.
    pub fn style(&self, worker: usize) -> Style {
        by_turns(&self.styles, worker).unwrap_or(Style::Each)
    }

    /// The TTL of this worker, if it is its own.
    pub fn ttl(&self, worker: usize) -> Option<Duration> {
        by_turns(&self.ttls, worker)
    }

    /// How fast the clock of this worker runs, if it is not the world's pace.
    pub fn pace(&self, worker: usize) -> Option<u32> {
        by_turns(&self.paces, worker)
    }

    /// How long the world takes at most while this much time passes on a worker's clock.
    pub fn at_most(&self, time: Duration) -> Duration {
        let slowest = self.paces.iter().min().copied().unwrap_or(EVEN_PACE).min(EVEN_PACE);
        time * EVEN_PACE / slowest
    }

    /// How many times dead letters are sent back.
    pub fn resends(&self) -> u32 {
        self.letters.iter().filter(|task| task.what == LetterAction::Resend).count() as u32
    }
}

/// What of the plan bears on the extras.
pub(super) struct Setting<'a> {
    pub(super) time: Duration,
    pub(super) ttl: Duration,
    pub(super) groups: &'a [GroupPlan],
    pub(super) topics: usize,
    pub(super) can_tell: bool,
    pub(super) seeks: bool,
}

fn by_turns<T: Copy>(all: &[T], nth: usize) -> Option<T> {
    all.get(nth % all.len().max(1)).copied()
}

fn ticks(dice: &mut Seeded) -> Option<TickPlan> {
    let period = Duration::from_secs(1 + dice.below(3));
    let missed = [Missed::All, Missed::Once, Missed::Skip][dice.below(3) as usize];
    // Ticks that are younger than a minute are never left out.
    let outage = Duration::from_secs([0, 75][dice.below(2) as usize]);
    let plan = TickPlan { period, missed, outage };
    (dice.below(6) == 0).then_some(plan)
}

fn log_faults(dice: &mut Seeded) -> (Chance, Chance, Chance) {
    let mut some = |often: u64, percent: u32| match dice.below(often) {
        0 => Chance::percent(percent),
        _ => Chance::NEVER,
    };
    (some(4, 20), some(3, 20), some(3, 50))
}

fn styles(dice: &mut Seeded) -> Vec<Style> {
    let mut batch = || {
        Style::Batch(2 + dice.below(8) as usize, Duration::from_millis([0, 5, 200][dice.below(3) as usize]))
    };
    let batch = batch();
    match dice.below(8) {
        0 => vec![batch],
        1 => vec![Style::Pull],
        2 => vec![Style::Each, batch, Style::Pull],
        _ => vec![],
    }
}

fn ttls(dice: &mut Seeded, ttl: Duration) -> Vec<Duration> {
    match dice.below(4) {
        0 => (0..3).map(|_| ttl * (50 + dice.below(100) as u32) / 100).collect(),
        _ => Vec::new(),
    }
}

/// The lease ends at four fifths of the TTL: two clocks may differ by a quarter.
fn paces(dice: &mut Seeded) -> Vec<u32> {
    match dice.below(4) {
        0 => (0..3).map(|_| 900 + dice.below(201) as u32).collect(),
        1 => vec![900, 1100],
        _ => Vec::new(),
    }
}

fn letters(dice: &mut Seeded, time: Duration, groups: usize, topics: usize) -> Vec<LetterTask> {
    let count = [0, 2, 2, 5][dice.below(4) as usize];
    let pause = time * 13 / 10 / (count as u32 + 1);
    let task = |_| LetterTask {
        pause: pause * dice.below(200) as u32 / 100,
        group: dice.below(groups as u64) as usize,
        topic: dice.below(topics as u64) as usize,
        nth: (dice.below(2) == 0).then(|| dice.below(u64::MAX)),
        what: match dice.below(6) {
            0 => LetterAction::List,
            1 => LetterAction::Drop,
            _ => LetterAction::Resend,
        },
    };
    (0..count).map(task).collect()
}
