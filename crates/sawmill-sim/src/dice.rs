//! Randomness that a seed decides: everything random in a run comes from here.
//!
//! Each purpose (the scheduler, the network, every node) has a stream of its own, so that one more roll in one place does
//! not change what happens in all others.

use std::time::Duration;

use crate::faults::{Chance, Delay};

/// A stream of random numbers (splitmix64): the same seed and stream give the same numbers.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

impl Seeded {
    /// One of the streams of a seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix(seed ^ mix(stream.wrapping_add(1).wrapping_mul(STRIDE))))
    }

    /// A random number, all values alike.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STRIDE);
        mix(self.0)
    }

    /// A random number from 0 to `bound - 1`. A bound of 0 gives 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(bound)) >> 64) as u64
    }

    /// True as often as the chance says.
    pub fn hits(&mut self, chance: Chance) -> bool {
        // Without a roll when there is nothing to decide: most chances are zero in most seeds.
        chance != Chance::NEVER && self.below(Chance::ALL) < chance.parts()
    }

    /// A duration within these bounds.
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
        let first = |seed, stream| Seeded::new(seed, stream).roll();
        assert_eq!(first(1, 2), first(1, 2));
        assert_ne!(first(1, 2), first(2, 1));
        assert_ne!(first(1, 2), first(1, 3));
        assert_ne!(first(0, 0), 0);
    }

    #[test]
    fn chances_and_delays_keep_their_bounds() {
        let mut dice = Seeded::new(7, 0);
        let delay = Delay::millis(3, 5);
        assert!((0..1000).all(|_| (3..=5).contains(&dice.delay(delay).as_millis())));
        assert!((0..1000).all(|_| dice.hits(Chance::ALWAYS) && !dice.hits(Chance::NEVER)));
        let hits = (0..10_000).filter(|_| dice.hits(Chance::percent(20))).count();
        assert!((1_800..2_200).contains(&hits), "{hits}");
    }
}
