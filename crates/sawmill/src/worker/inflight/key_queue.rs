//! Key queues: messages of one key never run at the same time, so they wait behind one another.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::message::HeldMessage;

/// A key of a topic. Lanes count as the topic that they belong to.
pub(crate) type QueueKey = (usize, Bytes);

/// The queues of all keys that have messages in hand.
#[derive(Default)]
pub(super) struct KeyQueues {
    queues: BTreeMap<QueueKey, KeyQueue>,
}

struct KeyQueue {
    /// How many messages must be out of the way before the next one may come forward: the one that is ready,
    /// waits, runs or settles, and those that become dead letters without being started.
    holders: usize,
    behind: VecDeque<HeldMessage>,
}

impl KeyQueues {
    /// Puts a message in its queue. Returns it if none is before it: then it holds the queue from now on.
    pub(super) fn join(&mut self, held: HeldMessage) -> Option<HeldMessage> {
        let Some(key) = &held.queue_key else { return Some(held) };
        match self.queues.get_mut(key) {
            Some(queue) => {
                queue.behind.push_back(held);
                None
            }
            None => {
                self.queues.insert(key.clone(), KeyQueue { holders: 1, behind: VecDeque::new() });
                Some(held)
            }
        }
    }

    /// Takes a message out of the way of its queue. If it was the last that held the queue, the next one
    /// comes forward.
    pub(super) fn advance(&mut self, key: &QueueKey) -> Option<HeldMessage> {
        let queue = self.queues.get_mut(key)?;
        queue.holders -= 1;
        if queue.holders > 0 {
            return None;
        }
        let next = queue.behind.pop_front();
        match next {
            Some(_) => queue.holders = 1,
            None => {
                self.queues.remove(key);
            }
        }
        next
    }

    /// Takes out messages that wait behind others.
    pub(super) fn extract(&mut self, mut wanted: impl FnMut(&HeldMessage) -> bool) -> Vec<HeldMessage> {
        let extract = |queue: &mut KeyQueue| extract(&mut queue.behind, &mut wanted);
        self.queues.values_mut().flat_map(extract).collect()
    }

    /// Takes out messages that wait behind others. Each holds its queue until it is out of the way.
    pub(super) fn extract_as_holders(
        &mut self,
        mut wanted: impl FnMut(&HeldMessage) -> bool,
    ) -> Vec<HeldMessage> {
        let extract = |queue: &mut KeyQueue| {
            let taken = extract(&mut queue.behind, &mut wanted);
            queue.holders += taken.len();
            taken
        };
        self.queues.values_mut().flat_map(extract).collect()
    }
}

/// Takes the wanted messages out of a queue. The others keep their order.
pub(super) fn extract(
    queue: &mut VecDeque<HeldMessage>,
    mut wanted: impl FnMut(&HeldMessage) -> bool,
) -> Vec<HeldMessage> {
    if !queue.iter().any(&mut wanted) {
        return Vec::new();
    }
    let (taken, rest): (Vec<HeldMessage>, Vec<HeldMessage>) =
        std::mem::take(queue).into_iter().partition(|held| wanted(held));
    *queue = rest.into();
    taken
}
