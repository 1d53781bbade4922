//! Limits: how many messages of a group run at once, and how many start in a time.

use std::time::Duration;

use crate::error::{Error, Result};

/// How many messages may run at once, and how many may start in a time. See
/// [`WorkerBuilder::limit`](crate::WorkerBuilder::limit).
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

/// What a rate is counted in: billionths of a start.
pub(crate) const START: u64 = 1_000_000_000;
/// The most starts in a second that are worth a limit.
const FASTEST: u128 = 1_000_000_000;
/// The longest time over which starts are counted.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

impl Limit {
    /// So many run at once.
    pub fn running(count: u32) -> Self {
        Self { running: Some(count), rate: None }
    }

    /// So many start in a second.
    pub fn per_second(count: u32) -> Self {
        Self::rate(count, Duration::from_secs(1))
    }

    /// So many start in this time.
    pub fn rate(count: u32, per: Duration) -> Self {
        Self { running: None, rate: Some(Rate { count, per }) }
    }

    /// Both hold. Where both speak of the same thing, the other one counts.
    pub fn and(self, other: Limit) -> Self {
        Self { running: other.running.or(self.running), rate: other.rate.or(self.rate) }
    }

    /// An error if it makes no sense.
    pub(crate) fn check(&self) -> Result<()> {
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

    /// An error if it makes no sense as a limit of each key.
    pub(crate) fn check_per_key(&self) -> Result<()> {
        self.check()?;
        match self.running {
            Some(2..) => Err(Error::invalid(
                "messages of one key never run at the same time, so that a limit per key of more than one running means \
                 nothing: limit the rate per key, or the group as a whole",
            )),
            _ => Ok(()),
        }
    }

    /// How many run at once.
    pub(crate) fn most_running(&self) -> Option<u64> {
        self.running.map(u64::from)
    }

    /// How much may start in a second, in [billionths of a start](START).
    pub(crate) fn most_started(&self) -> Option<u64> {
        let Rate { count, per } = self.rate?;
        let each_second = u128::from(count) * u128::from(START) * 1_000_000_000 / per.as_nanos().max(1);
        // A year's rate is still some billionths.
        Some(u64::try_from(each_second).unwrap_or(u64::MAX).max(1))
    }

    /// How many workers share it at most: each is to have at least one message running, and one start in the rate's time.
    pub(crate) fn workers(&self) -> usize {
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
        assert_eq!((both.most_running(), both.most_started()), (Some(3), Some(10 * START)));
        assert_eq!(both.workers(), 3);
        assert_eq!(both.and(Limit::running(5)).most_running(), Some(5));
        assert_eq!(Limit::per_second(7).workers(), 7);
    }
}
