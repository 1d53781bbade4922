//! The faults of the store and the incidents of workers in a history.

use std::time::Duration;

use crate::faults::{Chance, Delay, Faults};
use crate::rng::Seeded;

/// The faults on the way to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreFaults {
    /// The faults, while they last.
    pub faults: Faults,
    style: FaultStyle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultStyle {
    /// Only workers have incidents.
    Workers,
    /// Outcomes of writes are unknown.
    Unknowns,
    /// Everything is slow.
    Slow,
    /// Messages become readable late, or twice.
    Log,
    /// A little of everything.
    Mixed,
    /// Much of everything.
    Heavy,
}

impl StoreFaults {
    pub(super) fn draw(rng: &mut Seeded, idempotent: bool) -> Self {
        use FaultStyle::{Heavy, Log, Mixed, Slow, Unknowns, Workers};
        let style = [Workers, Workers, Unknowns, Unknowns, Slow, Slow, Log, Mixed, Mixed, Heavy];
        let style = style[rng.below(style.len() as u64) as usize];
        let calm = Faults { lost_notification: lost_notifications(rng), ..Faults::calm() };
        let some = Chance::percent(match style {
            Heavy => 3 + rng.below(8) as u32,
            _ => 1 + rng.below(5) as u32,
        });
        let slow_by = Delay::millis(20, 500 + rng.below(2_500));
        let late_by = Delay::millis(1, 200 + rng.below(4_800));
        let visible_by = Delay::millis(1, 100 + rng.below(2_900));
        let timeout = Delay::millis(100, 200 + rng.below(2_800));
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
            Slow => Faults { slow: Chance::percent(10 + rng.below(40) as u32), ..calm },
            Log => log(calm),
            Mixed | Heavy => log(Faults { slow: some, unavailable: some, ..unknowns }),
        };
        Self { faults, style }
    }
}

fn lost_notifications(rng: &mut Seeded) -> Chance {
    [Chance::NEVER, Chance::percent(20), Chance::ALWAYS][rng.below(3) as usize]
}

/// The incidents of workers and store while the faults last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncidentPlan {
    /// How long the faults last.
    pub time: Duration,
    /// The pause between two incidents.
    pub pause: Delay,
    /// The kinds of incidents, repeated by their weight.
    pub kinds: Vec<Incident>,
    /// The maximum error of wall clocks.
    pub skew: Duration,
}

/// An incident of a worker or of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Incident {
    /// A worker's process crashes, and perhaps another starts.
    Crash,
    /// A worker is frozen for a while.
    Freeze,
    /// A worker is cut off from the store for a while.
    CutOff,
    /// The log or the ledger is out for a while.
    Outage,
    /// One more worker joins.
    Join,
    /// A worker leaves gracefully.
    Stop,
    /// A worker leaves at once.
    Abort,
}

impl IncidentPlan {
    pub(super) fn draw(rng: &mut Seeded, ttl: Duration, store_faults: &StoreFaults) -> Self {
        use Incident::{Abort, Crash, CutOff, Freeze, Join, Outage, Stop};
        let all = [Crash, Freeze, CutOff, Outage, Join, Stop, Abort];
        let kinds = match (store_faults.style, rng.below(4)) {
            (FaultStyle::Unknowns | FaultStyle::Log, 0..2) => vec![],
            (_, 0) => vec![Crash],
            (_, 1) => vec![Freeze, Freeze, CutOff],
            (_, 2) => vec![Join, Stop, Abort, Crash],
            _ => all.to_vec(),
        };
        let most = [800, 3_000, 10_000][rng.below(3) as usize];
        let skew = if rng.below(10) == 0 { Duration::from_millis(50) } else { Duration::ZERO };
        let time = (Duration::from_secs(8) + 3 * ttl) * (100 + rng.below(150) as u32) / 100;
        Self { time, pause: Delay::millis(100, most), kinds, skew }
    }

    /// Draws how long a worker is frozen or cut off: shorter than the TTL, about as long, or much longer.
    pub(super) fn how_long(rng: &mut Seeded, ttl: Duration) -> Duration {
        let percent = match rng.below(3) {
            0 => 10 + rng.below(80),
            1 => 90 + rng.below(60),
            _ => 100 + rng.below(200),
        };
        ttl * percent as u32 / 100
    }
}
