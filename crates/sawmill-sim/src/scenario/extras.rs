//! User activities beyond pushing and working. Each seed has some of them, drawn from a stream of its own.

use std::time::Duration;

use sawmill::Missed;

use super::deletes::DeletePlan;
use super::plan::GroupPlan;
use super::ticks::TickPlan;
use crate::control::EVEN_PACE;
use crate::faults::{Chance, Faults};
use crate::rng::Seeded;

/// The random stream of the extras.
const STREAM: u32 = 3;

/// What users do in a history beyond pushing and working.
#[derive(Debug, Clone, Default)]
pub struct Extras {
    /// Actions on dead letters.
    pub letters: Vec<LetterTask>,
    /// Pushers use producers.
    pub producers: bool,
    /// Pushers repeat pushes of unknown outcome.
    pub repeats: bool,
    /// Every nth message has a follow-up message.
    pub followers: Option<usize>,
    /// How workers get their messages, cyclically by worker number.
    pub styles: Vec<Style>,
    /// The timeout of handlers.
    pub timeout: Option<Duration>,
    /// The TTLs of workers, cyclically by worker number; the common TTL if empty.
    pub ttls: Vec<Duration>,
    /// The clock rates of workers in thousandths, cyclically by worker number; the world's rate if empty.
    pub paces: Vec<u32>,
    /// For how long a unique message takes its name, if not until it ends.
    pub unique_for: Option<Duration>,
    /// The maximum rate per second and key, in ordered groups.
    pub per_key: Option<u32>,
    /// A schedule that ticks often.
    pub ticks: Option<TickPlan>,
    /// The probabilities of incomplete reads, doubled promotions and late trims.
    pub log_faults: (Chance, Chance, Chance),
    /// The minimum number of workers at the beginning.
    pub crowd: usize,
    /// Groups seek to positions whose messages may already be trimmed.
    pub trims_passed: bool,
    /// How often a user trims the topics.
    pub trims: u32,
    /// At-most-once workers keep journals.
    pub journals: bool,
    /// How often the store crashes.
    pub store_crashes: u32,
    /// The message that kills its workers, modulo the number of messages.
    pub killer: Option<u64>,
    /// How often a user waits until a worker is drained.
    pub drains: usize,
    /// A topic that is deleted and created again.
    pub deletes: Option<DeletePlan>,
}

/// How a worker gets its messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// A handler is called for each message.
    Each,
    /// A handler is called for a batch of at most this size, after waiting at most this long for more.
    Batch(usize, Duration),
    /// A program pulls them.
    Pull,
}

/// An action on the dead letters of a group, after a pause.
#[derive(Debug, Clone, Copy)]
pub struct LetterTask {
    /// How long to wait first.
    pub pause: Duration,
    /// The group.
    pub group: usize,
    /// The topic.
    pub topic: usize,
    /// One of the letters, or all.
    pub nth: Option<u64>,
    /// The action.
    pub what: LetterAction,
}

/// An action on dead letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LetterAction {
    /// List them.
    List,
    /// Resend them.
    Resend,
    /// Drop them.
    Drop,
}

impl Extras {
    pub(super) fn draw(seed: u64, setting: &Setting<'_>) -> Self {
        let rng = &mut Seeded::new(seed, 1 + u64::from(STREAM));
        let Setting { time, ttl, groups, topics, can_tell, seeks } = *setting;
        Self {
            letters: letters(rng, time, groups.len(), topics),
            producers: rng.below(6) == 0,
            repeats: rng.below(3) == 0,
            followers: (rng.below(8) == 0).then(|| 1 + rng.below(4) as usize),
            styles: styles(rng),
            timeout: (rng.below(8) == 0).then(|| Duration::from_millis(20 << rng.below(7))),
            ttls: ttls(rng, ttl),
            paces: if groups.iter().any(|group| group.rate.is_some()) { Vec::new() } else { paces(rng) },
            drains: [0, 0, 1, 4][rng.below(4) as usize],
            unique_for: (rng.below(4) == 0).then(|| Duration::from_millis(500 << rng.below(5))),
            per_key: (rng.below(4) == 0).then(|| [5, 20][rng.below(2) as usize]),
            ticks: ticks(rng).filter(|_| can_tell),
            log_faults: log_faults(rng),
            crowd: if rng.below(40) == 0 { 20 + rng.below(8) as usize } else { 0 },
            trims_passed: rng.below(2) == 0 && seeks,
            journals: cfg!(target_os = "linux") && rng.below(3) == 0,
            store_crashes: if rng.below(5) == 0 { 1 + rng.below(4) as u32 } else { 0 },
            killer: (rng.below(8) == 0).then(|| rng.next_u64()).filter(|_| ttl <= Duration::from_secs(2)),
            trims: [0, 0, 3][rng.below(3) as usize],
            deletes: DeletePlan::draw(rng, time),
        }
    }

    /// Adds the faults of the log.
    pub(super) fn log_faults(&self, faults: &mut Faults, idempotent: bool) {
        (faults.short_read, faults.doubled_promotion, faults.late_trim) = self.log_faults;
        if idempotent {
            faults.doubled_promotion = Chance::NEVER;
        }
    }

    /// Returns how this worker gets its messages.
    pub fn style(&self, worker: usize) -> Style {
        by_turns(&self.styles, worker).unwrap_or(Style::Each)
    }

    /// Returns the TTL of this worker, if it has its own.
    pub fn ttl(&self, worker: usize) -> Option<Duration> {
        by_turns(&self.ttls, worker)
    }

    /// Returns the clock rate of this worker, if it is not the world's.
    pub fn pace(&self, worker: usize) -> Option<u32> {
        by_turns(&self.paces, worker)
    }

    /// Returns the maximum time in the world while this much passes on a worker's clock.
    pub fn at_most(&self, time: Duration) -> Duration {
        let slowest = self.paces.iter().min().copied().unwrap_or(EVEN_PACE).min(EVEN_PACE);
        time * EVEN_PACE / slowest
    }

    /// Returns how often dead letters are resent.
    pub fn resends(&self) -> u32 {
        self.letters.iter().filter(|task| task.what == LetterAction::Resend).count() as u32
    }
}

/// The parts of the plan that the extras depend on.
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

fn ticks(rng: &mut Seeded) -> Option<TickPlan> {
    let period = Duration::from_secs(1 + rng.below(3));
    let missed = [Missed::All, Missed::Once, Missed::Skip][rng.below(3) as usize];
    // Ticks younger than a minute are never skipped.
    let outage = Duration::from_secs([0, 75][rng.below(2) as usize]);
    let plan = TickPlan { period, missed, outage };
    (rng.below(6) == 0).then_some(plan)
}

fn log_faults(rng: &mut Seeded) -> (Chance, Chance, Chance) {
    let mut some = |often: u64, percent: u32| match rng.below(often) {
        0 => Chance::percent(percent),
        _ => Chance::NEVER,
    };
    (some(4, 20), some(3, 20), some(3, 50))
}

fn styles(rng: &mut Seeded) -> Vec<Style> {
    let mut batch =
        || Style::Batch(2 + rng.below(8) as usize, Duration::from_millis([0, 5, 200][rng.below(3) as usize]));
    let batch = batch();
    match rng.below(8) {
        0 => vec![batch],
        1 => vec![Style::Pull],
        2 => vec![Style::Each, batch, Style::Pull],
        _ => vec![],
    }
}

fn ttls(rng: &mut Seeded, ttl: Duration) -> Vec<Duration> {
    match rng.below(4) {
        0 => (0..3).map(|_| ttl * (50 + rng.below(100) as u32) / 100).collect(),
        _ => Vec::new(),
    }
}

/// The lease ends at four fifths of the TTL, so two clocks may differ by a quarter.
fn paces(rng: &mut Seeded) -> Vec<u32> {
    match rng.below(4) {
        0 => (0..3).map(|_| 900 + rng.below(201) as u32).collect(),
        1 => vec![900, 1100],
        _ => Vec::new(),
    }
}

fn letters(rng: &mut Seeded, time: Duration, groups: usize, topics: usize) -> Vec<LetterTask> {
    let count = [0, 2, 2, 5][rng.below(4) as usize];
    let pause = time * 13 / 10 / (count as u32 + 1);
    let task = |_| LetterTask {
        pause: pause * rng.below(200) as u32 / 100,
        group: rng.below(groups as u64) as usize,
        topic: rng.below(topics as u64) as usize,
        nth: (rng.below(2) == 0).then(|| rng.below(u64::MAX)),
        what: match rng.below(6) {
            0 => LetterAction::List,
            1 => LetterAction::Drop,
            _ => LetterAction::Resend,
        },
    };
    (0..count).map(task).collect()
}
