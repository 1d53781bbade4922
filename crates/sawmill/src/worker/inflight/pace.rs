//! How many messages to have in hand: as many as the slots can finish in about 200 ms, at least one each, at
//! most a limit.
//!
//! So messages with long handlers are claimed one at a time, and do not wait on a busy worker while another
//! is idle. Messages with short handlers are claimed in blocks, each for one read and one write.

use std::time::Duration;

const AHEAD: Duration = Duration::from_millis(200);
/// About the most bytes of payload to have in hand, beyond one message for each slot.
const AHEAD_BYTES: usize = 16 << 20;

/// Remembers how long handlers take.
pub(crate) struct Pace {
    most: usize,
    /// A moving average in nanoseconds; `None` until the first handler has ended.
    average: Option<f64>,
    /// How many messages of the last block's average size make up [`AHEAD_BYTES`].
    light: usize,
}

impl Pace {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, average: None, light: usize::MAX }
    }

    pub(crate) fn record(&mut self, took: Duration) {
        let took = took.as_nanos() as f64;
        self.average = Some(match self.average {
            // Slow handlers count more than quick ones: to claim too much is worse than to claim too little.
            Some(average) if took < average => average + (took - average) / 16.0,
            Some(average) => average + (took - average) / 4.0,
            None => took,
        });
    }

    /// Notes the size of a block's messages.
    pub(crate) fn weigh(&mut self, messages: usize, bytes: usize) {
        if let Some(each) = bytes.checked_div(messages) {
            self.light = AHEAD_BYTES / each.max(1);
        }
    }

    /// Returns how many messages to have in hand for this many slots.
    pub(crate) fn target(&self, slots: usize) -> usize {
        let each = match self.average {
            Some(average) => (AHEAD.as_nanos() as f64 / average.max(100.0)).max(1.0),
            None => 1.0,
        };
        let most = self.most.min(self.light.max(slots));
        ((slots as f64 * each) as usize).clamp(1, most.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target_at(took: Duration) -> usize {
        let mut pace = Pace::new(1000);
        for _ in 0..200 {
            pace.record(took);
        }
        pace.target(4)
    }

    #[test]
    fn f3_a_worker_wants_what_its_slots_can_take() {
        assert_eq!(Pace::new(1000).target(4), 4, "one each, as long as nothing is known");
        assert_eq!(target_at(Duration::from_secs(60)), 4);
        assert_eq!(target_at(Duration::from_millis(200)), 4);
        assert_eq!(target_at(Duration::from_millis(20)), 40);
        assert_eq!(target_at(Duration::from_nanos(1)), 1000);
        assert_eq!(Pace::new(2).target(4), 2, "never more than the limit");
    }

    #[test]
    fn large_messages_are_claimed_a_few_at_a_time() {
        let mut pace = Pace::new(1000);
        pace.record(Duration::from_nanos(1));
        pace.weigh(10, 10 << 20);
        assert_eq!(pace.target(4), 16);
        pace.weigh(1, 16 << 20);
        assert_eq!(pace.target(4), 4, "one for each slot in any case");
        pace.weigh(0, 0);
        pace.weigh(1000, 100_000);
        assert_eq!(pace.target(4), 1000);
    }

    #[test]
    fn one_slow_message_makes_it_careful() {
        let mut pace = Pace::new(1000);
        for _ in 0..100 {
            pace.record(Duration::from_micros(10));
        }
        pace.record(Duration::from_secs(1));
        assert_eq!(pace.target(1), 1);
    }
}
