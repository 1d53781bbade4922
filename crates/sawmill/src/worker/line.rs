//! Lines: messages of one key never run at the same time, so they stand in line.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::item::Item;

/// Messages of one key in one topic, lanes included, form a line.
pub(super) type LineKey = (usize, Bytes);

/// The lines in which messages stand.
#[derive(Default)]
pub(super) struct Lines {
    lines: BTreeMap<LineKey, Line>,
}

struct Line {
    /// How many messages must be out of the way before the next one may come forward: the one that is ready, runs, waits
    /// or has failed; and those that become dead letters without being started.
    holders: usize,
    queue: VecDeque<Item>,
}

impl Lines {
    /// Puts a message in its line. It comes back if there is nothing before it, and holds the line from now on.
    pub(super) fn join(&mut self, item: Item) -> Option<Item> {
        let Some(key) = &item.line else { return Some(item) };
        match self.lines.get_mut(key) {
            Some(line) => {
                line.queue.push_back(item);
                None
            }
            None => {
                self.lines.insert(key.clone(), Line { holders: 1, queue: VecDeque::new() });
                Some(item)
            }
        }
    }

    /// A message is out of the way of its line. If it was the last that held it, the next one comes forward.
    pub(super) fn advance(&mut self, key: &LineKey) -> Option<Item> {
        let line = self.lines.get_mut(key)?;
        line.holders -= 1;
        if line.holders > 0 {
            return None;
        }
        let next = line.queue.pop_front();
        match next {
            Some(_) => line.holders = 1,
            None => {
                self.lines.remove(key);
            }
        }
        next
    }

    /// Drops messages that stand in line behind others.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Item) -> bool) {
        for line in self.lines.values_mut() {
            line.queue.retain(&mut keep);
        }
    }

    /// Takes messages out that stand in line behind others; each holds its line until it is out of the way.
    pub(super) fn retain_or_hold(&mut self, mut keep: impl FnMut(&Item) -> bool) {
        for line in self.lines.values_mut() {
            let before = line.queue.len();
            line.queue.retain(&mut keep);
            line.holders += before - line.queue.len();
        }
    }
}
