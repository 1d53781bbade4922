//! The trace of a run: a hash that equal runs share, and the latest lines as text.
//!
//! The hash covers every event, so runs that differ anywhere have different hashes. Lines cost time and are
//! kept only on request: a failing seed is run again with them, and the equal hash proves that it is the same
//! run.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use crate::control::NodeId;
use crate::rng::mix;

/// The events of a run as a hash and, if requested, the latest lines.
#[derive(Debug, Clone)]
pub struct Trace {
    hash: u64,
    events: u64,
    keep: usize,
    lines: VecDeque<Line>,
}

/// One event as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The simulated time since the start of the run.
    pub at: Duration,
    /// The name of the node.
    pub node: String,
    /// The description.
    pub text: String,
}

impl Trace {
    /// Creates an empty trace that keeps this many of its latest lines.
    pub fn keeping(keep: usize) -> Self {
        Self {
            hash: 0xcbf2_9ce4_8422_2325,
            events: 0,
            keep,
            lines: VecDeque::with_capacity(keep.min(10_000)),
        }
    }

    /// Returns the hash of all recorded events.
    pub fn hash(&self) -> u64 {
        mix(self.hash ^ self.events)
    }

    /// Returns how many events were recorded.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Returns the latest lines, oldest first.
    pub fn lines(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter()
    }

    /// Returns true if lines are kept; if not, their texts need not be made.
    pub(crate) fn keeps_lines(&self) -> bool {
        self.keep > 0
    }

    /// Records an event as numbers.
    pub(crate) fn record(&mut self, at: Duration, node: NodeId, what: &str, numbers: &[u64]) {
        self.events += 1;
        self.add(at.as_nanos() as u64);
        self.add(u64::from(node.number()));
        self.add(digest(what.as_bytes()));
        for number in numbers {
            self.add(*number);
        }
    }

    /// Keeps a line, and drops the oldest if there are too many.
    pub(crate) fn keep(&mut self, line: Line) {
        if self.lines.len() >= self.keep {
            self.lines.pop_front();
        }
        if self.keep > 0 {
            self.lines.push_back(line);
        }
    }

    fn add(&mut self, number: u64) {
        self.hash = (self.hash ^ number).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>12.6}s  {:<10} {}", self.at.as_secs_f64(), self.node, self.text)
    }
}

/// Hashes bytes for the trace, eight at a time.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hash = bytes.len() as u64 ^ 0xcbf2_9ce4_8422_2325;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0100_0000_01b3).rotate_left(29);
    }
    mix(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_an_event_counts() {
        let hash = |at, node, what: &str, numbers: &[u64]| {
            let mut trace = Trace::keeping(0);
            trace.record(Duration::from_nanos(at), node, what, numbers);
            trace.hash()
        };
        let base = hash(1, NodeId::WORLD, "a", &[1, 2]);
        assert_eq!(base, hash(1, NodeId::WORLD, "a", &[1, 2]));
        assert_ne!(base, hash(2, NodeId::WORLD, "a", &[1, 2]));
        assert_ne!(base, hash(1, NodeId::WORLD, "b", &[1, 2]));
        assert_ne!(base, hash(1, NodeId::WORLD, "a", &[2, 1]));
        assert_ne!(digest(b"a"), digest(b"a\0"));
    }

    #[test]
    fn only_the_latest_lines_are_kept() {
        let mut trace = Trace::keeping(2);
        for number in 0..5 {
            trace.keep(Line { at: Duration::ZERO, node: "n".into(), text: number.to_string() });
        }
        let texts: Vec<&str> = trace.lines().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["3", "4"]);
    }
}
