//! A clock that stands still until a test moves it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::clock::{Clock, Moment, Timestamp};

/// 2026-01-01 00:00 UTC: where a test clock begins.
const BEGINNING: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// A clock that stands still until it is moved. Clones are the same clock.
///
/// It begins at 2026-01-01 00:00 UTC. [`TestMill::advance`](super::TestMill::advance) moves it so that everything that waits
/// has its turn; by itself it can be moved too, for tests of one's own [`Env`](crate::env::Env).
///
/// ```
/// use std::time::Duration;
/// use sawmill::clock::Clock;
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
    face: Arc<Mutex<Face>>,
}

#[derive(Debug)]
struct Face {
    passed: Duration,
    /// What the wall clock showed when nothing had passed.
    wall: Timestamp,
    sleepers: BTreeMap<(Duration, u64), Option<Waker>>,
    sleeps: u64,
}

impl Default for Face {
    fn default() -> Self {
        Self { passed: Duration::ZERO, wall: BEGINNING, sleepers: BTreeMap::new(), sleeps: 0 }
    }
}

impl TestClock {
    /// A clock at its beginning.
    pub fn new() -> Self {
        Self::default()
    }

    fn face(&self) -> MutexGuard<'_, Face> {
        self.face.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Lets time pass in one step, and wakes all whose time has come, the earliest first.
    pub fn pass(&self, duration: Duration) {
        let woken: Vec<Waker> = {
            let mut face = self.face();
            face.passed = face.passed.saturating_add(duration);
            let passed = face.passed;
            let due = face.sleepers.range_mut(..=(passed, u64::MAX));
            due.filter_map(|(_, waker)| waker.take()).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Sets what people read on the wall, forward or back, as one sets a clock. No time passes by that: nobody wakes.
    pub fn set_wall(&self, wall: Timestamp) {
        let mut face = self.face();
        face.wall = wall - face.passed;
    }

    /// How long until the first sleeper wakes; `None` if nobody sleeps.
    pub fn next_wake(&self) -> Option<Duration> {
        let face = self.face();
        let (at, _) = *face.sleepers.keys().next()?;
        Some(at.saturating_sub(face.passed))
    }
}

impl Clock for TestClock {
    fn now(&self) -> Moment {
        Moment::at(self.face().passed)
    }

    fn wall(&self) -> Timestamp {
        let face = self.face();
        face.wall + face.passed
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let mut face = self.face();
        face.sleeps += 1;
        let key = (face.passed.saturating_add(duration), face.sleeps);
        face.sleepers.insert(key, None);
        drop(face);
        Box::pin(Sleep { clock: self.clone(), key })
    }
}

/// Somebody who waits for time to pass.
struct Sleep {
    clock: TestClock,
    key: (Duration, u64),
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut face = self.clock.face();
        if face.passed >= self.key.0 {
            return Poll::Ready(());
        }
        face.sleepers.insert(self.key, Some(context.waker().clone()));
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.clock.face().sleepers.remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

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
        assert_eq!(clock.next_wake(), None, "who is dropped waits no more");
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
