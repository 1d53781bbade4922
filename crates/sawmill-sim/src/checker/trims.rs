//! Checks trims: messages that every group has settled are dropped after their retention, and no others.

use std::time::Duration;

use sawmill::engine::model::{Lane, Topic};
use sawmill::{Message, Timestamp};

use super::book::{Book, Mirror};
use super::invariant::Invariant;

/// The maximum duration of a trim, from reading the cursors to its effect.
const LONGEST_TRIM: Duration = Duration::from_secs(10);

impl Book {
    /// Checks a message that was dropped from the log: no group needs it, and its retention is over.
    pub fn trimmed(&mut self, topic: &Topic, shard: u16, number: u64, message: &Message) {
        let index = self.topic(topic);
        if matches!(self.topics[index].lane, Some((_, Lane::Dead))) {
            if self.decision((index, shard, number)).is_some() {
                return;
            }
            let what = format!("the dead letter of {} was dropped", message.origin());
            return self.wrong(Invariant::NothingLost, what, vec![message.origin().to_string()]);
        }
        // A group without an entry for this shard has not read it.
        let mut groups = (0..self.rules.groups.len()).filter(|group| self.is_worked(*group, index));
        let mirror = |group: usize| self.mirror(group, (index, shard, number));
        let unsettled =
            groups.find(|group| mirror(*group).is_none_or(|mirror| !mirror.settled.contains(&number)));
        let just_sent_back = |mirror: &Mirror| {
            let under_way = self.now.saturating_sub(mirror.sent_at) < LONGEST_TRIM;
            under_way && mirror.settled_before.contains(&number)
        };
        let excused = unsettled.and_then(mirror).is_some_and(just_sent_back);
        let unsettled = unsettled.map(|group| self.entry(group, index, shard));
        self.is_void |= excused;
        self.check(Invariant::NothingLost, unsettled.is_none(), |_| {
            let key = unsettled.unwrap_or_default();
            (
                format!("{} was dropped from the log and is not settled in {key}", message.id),
                vec![message.id.to_string(), key],
            )
        });
        // Two clocks are involved: the pusher's sets the creation time, and the trimmer's gives the current
        // time.
        let (age, skew) = (self.wall.since(message.created), 2 * self.rules.skew + Duration::from_millis(1));
        self.check(Invariant::Trimmed, age + skew >= topic.retention, |_| {
            let what = format!(
                "{} was dropped after {age:?}, and {} keeps messages for {:?}",
                message.id, topic.name, topic.retention
            );
            (what, vec![message.id.to_string()])
        });
        self.trimmed.insert((index, shard, number));
    }

    /// Invariant 20, second half: after a trim of a fully settled topic, all messages that were older than
    /// the retention are gone.
    pub fn nothing_needless_is_left(
        &mut self,
        topic: &Topic,
        left: &[(u16, u64, Message)],
        trimmed_at: Timestamp,
    ) {
        if matches!(topic.name.as_lane(), Some((_, Lane::Dead))) {
            return;
        }
        let old = left.iter().find(|(_, _, message)| trimmed_at.since(message.created) > topic.retention);
        self.check(Invariant::Trimmed, old.is_none(), |_| {
            let what = old.map(|(shard, number, message)| {
                let what = format!("{} is still in {}/{shard} #{number}", message.id, topic.name);
                (format!("{what}, though nobody needs it any more"), vec![message.id.to_string()])
            });
            what.unwrap_or_default()
        });
    }
}
