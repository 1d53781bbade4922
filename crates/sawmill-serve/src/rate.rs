//! Limits the request rate of each caller with token buckets.

use std::collections::HashMap;
use std::sync::Mutex;

use sawmill::engine::runtime::{Env, Moment};

use crate::locked;

/// The maximum number of buckets. When there are more, full buckets are dropped, which makes no difference to
/// their callers.
const MAX_CALLERS: usize = 10_000;

pub(crate) struct Rates {
    env: Env,
    per_second: f64,
    buckets: Mutex<HashMap<String, Bucket>>,
}

struct Bucket {
    left: f64,
    at: Moment,
}

impl Bucket {
    fn fill(&mut self, now: Moment, per_second: f64) {
        self.left = (self.left + now.since(self.at).as_secs_f64() * per_second).min(2.0 * per_second);
        self.at = now;
    }
}

impl Rates {
    pub(crate) fn new(env: Env, per_second: u32) -> Self {
        Self { env, per_second: f64::from(per_second.max(1)), buckets: Mutex::default() }
    }

    /// Takes one request from the caller's bucket. Returns false if it is empty.
    pub(crate) fn take(&self, caller: &str) -> bool {
        let now = self.env.now();
        let mut buckets = locked(&self.buckets);
        if buckets.len() >= MAX_CALLERS && !buckets.contains_key(caller) {
            buckets.retain(|_, bucket| {
                bucket.fill(now, self.per_second);
                bucket.left < 2.0 * self.per_second
            });
        }
        if buckets.len() >= MAX_CALLERS && !buckets.contains_key(caller) {
            return false;
        }
        let full = Bucket { left: 2.0 * self.per_second, at: now };
        let bucket = buckets.entry(caller.to_owned()).or_insert(full);
        bucket.fill(now, self.per_second);
        if bucket.left < 1.0 {
            return false;
        }
        bucket.left -= 1.0;
        true
    }

    /// Gives back a request that should not count.
    pub(crate) fn give_back(&self, caller: &str) {
        if let Some(bucket) = locked(&self.buckets).get_mut(caller) {
            bucket.left = (bucket.left + 1.0).min(2.0 * self.per_second);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_allowed_and_then_each_waits_for_its_own_bucket() {
        let rates = Rates::new(Env::system(), 1);
        assert_eq!([rates.take("a"), rates.take("a"), rates.take("a")], [true, true, false]);
        assert!(rates.take("b"));
        rates.give_back("a");
        assert_eq!([rates.take("a"), rates.take("a")], [true, false]);
    }

    #[test]
    fn a_bucket_fills_with_time_and_not_beyond_its_size() {
        let at = |seconds| Moment::at(std::time::Duration::from_secs(seconds));
        let mut bucket = Bucket { left: 0.0, at: at(0) };
        bucket.fill(at(1), 5.0);
        assert_eq!(bucket.left, 5.0);
        bucket.fill(at(100), 5.0);
        assert_eq!(bucket.left, 10.0);
    }
}
