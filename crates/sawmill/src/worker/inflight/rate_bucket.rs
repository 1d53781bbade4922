//! Token buckets: how many messages may start by now at a rate.
//!
//! A bucket fills with time. It holds as many starts as come in 100 ms, at least one, and each start takes
//! one out. So in any period at most as many messages start as the rate allows in it, plus those that the
//! bucket holds.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use sawmill_engine::model::START;
use sawmill_engine::runtime::Moment;

/// A token bucket. Its rate is in billionths of a start per second, its content in billionths of a start.
#[derive(Debug, Clone)]
pub(crate) struct RateBucket {
    rate: u64,
    held: u64,
    at: Moment,
}

impl RateBucket {
    /// Makes a bucket that is empty and does not fill.
    pub(crate) fn dry() -> Self {
        Self { rate: 0, held: 0, at: Moment::default() }
    }

    /// Makes a full bucket.
    fn full(rate: u64, now: Moment) -> Self {
        let mut bucket = Self { rate, held: 0, at: now };
        bucket.held = bucket.most();
        bucket
    }

    fn most(&self) -> u64 {
        START.max(self.rate / 10)
    }

    fn held(&self, now: Moment) -> u64 {
        let came = now.since(self.at).as_nanos() * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(came).unwrap_or(u64::MAX).saturating_add(self.held).min(self.most())
    }

    /// Sets the rate at which it fills from now on.
    pub(crate) fn set_rate(&mut self, rate: u64, now: Moment) {
        if rate != self.rate {
            (self.held, self.at) = (self.held(now), now);
            self.rate = rate;
            self.held = self.held.min(self.most());
        }
    }

    /// Returns how many messages may start now.
    pub(crate) fn starts(&self, now: Moment) -> usize {
        if self.rate == 0 { 0 } else { (self.held(now) / START) as usize }
    }

    /// Notes that a message has started.
    pub(crate) fn take(&mut self, now: Moment) {
        (self.held, self.at) = (self.held(now).saturating_sub(START), now);
    }

    /// Returns when the next message may start; `None` at a rate of zero.
    pub(crate) fn next(&self, now: Moment) -> Option<Moment> {
        if self.rate == 0 {
            return None;
        }
        let missing = START.saturating_sub(self.held(now));
        // Rounded up: a moment earlier nothing could start.
        let nanos = (u128::from(missing) * 1_000_000_000).div_ceil(u128::from(self.rate));
        Some(now + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    fn is_full(&self, now: Moment) -> bool {
        self.held(now) >= self.most()
    }

    /// Returns how many starts come in this period.
    pub(crate) fn brings(&self, time: Duration) -> usize {
        (time.as_nanos() * u128::from(self.rate) / 1_000_000_000 / u128::from(START)) as usize
    }
}

/// A bucket for each key whose messages were started lately.
#[derive(Debug)]
pub(crate) struct KeyRates {
    rate: u64,
    buckets: BTreeMap<Bytes, RateBucket>,
    /// With this many buckets, full ones are dropped: a key without a bucket counts as having a full one.
    sweep_at: usize,
}

const FEWEST_SWEPT: usize = 1000;

impl KeyRates {
    pub(crate) fn new(rate: u64) -> Self {
        Self { rate, buckets: BTreeMap::new(), sweep_at: FEWEST_SWEPT }
    }

    /// Takes a start out of the key's bucket. Returns when there will be one if there is none now.
    pub(crate) fn take(&mut self, key: &Bytes, now: Moment) -> Option<Moment> {
        if let Some(bucket) = self.buckets.get_mut(key) {
            if bucket.starts(now) == 0 {
                return bucket.next(now);
            }
            bucket.take(now);
            return None;
        }
        if self.buckets.len() >= self.sweep_at {
            self.buckets.retain(|_, bucket| !bucket.is_full(now));
            self.sweep_at = FEWEST_SWEPT.max(2 * self.buckets.len());
        }
        let mut bucket = RateBucket::full(self.rate, now);
        bucket.take(now);
        self.buckets.insert(key.clone(), bucket);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::at(Duration::from_millis(millis))
    }

    fn bucket(per_second: u64, now: Moment) -> RateBucket {
        let mut bucket = RateBucket::dry();
        bucket.set_rate(per_second * START, now);
        bucket
    }

    #[test]
    fn a_bucket_starts_empty_and_fills_with_time() {
        let mut bucket = bucket(10, at(0));
        assert_eq!((bucket.starts(at(0)), bucket.starts(at(99)), bucket.starts(at(100))), (0, 0, 1));
        assert_eq!(bucket.next(at(0)), Some(at(100)));
        bucket.take(at(100));
        assert_eq!((bucket.starts(at(100)), bucket.next(at(130))), (0, Some(at(200))));
    }

    #[test]
    fn what_it_saves_up_is_little() {
        assert_eq!(bucket(10, at(0)).starts(at(60_000)), 1);
        assert_eq!(bucket(500, at(0)).starts(at(60_000)), 50);
    }

    #[test]
    fn no_second_sees_more_than_the_rate_and_what_was_saved() {
        for rate in [1, 7, 100, 1000] {
            let mut bucket = bucket(rate, at(0));
            let mut starts = Vec::new();
            for millis in 0..5000 {
                // It is idle at first, and asked at odd times later.
                for _ in 0..if millis > 1500 && millis % 3 == 0 { bucket.starts(at(millis)) } else { 0 } {
                    bucket.take(at(millis));
                    starts.push(millis);
                }
            }
            let saved = (rate / 10).max(1);
            let most = starts
                .iter()
                .map(|start| starts.iter().filter(|t| (*start..start + 1000).contains(*t)).count());
            assert!(most.max().unwrap() as u64 <= rate + saved);
            assert!(starts.len() as u64 >= 3 * rate, "{} at {rate}", starts.len());
        }
    }

    #[test]
    fn at_the_moment_it_names_there_is_a_start() {
        for rate in [31, 333_333_333, 999_999_937, 7 * START] {
            let mut bucket = RateBucket::dry();
            let mut now = at(5);
            bucket.set_rate(rate, now);
            for _ in 0..10 {
                now = bucket.next(now).unwrap();
                assert!(bucket.starts(now) >= 1, "{rate}");
                bucket.take(now);
            }
        }
    }

    #[test]
    fn at_a_rate_of_zero_nothing_starts_whatever_was_saved() {
        let mut bucket = bucket(10, at(0));
        bucket.set_rate(0, at(1000));
        assert_eq!((bucket.starts(at(9000)), bucket.next(at(9000))), (0, None));
    }

    #[test]
    fn keys_wait_for_themselves_alone_and_are_forgotten_when_they_are_full() {
        let mut keys = KeyRates::new(START);
        let key = |i: usize| Bytes::from(i.to_string());
        assert_eq!(keys.take(&key(0), at(0)), None);
        assert_eq!(keys.take(&key(0), at(400)), Some(at(1000)));
        assert_eq!(keys.take(&key(1), at(400)), None);
        assert_eq!(keys.take(&key(0), at(1000)), None);
        for i in 0..100_000 {
            keys.take(&key(i), at(2000 + i as u64));
        }
        assert!(keys.buckets.len() <= 2 * FEWEST_SWEPT + 2, "{}", keys.buckets.len());
    }
}
