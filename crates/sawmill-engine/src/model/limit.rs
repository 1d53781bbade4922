//! Limits: how many messages of a group may run at once, and how many may start within a time.

use std::time::Duration;

use crate::{Error, Result};

/// A limit on how many messages may run at once, and on how many may start within a time. A worker is given
/// one with `WorkerBuilder::limit` of the crate `sawmill`.
///
/// ```
/// use std::time::Duration;
/// use sawmill::Limit;
///
/// let few_at_once = Limit::running(3);
/// let slowly = Limit::per_second(10);
/// let slower = Limit::rate(100, Duration::from_secs(60));
/// let both = Limit::running(3).and(Limit::per_second(10));
/// # let _ = (few_at_once, slowly, slower, both);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a limit is to be given to a worker"]
pub struct Limit {
    running: Option<u32>,
    rate: Option<Rate>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rate {
    count: u32,
    per: Duration,
}

/// The unit of rates: one start is this many billionths of a start.
pub const START: u64 = 1_000_000_000;
/// The highest rate that a limit may have, in starts per second.
const FASTEST: u128 = 1_000_000_000;
/// The longest time over which a rate may count starts.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

impl Limit {
    /// Limits how many messages run at once.
    pub fn running(count: u32) -> Self {
        Self { running: Some(count), rate: None }
    }

    /// Limits how many messages start in a second.
    pub fn per_second(count: u32) -> Self {
        Self::rate(count, Duration::from_secs(1))
    }

    /// Limits how many messages start in this time.
    pub fn rate(count: u32, per: Duration) -> Self {
        Self { running: None, rate: Some(Rate { count, per }) }
    }

    /// Combines two limits; `other` wins where both set the same field.
    pub fn and(self, other: Limit) -> Self {
        Self { running: other.running.or(self.running), rate: other.rate.or(self.rate) }
    }

    /// Returns an error if the limit makes no sense.
    pub fn check(&self) -> Result<()> {
        if self.running == Some(0) || self.rate.is_some_and(|rate| rate.count == 0) {
            return Err(Error::invalid(
                "a limit of zero would never start anything: give at least 1, or pause the group",
            ));
        }
        let Some(Rate { count, per }) = self.rate else { return Ok(()) };
        if per.is_zero() || per > LONGEST || u128::from(count) * 1_000_000_000 / per.as_nanos() > FASTEST {
            return Err(Error::invalid(format!(
                "a rate of {count} in {per:?} makes no sense: count over a time of up to {LONGEST:?}, and not more than \
                 {FASTEST} in a second"
            )));
        }
        Ok(())
    }

    /// Returns an error if the limit makes no sense as a limit per key.
    pub fn check_per_key(&self) -> Result<()> {
        self.check()?;
        match self.running {
            Some(2..) => Err(Error::invalid(
                "messages of one key never run at the same time, so that a limit per key of more than one running means \
                 nothing: limit the rate per key, or the group as a whole",
            )),
            _ => Ok(()),
        }
    }

    /// Returns how many messages may run at once.
    pub fn max_running(&self) -> Option<u64> {
        self.running.map(u64::from)
    }

    /// Returns how much may start in a second, in [billionths of a start](START).
    pub fn max_starts(&self) -> Option<u64> {
        let Rate { count, per } = self.rate?;
        let each_second = u128::from(count) * u128::from(START) * 1_000_000_000 / per.as_nanos().max(1);
        // The result is never zero, even for a rate per year.
        Some(u64::try_from(each_second).unwrap_or(u64::MAX).max(1))
    }

    /// Returns how many workers may share the limit at most, so that each can have at least one message
    /// running, and one start within the time of the rate.
    pub fn workers(&self) -> usize {
        let count = self.running.into_iter().chain(self.rate.map(|rate| rate.count)).min();
        count.map_or(usize::MAX, |count| count.max(1) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        for limit in [
            Limit::running(0),
            Limit::per_second(0),
            Limit::rate(1, Duration::ZERO),
            Limit::rate(1, Duration::MAX),
            Limit::rate(u32::MAX, Duration::from_nanos(1)),
            Limit::running(3).and(Limit::per_second(0)),
        ] {
            assert!(limit.check().is_err(), "{limit:?}");
        }
        for limit in [Limit::running(1), Limit::per_second(u32::MAX / 5), Limit::rate(1, LONGEST)] {
            assert!(limit.check().is_ok(), "{limit:?}");
        }
        assert!(Limit::running(1).check_per_key().is_ok());
        assert!(Limit::running(2).check_per_key().is_err());
    }

    #[test]
    fn two_limits_hold_together() {
        let both = Limit::running(3).and(Limit::rate(20, Duration::from_secs(2)));
        assert_eq!((both.max_running(), both.max_starts()), (Some(3), Some(10 * START)));
        assert_eq!(both.workers(), 3);
        assert_eq!(both.and(Limit::running(5)).max_running(), Some(5));
        assert_eq!(Limit::per_second(7).workers(), 7);
    }
}
