//! Seeded random numbers: the only source of randomness in a run.
//!
//! Each purpose (the scheduler, the network, every node) has its own stream, so that one more number in one
//! place does not change all others.

use std::time::Duration;

use crate::faults::{Chance, Delay};

/// A stream of random numbers (splitmix64). The same seed and stream give the same numbers.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

impl Seeded {
    /// Returns one of the streams of a seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_add(1).wrapping_mul(STRIDE))))
    }

    /// Returns a uniform random number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STRIDE);
        mix(self.0)
    }

    /// Returns a uniform random number below `bound`, or 0 for a bound of 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with this probability.
    pub fn hits(&mut self, chance: Chance) -> bool {
        // Draws no number if there is nothing to decide: most probabilities are zero in most seeds.
        chance != Chance::NEVER && self.below(Chance::ALL) < chance.parts()
    }

    /// Returns a random duration within these bounds.
    pub fn delay(&mut self, delay: Delay) -> Duration {
        let (from, to) = (delay.from.as_nanos() as u64, delay.to.as_nanos() as u64);
        Duration::from_nanos(from + self.below(to.saturating_sub(from) + 1))
    }
}

/// Spreads every bit of the input over all bits of the output.
pub(crate) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_depends_on_seed_and_purpose_alone() {
        let first = |seed, stream| Seeded::new(seed, stream).next_u64();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(2, 1));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(0, 0), 0);
    }

    #[test]
    fn chances_and_delays_keep_their_bounds() {
        let mut rng = Seeded::new(7, 0);
        let delay = Delay::millis(3, 5);
        assert!((0..1000).all(|_| (3..=5).contains(&rng.delay(delay).as_millis())));
        assert!((0..1000).all(|_| rng.hits(Chance::ALWAYS) && !rng.hits(Chance::NEVER)));
        let hits = (0..10_000).filter(|_| rng.hits(Chance::percent(20))).count();
        assert!((1_800..2_200).contains(&hits), "{hits}");
    }
}
