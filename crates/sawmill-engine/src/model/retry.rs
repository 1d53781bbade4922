//! Retry policies: when a failed message is tried again, and how often.
//!
//! A policy is pure arithmetic on the number of the attempt. The copies that wait on the lanes are made in
//! `copies.rs`.

use std::time::Duration;

use crate::runtime::Rng;

/// The policy that says when a failed message is tried again, and how often.
///
/// ```
/// use std::time::Duration;
/// use sawmill::RetryPolicy;
///
/// // Up to 8 retries: the first at once, then after about 2 s, 4 s, 8 s … at most a minute.
/// let policy = RetryPolicy::retries(8).backoff(Duration::from_secs(2), Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    retries: u32,
    immediate: u32,
    first: Duration,
    most: Duration,
}

impl Default for RetryPolicy {
    /// Returns a policy of five retries: one at once, then with backoff from one second to one hour.
    fn default() -> Self {
        Self::retries(5)
    }
}

impl RetryPolicy {
    /// Allows at most this many retries after the first attempt: one at once, the others with backoff.
    pub fn retries(retries: u32) -> Self {
        Self { retries, immediate: 1, first: Duration::from_secs(1), most: Duration::from_secs(3600) }
    }

    /// Allows no retry: the first failure is final.
    pub fn none() -> Self {
        Self::retries(0)
    }

    /// Sets how many of the retries are made at once, before the backoff begins.
    #[must_use]
    pub fn immediate(mut self, immediate: u32) -> Self {
        self.immediate = immediate;
        self
    }

    /// Sets the wait before a retry: `first`, doubled each time, at most `most`, with jitter.
    #[must_use]
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        (self.first, self.most) = (first, most.max(first));
        self
    }

    /// Decides what follows when the attempt with this number (from 1) has failed.
    pub fn after(&self, attempt: u32, rng: &dyn Rng) -> NextAttempt {
        if attempt > self.retries {
            NextAttempt::GiveUp
        } else if attempt <= self.immediate {
            NextAttempt::AtOnce
        } else {
            let doublings = (attempt - self.immediate - 1).min(30);
            NextAttempt::After(rng.jitter(self.first.saturating_mul(1 << doublings).min(self.most)))
        }
    }
}

/// The decision after a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextAttempt {
    /// Try again at once.
    AtOnce,
    /// Try again after this time.
    After(Duration),
    /// Do not try again.
    GiveUp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::SystemRng;

    #[test]
    fn f7_one_retry_at_once_then_later_ones_with_backoff_then_no_more() {
        let policy = RetryPolicy::retries(4).backoff(Duration::from_secs(1), Duration::from_secs(3));
        assert_eq!(policy.after(1, &SystemRng), NextAttempt::AtOnce);
        for (attempt, seconds) in [(2, 1.0), (3, 2.0), (4, 3.0)] {
            let NextAttempt::After(wait) = policy.after(attempt, &SystemRng) else {
                panic!("attempt {attempt}")
            };
            assert!((0.75 * seconds..=1.25 * seconds).contains(&wait.as_secs_f64()), "{attempt}: {wait:?}");
        }
        assert_eq!(policy.after(5, &SystemRng), NextAttempt::GiveUp);
        assert_eq!(RetryPolicy::none().after(1, &SystemRng), NextAttempt::GiveUp);
    }

    #[test]
    fn backoff_does_not_overflow() {
        let policy = RetryPolicy::retries(u32::MAX).backoff(Duration::MAX, Duration::MAX);
        assert!(matches!(policy.after(100, &SystemRng), NextAttempt::After(_)));
    }
}
