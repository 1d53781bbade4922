//! Randomness: the only place where the library gets random numbers.

use std::time::Duration;

/// A source of random numbers.
pub trait Rng: Send + Sync + 'static {
    /// Returns a random number. All values are equally likely.
    fn next_u64(&self) -> u64;
}

impl dyn Rng + '_ {
    /// Returns a random number from 0 to `bound - 1`. A bound of 0 gives 0.
    pub fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Makes a duration up to a quarter shorter or longer, so that many workers do not act in step.
    pub fn jitter(&self, duration: Duration) -> Duration {
        let nanos = duration.as_nanos().min(u128::from(u64::MAX)) as u64;
        Duration::from_nanos((nanos - nanos / 4).saturating_add(self.below(nanos / 2 + 1)))
    }
}

/// The random numbers of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

// This is the only place where the system's randomness is read.
#[allow(clippy::disallowed_methods)]
impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        // Without randomness, ids could repeat. A panic is better than that.
        getrandom::u64().expect("the operating system gives no random numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_stays_below() {
        let rng: &dyn Rng = &SystemRng;
        assert!((0..1000).all(|_| rng.below(3) < 3));
        assert_eq!(rng.below(0), 0);
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        let rng: &dyn Rng = &SystemRng;
        for _ in 0..1000 {
            let millis = rng.jitter(Duration::from_millis(1000)).as_millis();
            assert!((750..=1250).contains(&millis), "{millis}");
        }
    }
}
