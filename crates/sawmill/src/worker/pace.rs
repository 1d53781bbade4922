//! How much to grab: what the slots can finish in about 200 ms, at least one message each, at most a limit.
//!
//! Long jobs are therefore grabbed one at a time, so that no idle worker waits behind a busy one, and short ones in blocks,
//! so that a block costs one read and one write.

use std::time::Duration;

const AHEAD: Duration = Duration::from_millis(200);
/// About how many bytes of payload to have in hand at most, as long as every slot has a message.
const AHEAD_BYTES: usize = 16 << 20;

/// Remembers how long handlers take.
pub(crate) struct Pace {
    most: usize,
    /// Nanoseconds, the latest weighing most; nothing is known at first.
    average: Option<f64>,
    /// How many messages as large as those of the last block have about [`AHEAD_BYTES`].
    light: usize,
}

impl Pace {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, average: None, light: usize::MAX }
    }

    pub(crate) fn record(&mut self, took: Duration) {
        let took = took.as_nanos() as f64;
        self.average = Some(match self.average {
            // Slower counts at once, faster only over time: to grab too much is worse than to grab too little.
            Some(average) if took < average => average + (took - average) / 16.0,
            Some(average) => average + (took - average) / 4.0,
            None => took,
        });
    }

    /// Takes note of how large the messages of a block are.
    pub(crate) fn weigh(&mut self, messages: usize, bytes: usize) {
        if let Some(each) = bytes.checked_div(messages) {
            self.light = AHEAD_BYTES / each.max(1);
        }
    }

    /// How many messages to have in hand for so many slots.
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
    fn large_messages_are_grabbed_a_few_at_a_time() {
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
