//! Times for what is pushed: microseconds by the clock of who pushes, each used once and each later than the one before.

use std::sync::{Arc, LazyLock, Mutex};

use sawmill::clock::Moment;
use sawmill::env::Env;

/// How far the steady clock may have gone from the wall's before they are brought together again, in microseconds.
const APART: i64 = 2_000;

/// Gives out times. Clones give out from the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stamps(Arc<Mutex<Given>>);

#[derive(Debug, Default)]
struct Given {
    last: i64,
    /// What the wall clock is ahead of the steady one, which knows more than milliseconds.
    ahead: Option<i64>,
    /// Until when what is pushed comes soon after a push that took long.
    slow_until: Moment,
}

impl Stamps {
    /// Those that all have in common who go by the machine's clock in this process: what one has pushed before another comes
    /// before it.
    pub(crate) fn of_process() -> Self {
        static STAMPS: LazyLock<Stamps> = LazyLock::new(Stamps::default);
        STAMPS.clone()
    }

    /// A push took so long that what it pushed may be found later than what is pushed next.
    pub(crate) fn was_slow(&self, until: Moment) {
        let mut given = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        given.slow_until = given.slow_until.max(until);
    }

    /// Whether there was such a push not long ago.
    pub(crate) fn is_after_slow(&self, now: Moment) -> bool {
        now < self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).slow_until
    }

    /// The first of so many times that follow one another.
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
