//! A clock that moves only when a test moves it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sawmill_engine::runtime::{Clock, Moment, Timestamp};

/// 2026-01-01 00:00 UTC, where test clocks begin.
const BEGINNING: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A clock that moves only when it is told to. Clones are the same clock.
///
/// It begins at 2026-01-01 00:00 UTC. [`TestMill::advance`](super::TestMill::advance) moves it step by step,
/// and lets each waiting task run at its time. [`pass`](TestClock::pass) moves it alone, for tests with your
/// own [`Env`](sawmill_engine::runtime::Env).
///
/// ```
/// use std::time::Duration;
/// use sawmill_engine::runtime::Clock;
/// use sawmill::testing::TestClock;
///
/// let clock = TestClock::new();
/// let (began, wall) = (clock.now(), clock.wall());
/// clock.pass(Duration::from_secs(60));
/// assert_eq!(clock.now().since(began), Duration::from_secs(60));
/// assert_eq!(clock.wall().since(wall), Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Default)]
pub struct TestClock {
    state: Arc<Mutex<ClockState>>,
}

#[derive(Debug)]
struct ClockState {
    passed: Duration,
    /// The wall-clock time at `passed` zero.
    wall: Timestamp,
    sleepers: BTreeMap<(Duration, u64), Option<Waker>>,
    sleeps: u64,
}

impl Default for ClockState {
    fn default() -> Self {
        Self { passed: Duration::ZERO, wall: BEGINNING, sleepers: BTreeMap::new(), sleeps: 0 }
    }
}

impl TestClock {
    /// Makes a clock at 2026-01-01 00:00 UTC.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Moves the clock forward in one step, and wakes the sleepers that are due, the earliest first.
    pub fn pass(&self, duration: Duration) {
        let woken: Vec<Waker> = {
            let mut state = self.state();
            state.passed = state.passed.saturating_add(duration);
            let passed = state.passed;
            let due = state.sleepers.range_mut(..=(passed, u64::MAX));
            due.filter_map(|(_, waker)| waker.take()).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Sets the wall-clock time, forward or back. No monotonic time passes, so no sleeper wakes.
    pub fn set_wall(&self, wall: Timestamp) {
        let mut state = self.state();
        state.wall = wall - state.passed;
    }

    /// Returns the time until the first sleeper wakes; `None` if there are no sleepers.
    pub fn next_wake(&self) -> Option<Duration> {
        let state = self.state();
        let (at, _) = *state.sleepers.keys().next()?;
        Some(at.saturating_sub(state.passed))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        Moment::at(self.state().passed)
    }

    fn wall(&self) -> Timestamp {
        let state = self.state();
        state.wall + state.passed
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let mut state = self.state();
        state.sleeps += 1;
        let key = (state.passed.saturating_add(duration), state.sleeps);
        state.sleepers.insert(key, None);
        drop(state);
        Box::pin(Sleep { clock: self.clone(), key })
    }
}

/// A sleeper: completes when enough time has passed.
struct Sleep {
    clock: TestClock,
    key: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.clock.state();
        if state.passed >= self.key.0 {
            return Poll::Ready(());
        }
        state.sleepers.insert(self.key, Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.state().sleepers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn sleepers_wake_when_their_time_has_come_and_not_before() {
        let clock = TestClock::new();
        let mut late = clock.sleep(Duration::from_secs(2));
        let mut early = clock.sleep(Duration::from_secs(1));
        assert_eq!(clock.next_wake(), Some(Duration::from_secs(1)));
        clock.pass(Duration::from_millis(999));
        assert!((&mut early).now_or_never().is_none());
        clock.pass(Duration::from_millis(1));
        assert!((&mut early).now_or_never().is_some() && (&mut late).now_or_never().is_none());
        drop((early, late));
        assert_eq!(clock.next_wake(), None, "dropped sleepers are gone");
    }

    #[test]
    fn setting_the_clock_on_the_wall_lets_no_time_pass() {
        let clock = TestClock::new();
        clock.pass(Duration::from_secs(5));
        let (now, noon) = (clock.now(), Timestamp::from_millis(1_000_000));
        clock.set_wall(noon);
        assert_eq!((clock.now(), clock.wall()), (now, noon));
        clock.pass(Duration::from_secs(1));
        assert_eq!(clock.wall(), noon + Duration::from_secs(1));
    }
}
