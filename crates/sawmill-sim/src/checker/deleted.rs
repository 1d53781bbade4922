//! Deleted topics: their messages need not be accounted for, and must not come back.

use std::collections::BTreeSet;
use std::time::Duration;

use sawmill::Message;
use sawmill::engine::model::Topic;

use super::book::{Book, Run, RunId, Started};
use super::invariant::Invariant;
use super::messages::number_of;

/// After a TTL a worker has noticed the deletion or lost its lease. This much more is allowed for work in
/// progress.
const ALLOWANCE: Duration = Duration::from_secs(5);
/// The place of a run whose message is not in the log any more.
const NOWHERE: (usize, u16, u64) = (usize::MAX, 0, 0);

impl Book {
    /// Records that a topic or one of its lanes was removed. From now on its earlier messages need not be in
    /// the log or accounted for.
    pub fn deletion_begins(&mut self, topic: &Topic) {
        let name = topic.name.base().to_owned();
        if self.deletions.contains_key(&name) {
            return;
        }
        let mut gone = BTreeSet::new();
        for (index, known) in self.topics.iter_mut().enumerate() {
            if known.topic.name.base() == name {
                known.is_deleted = true;
                gone.insert(index);
            }
        }
        self.pushed.iter_mut().filter(|of| of.intent.topic == name).for_each(|of| of.is_deleted = true);
        self.places.retain(|(topic, ..), _| !gone.contains(topic));
        self.by_id.retain(|(topic, _), _| !gone.contains(topic));
        self.mirrors.retain(|_, mirror| !gone.contains(&mirror.topic));
        self.letters.retain(|topic, _| !gone.contains(topic));
        self.orphans.retain(|(key, _)| self.mirrors.contains_key(key));
        self.deletions.insert(name, None);
    }

    /// Invariant 2: after the acknowledged deletion of a topic, neither it nor its lanes have messages.
    /// `left` names those that still exist, with their message counts.
    pub fn deletion_acknowledged(&mut self, name: &str, left: &[(String, usize)]) {
        let full = left.iter().find(|(_, messages)| *messages > 0);
        self.check(Invariant::NothingInvented, full.is_none(), |_| {
            (format!("{name} was deleted, and there still are messages: {left:?}"), vec![name.to_owned()])
        });
        self.deletions.insert(name.to_owned(), Some(self.now));
    }

    /// Returns true if the topic with this name is being deleted.
    pub(super) fn is_being_deleted(&self, name: &str) -> bool {
        self.deletions.get(name) == Some(&None)
    }

    /// Returns true if a message that arrived in the log belongs to a deleted topic. Invariant 2: it must not
    /// arrive in another topic.
    pub(super) fn is_of_a_deleted_topic(&mut self, topic: &Topic, message: &Message) -> bool {
        let index = self.topic(topic);
        if self.topics[index].is_deleted {
            return true;
        }
        let number = number_of(&message.payload);
        let comes_back = number.is_some_and(|number| self.pushed.get(number).is_some_and(|of| of.is_deleted));
        if comes_back {
            let what = format!("{} was in a topic that is deleted, and is in {}", message.id, topic.name);
            self.wrong(Invariant::NothingInvented, what, vec![message.id.to_string()]);
        }
        comes_back
    }

    /// Records the start of a message of a deleted topic. Invariant 2: only a worker that cannot know of the
    /// deletion yet may start it.
    pub(super) fn started_though_deleted(&mut self, group: usize, started: &Started<'_>) -> Option<RunId> {
        // It may have become readable just before the topic was removed.
        let number = number_of(&started.message.payload)?;
        if !self.pushed.get(number)?.is_deleted {
            return None;
        }
        let over = self.deletions.get(&self.pushed[number].intent.topic).copied().flatten();
        let late = over.map_or(Duration::ZERO, |over| started.at.saturating_sub(over));
        self.check(Invariant::NothingInvented, late <= self.rules.ttl + ALLOWANCE, |_| {
            let what = format!("{} was started {late:?} after its topic was deleted", started.origin);
            (what, vec![started.origin.to_string()])
        });
        let run = RunId(self.runs.len());
        self.runs.push(Run {
            group,
            id: started.message.id,
            origin: started.origin,
            place: NOWHERE,
            token: started.token,
            worker: String::new(),
            node: started.node,
            at: started.at,
            how: None,
            ended: None,
            undone: false,
        });
        Some(run)
    }
}
