//! Assigns times to rows: microseconds by the clock of the process that pushes, unique and ascending.

use std::sync::{Arc, LazyLock, Mutex};

use sawmill_engine::runtime::{Env, Moment};

/// How far the monotonic clock may drift from the wall clock before it is set anew, in microseconds.
const APART: i64 = 2_000;

/// Assigns unique, ascending times. Clones share one sequence.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stamps(Arc<Mutex<Given>>);

#[derive(Debug, Default)]
struct Given {
    last: i64,
    /// The offset of the wall clock from the monotonic one, which is finer than milliseconds.
    ahead: Option<i64>,
    /// Until when rows are marked as following a slow push.
    slow_until: Moment,
}

impl Stamps {
    /// The sequence that all stores of this process share that use the machine's clock: their rows sort in
    /// the order in which they were pushed.
    pub(crate) fn of_process() -> Self {
        static STAMPS: LazyLock<Stamps> = LazyLock::new(Stamps::default);
        STAMPS.clone()
    }

    /// Records a push that took so long that its rows may be found later than rows pushed after it.
    pub(crate) fn was_slow(&self, until: Moment) {
        let mut given = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        given.slow_until = given.slow_until.max(until);
    }

    /// Returns whether there was a slow push recently.
    pub(crate) fn is_after_slow(&self, now: Moment) -> bool {
        now < self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).slow_until
    }

    /// Reserves `many` successive times and returns the first.
    pub(crate) fn take(&self, env: &Env, many: usize) -> i64 {
        let wall = i64::try_from(env.wall().as_millis()).unwrap_or(i64::MAX / 1000).saturating_mul(1000);
        let steady = i64::try_from(env.now().since(Moment::default()).as_micros()).unwrap_or_default();
        let mut given = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let ahead =
            given.ahead.filter(|ahead| (steady + ahead - wall).abs() <= APART).unwrap_or(wall - steady);
        given.ahead = Some(ahead);
        let first = (steady + ahead).max(given.last + 1);
        given.last = first + many as i64;
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_follow_one_another_and_the_clock() {
        let (stamps, env) = (Stamps::default(), Env::system());
        let mut last = 0;
        for many in [1, 5, 1, 100, 1] {
            let first = stamps.take(&env, many);
            assert!(first > last);
            last = first + many as i64 - 1;
        }
        let wall = env.wall().as_millis() as i64 * 1000;
        assert!((last - wall).abs() < 1_000_000, "{last} is not now ({wall})");
    }
}
