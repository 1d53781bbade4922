//! The clock: the only place where the library reads time.
//!
//! It tells two kinds of time. A [`Moment`] is a point on the steady clock of this process. It measures how
//! long something took, and is never compared with the time of another machine. A [`Timestamp`] is wall-clock
//! time: it is what people mean by "due at eight". Liveness and ownership are never decided by a timestamp.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// The source of time for the library, which also waits for time to pass.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current moment of a steady clock, which also counts the time during which the machine was
    /// suspended.
    fn now(&self) -> Moment;

    /// Returns the current wall-clock time.
    fn wall(&self) -> Timestamp;

    /// Completes after this much time has passed.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// A point on the steady clock of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Moment(Duration);

impl Moment {
    /// Returns the moment at which this much time has passed since the clock's arbitrary beginning.
    pub const fn at(since_beginning: Duration) -> Self {
        Self(since_beginning)
    }

    /// Returns the time from `earlier` to this one; zero if this one is not later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, duration: Duration) -> Moment {
        Moment(self.0.saturating_add(duration))
    }
}

/// A wall-clock time, in milliseconds since 1970-01-01 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The latest time. Every engine can store it, and nobody will wait for it.
    pub const LATEST: Self = Self(i64::MAX as u64);

    /// Returns the time this many milliseconds after 1970-01-01 UTC, at most [`LATEST`](Timestamp::LATEST).
    pub const fn from_millis(millis: u64) -> Self {
        if millis > Self::LATEST.0 { Self::LATEST } else { Self(millis) }
    }

    /// Returns the milliseconds since 1970-01-01 UTC.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this one; zero if this one is not later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Timestamp;
    fn add(self, duration: Duration) -> Timestamp {
        Timestamp::from_millis(self.0.saturating_add(duration.as_millis().try_into().unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Timestamp;
    fn sub(self, duration: Duration) -> Timestamp {
        Timestamp(self.0.saturating_sub(duration.as_millis().try_into().unwrap_or(u64::MAX)))
    }
}

impl From<std::time::SystemTime> for Timestamp {
    fn from(time: std::time::SystemTime) -> Self {
        let since = time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self::from_millis(since.as_millis().try_into().unwrap_or(u64::MAX))
    }
}

/// Formats the time as in RFC 3339, in UTC, to the millisecond: `2026-11-15T08:00:00.000Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = i64::try_from(self.0).unwrap_or(i64::MAX);
        // A time outside the calendar's range is shown as the last time within it.
        let time = jiff::Timestamp::from_millisecond(millis).unwrap_or(jiff::Timestamp::MAX);
        write!(f, "{time:.3}")
    }
}

/// The clock of the machine. It waits with tokio's timer.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

// This is the only place where the system's time is read.
#[allow(clippy::disallowed_methods)]
impl Clock for SystemClock {
    #[cfg(target_os = "linux")]
    fn now(&self) -> Moment {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Moment(Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32))
    }

    // On other systems the standard library's clock is used. It may stand still while the machine sleeps. A
    // worker that wakes from such a sleep learns only from its next heartbeat that it was declared dead.
    #[cfg(not(target_os = "linux"))]
    fn now(&self) -> Moment {
        use std::sync::OnceLock;
        use std::time::Instant;
        static BEGINNING: OnceLock<Instant> = OnceLock::new();
        Moment(BEGINNING.get_or_init(Instant::now).elapsed())
    }

    fn wall(&self) -> Timestamp {
        std::time::SystemTime::now().into()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_stay_within_what_engines_can_store() {
        assert_eq!(Timestamp::from_millis(u64::MAX), Timestamp::LATEST);
        assert_eq!(Timestamp::from_millis(5) + Duration::MAX, Timestamp::LATEST);
        assert_eq!(Timestamp::from_millis(5) - Duration::MAX, Timestamp::from_millis(0));
    }

    #[test]
    fn times_are_shown_as_people_write_them() {
        assert_eq!(Timestamp::from_millis(1_794_729_600_007).to_string(), "2026-11-15T08:00:00.007Z");
        assert_eq!(Timestamp::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert!(Timestamp::LATEST.to_string().starts_with("9999-12-"));
    }

    #[test]
    fn the_system_clock_is_steady_and_sane() {
        let clock = SystemClock;
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(clock.wall() > Timestamp::from_millis(1_700_000_000_000));
    }
}
