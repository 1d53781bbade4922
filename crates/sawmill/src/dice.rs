//! The one door through which randomness comes in.

use std::time::Duration;

/// Where the library gets its random numbers.
pub trait Dice: Send + Sync + 'static {
    /// A random number, all values alike.
    fn roll(&self) -> u64;
}

impl dyn Dice + '_ {
    /// A random number from 0 to `bound - 1`. A bound of 0 gives 0.
    pub fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }

    /// This duration, made up to a quarter shorter or longer, so that many workers do not act in step.
    pub fn jitter(&self, duration: Duration) -> Duration {
        let nanos = duration.as_nanos().min(u128::from(u64::MAX)) as u64;
        Duration::from_nanos((nanos - nanos / 4).saturating_add(self.below(nanos / 2 + 1)))
    }
}

/// Randomness of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemDice;

// The door itself: the only place where the system's randomness is read.
#[allow(clippy::disallowed_methods)]
impl Dice for SystemDice {
    fn roll(&self) -> u64 {
        // Without a source of randomness ids could repeat, which is worse than not going on.
        getrandom::u64().expect("the operating system gives no random numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_stays_below() {
        let dice: &dyn Dice = &SystemDice;
        assert!((0..1000).all(|_| dice.below(3) < 3));
        assert_eq!(dice.below(0), 0);
    }

    #[test]
    fn jitter_stays_within_a_quarter() {
        let dice: &dyn Dice = &SystemDice;
        for _ in 0..1000 {
            let millis = dice.jitter(Duration::from_millis(1000)).as_millis();
            assert!((750..=1250).contains(&millis), "{millis}");
        }
    }
}
