//! Checks unique messages: no two messages with the same name are live at once, and no name stays taken for
//! ever.

use std::time::Duration;

use bytes::Bytes;
use sawmill::engine::model::Topic;
use sawmill::{Message, MessageId};

use super::book::Book;
use super::invariant::Invariant;
use super::settled::Hidden;

impl Book {
    /// Records that the message with this number is pushed under this name.
    pub fn named(&mut self, number: usize, name: &str) {
        self.names.insert(number, name.to_owned());
    }

    /// Returns true if two messages have the same name and topic.
    pub(super) fn share_a_name(&self, one: usize, two: usize) -> bool {
        let name = self.names.get(&one);
        name.is_some()
            && name == self.names.get(&two)
            && self.pushed[one].intent.topic == self.pushed[two].intent.topic
    }

    /// Checks a message that arrived in its topic: earlier messages of the same name must have ended in every
    /// group.
    pub fn check_only_live(&mut self, topic: &Topic, message: &Message, hidden: Hidden<'_>) {
        let number = self.origins.get(&message.id).copied();
        let Some(number) = number.filter(|_| topic.name.as_lane().is_none()) else { return };
        if !self.names.contains_key(&number) || self.is_named_for_a_time(number) {
            return;
        }
        let others = self.origins.iter().filter(|(id, other)| {
            **id != message.id && self.share_a_name(number, **other) && self.is_live(**id, hidden)
        });
        let live = others.map(|(id, _)| *id).next();
        self.check(Invariant::Unique, live.is_none(), |book| {
            let live = live.unwrap_or(message.id);
            let what = format!("{} was added while {live} of the same name was live", message.id);
            (format!("{what}: {:?}", book.names.get(&number)), vec![message.id.to_string(), live.to_string()])
        });
    }

    /// Checks the ids that a push returned. If an earlier message of the same name was returned, it may have
    /// been settled during the push, but not before it.
    pub fn answered(&mut self, numbers: &[usize], ids: &[MessageId], began: Duration) {
        for (number, id) in numbers.iter().zip(ids) {
            let Some(other) = self.origins.get(id).copied().filter(|other| other != number) else { continue };
            // A name that is taken for a period stays taken, whatever happens to its message.
            if self.is_named_for_a_time(other) || self.undoable.is_needed {
                continue;
            }
            let over = self
                .groups_of(other)
                .map(|group| self.handled.get(&(group, *id)).and_then(|handling| handling.over));
            // A message is over when its last group has settled it.
            let over = over.collect::<Option<Vec<_>>>().and_then(|over| over.into_iter().max());
            self.check(Invariant::Unique, over.is_none_or(|over| over >= began), |_| {
                let what = format!(
                    "the push of message {number} at {began:?} returned {id}: message {other}, already settled at {over:?}"
                );
                (what, vec![id.to_string()])
            });
        }
    }

    fn is_live(&self, id: MessageId, hidden: Hidden<'_>) -> bool {
        if self.unwanted.contains(&id) {
            return false;
        }
        let Some(number) = self.origins.get(&id).copied() else { return false };
        self.groups_of(number).any(|group| {
            let runs = self.handled.get(&(group, id)).map_or(&[][..], |handling| &handling.runs);
            let mut ends = runs.iter().map(|run| self.runs[run.0].how);
            let over = ends.any(|how| how == Some(super::How::Done) || self.is_only_logged(group, id, how));
            !over && !self.is_dead(group, id, hidden)
        })
    }

    /// Returns the groups that work the topic of the message with this number.
    fn groups_of(&self, number: usize) -> impl Iterator<Item = usize> + '_ {
        let topic = &self.pushed[number].intent.topic;
        (0..self.rules.groups.len()).filter(move |group| self.rules.groups[*group].topics.contains(topic))
    }

    /// Checks at the end, when everything is settled, that no message in the log still holds a name, whether
    /// or not its pusher could confirm the push. `value` is the ledger's value.
    pub fn names_are_free(&mut self, key: &str, value: &Bytes) {
        let taken = serde_json::from_slice::<serde_json::Value>(value).ok();
        let names = taken.as_ref().and_then(|bucket| bucket.get("names")?.as_object());
        // A name that was reserved for a message that never arrived does no harm: the next push of that name
        // uses its id.
        let is_there = |taken: &serde_json::Value| {
            let id = taken.get("id").and_then(|id| id.as_str()?.parse::<MessageId>().ok());
            let sure = taken.get("sure") == Some(&serde_json::Value::Bool(true));
            // A name that is taken for a period becomes free when the period ends.
            taken.get("until").is_none() && (sure || id.is_none_or(|id| self.origins.contains_key(&id)))
        };
        let stuck = names.and_then(|names| names.iter().find(|(_, taken)| is_there(taken)));
        let stuck = stuck.map(|(name, taken)| format!("{name}: {taken}"));
        let readable = names.is_some();
        self.check(Invariant::Unique, readable && stuck.is_none(), |_| {
            let what = format!("{key}: a name is taken although everything is settled: {stuck:?}");
            (what, vec![key.to_owned()])
        });
    }

    /// Returns true if the message with this number is in the log.
    pub fn is_in_the_log(&self, number: usize) -> bool {
        self.pushed.get(number).is_some_and(|pushed| pushed.id.is_some())
    }
}
