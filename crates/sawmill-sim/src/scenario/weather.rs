//! What goes wrong in a history: on the way to the store, in the store, and to the workers.

use std::time::Duration;

use crate::dice::Seeded;
use crate::faults::{Chance, Delay, Faults};

/// What may go wrong on the way to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weather {
    /// The faults, while they last.
    pub faults: Faults,
    style: Style,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    /// Only workers are in trouble.
    Workers,
    /// Outcomes of writes are unknown.
    Unknowns,
    /// Everything takes its time.
    Slow,
    /// Messages become readable late, or twice.
    Log,
    /// A bit of all.
    Mixed,
    /// Much of all.
    Heavy,
}

impl Weather {
    pub(super) fn roll(dice: &mut Seeded, idempotent: bool) -> Self {
        use Style::{Heavy, Log, Mixed, Slow, Unknowns, Workers};
        let style = [Workers, Workers, Unknowns, Unknowns, Slow, Slow, Log, Mixed, Mixed, Heavy];
        let style = style[dice.below(style.len() as u64) as usize];
        let calm = Faults { lost_hint: lost_hints(dice), ..Faults::calm() };
        let some = Chance::percent(match style {
            Heavy => 3 + dice.below(8) as u32,
            _ => 1 + dice.below(5) as u32,
        });
        let slow_by = Delay::millis(20, 500 + dice.below(2_500));
        let late_by = Delay::millis(1, 200 + dice.below(4_800));
        let visible_by = Delay::millis(1, 100 + dice.below(2_900));
        let timeout = Delay::millis(100, 200 + dice.below(2_800));
        let calm = Faults { slow_by, late_by, visible_by, timeout, ..calm };
        let doubles = |chance: Chance| if idempotent { Chance::NEVER } else { chance };
        let unknowns = Faults {
            unknown_applied: some,
            unknown_lost: some,
            unknown_late: some,
            unknown_partial: some,
            doubled_unknown: doubles(Chance::percent(20)),
            ..calm.clone()
        };
        let log = |faults: Faults| Faults {
            late_visible: Chance::percent(10),
            held_back: Chance::percent(10),
            doubled: doubles(some),
            ..faults
        };
        let faults = match style {
            Workers => calm,
            Unknowns => unknowns,
            Slow => Faults { slow: Chance::percent(10 + dice.below(40) as u32), ..calm },
            Log => log(calm),
            Mixed | Heavy => log(Faults { slow: some, unavailable: some, ..unknowns }),
        };
        Self { faults, style }
    }
}

fn lost_hints(dice: &mut Seeded) -> Chance {
    [Chance::NEVER, Chance::percent(20), Chance::ALWAYS][dice.below(3) as usize]
}

/// What happens to workers and store while the faults last, and how likely each is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// How long the faults last.
    pub time: Duration,
    /// The pause between two strokes.
    pub pause: Delay,
    /// The strokes, each as often as it is to come.
    pub strokes: Vec<Stroke>,
    /// By how much wall clocks may be wrong.
    pub skew: Duration,
}

/// Something that happens to a worker or to the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stroke {
    /// A worker's process ends at once, and perhaps another starts.
    Crash,
    /// A worker stands still for a while.
    Freeze,
    /// A worker is cut off from the store for a while.
    CutOff,
    /// The log or the ledger is out for a while.
    Outage,
    /// One more worker joins.
    Join,
    /// A worker leaves in order.
    Stop,
    /// A worker leaves at once.
    Abort,
}

impl Trouble {
    pub(super) fn roll(dice: &mut Seeded, ttl: Duration, weather: &Weather) -> Self {
        use Stroke::{Abort, Crash, CutOff, Freeze, Join, Outage, Stop};
        let all = [Crash, Freeze, CutOff, Outage, Join, Stop, Abort];
        let strokes = match (weather.style, dice.below(4)) {
            (Style::Unknowns | Style::Log, 0..2) => vec![],
            (_, 0) => vec![Crash],
            (_, 1) => vec![Freeze, Freeze, CutOff],
            (_, 2) => vec![Join, Stop, Abort, Crash],
            _ => all.to_vec(),
        };
        let most = [800, 3_000, 10_000][dice.below(3) as usize];
        let skew = if dice.below(10) == 0 { Duration::from_millis(50) } else { Duration::ZERO };
        let time = (Duration::from_secs(8) + 3 * ttl) * (100 + dice.below(150) as u32) / 100;
        Self { time, pause: Delay::millis(100, most), strokes, skew }
    }

    /// How long a worker is frozen or cut off: shorter than the TTL, about as long, or much longer.
    pub(super) fn how_long(dice: &mut Seeded, ttl: Duration) -> Duration {
        let percent = match dice.below(3) {
            0 => 10 + dice.below(80),
            1 => 90 + dice.below(60),
            _ => 100 + dice.below(200),
        };
        ttl * percent as u32 / 100
    }
}
