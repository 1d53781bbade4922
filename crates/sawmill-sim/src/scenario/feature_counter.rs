//! Counts the features that are visible in the store: readable and trimmed messages, and changes of claims.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use sawmill::Message;
use sawmill::engine::model::{Claim, Lane, ShardState, Topic};
use sawmill::engine::storage::{Entry, EntryKey};

use crate::control::{Control, NodeId};
use crate::features::Feature;
use crate::observer::{Event, Observer};
use crate::tasks::lock;

/// The group under which users handle dead letters.
pub(crate) const PEOPLE: &str = "people";

/// A tick that is this late was missed: workers push ticks as soon as they are due.
const LATE_TICK: Duration = Duration::from_secs(3);

/// Counts features.
pub(super) struct FeatureCounter {
    control: Control,
    seen: Mutex<Observed>,
}

#[derive(Default)]
struct Observed {
    shards: BTreeMap<String, ShardState>,
    /// The last trimmed number of each shard.
    trimmed: BTreeMap<(String, u16), u64>,
    /// The node of each member.
    members: BTreeMap<String, NodeId>,
}

impl FeatureCounter {
    pub(super) fn new(control: &Control) -> Self {
        Self { control: control.clone(), seen: Mutex::default() }
    }

    fn readable(&self, topic: &Topic, message: &Message) {
        let feature = match topic.name.as_lane() {
            None => {
                let late = message.tick().is_some_and(|tick| message.created.since(tick) >= LATE_TICK);
                late.then(|| self.control.used(Feature::TickMissed));
                message.tick().map(|_| Feature::Tick)
            }
            Some((_, Lane::Retry)) if is_resent(message) => Some(Feature::Resend),
            Some((_, Lane::Retry)) => Some(Feature::Retry),
            Some((_, Lane::Dead)) => {
                if message.dead_reason().is_some_and(|reason| reason.starts_with("lost: its worker died")) {
                    self.control.used(Feature::Lost);
                }
                if message
                    .dead_reason()
                    .is_some_and(|reason| reason.ends_with("workers died while they held it"))
                {
                    self.control.used(Feature::Burial);
                }
                Some(Feature::DeadLetter)
            }
        };
        feature.into_iter().for_each(|feature| self.control.used(feature));
    }

    fn shard_written(&self, key: &EntryKey, new: ShardState) {
        let old = lock(&self.seen).shards.insert(key.as_str().to_owned(), new.clone()).unwrap_or_default();
        let used = |feature, yes: bool| yes.then(|| self.control.used(feature));
        used(Feature::Seek, new.pass > old.pass);
        used(Feature::Cancel, new.cancels > old.cancels);
        if key.as_str().split('/').nth(2) == Some(PEOPLE) {
            used(Feature::LetterDropped, new.tally.dropped > old.tally.dropped);
            return;
        }
        let mut parts = key.as_str().split('/').skip(1);
        if let (Some(uid), Some(shard)) = (parts.next(), parts.nth(1).and_then(|shard| shard.parse().ok())) {
            let trimmed = lock(&self.seen).trimmed.get(&(uid.to_owned(), shard)).copied().unwrap_or(0);
            let (from, to) = (old.cursor.number().unwrap_or(0), new.cursor.number().unwrap_or(0));
            used(Feature::TrimPassed, old.pass == new.pass && from < trimmed && to > trimmed);
        }
        for before in &old.claims {
            let same = |claim: &&Claim| (&claim.span, claim.pass) == (&before.span, before.pass);
            let Some(now) = new.claims.iter().find(same) else { continue };
            match (&before.owner, &now.owner) {
                (Some(_), None) => self.control.used(Feature::GivenBack),
                (None, Some(_)) => self.control.used(Feature::TakenUp),
                (Some(one), Some(other)) if one != other && now.once && !now.lost => {
                    self.control.used(Feature::Recovery);
                }
                (Some(one), Some(other)) if one != other => self.control.used(Feature::Adoption),
                _ => {}
            }
        }
    }

    /// Counts reopened claims.
    fn undone(&self, key: &EntryKey, entry: Option<&Entry>) {
        let state = entry.and_then(|entry| ShardState::decode(key, &entry.value).ok());
        let mut seen = lock(&self.seen);
        let Some(now) = seen.shards.remove(key.as_str()) else { return };
        let Some(state) = state else { return };
        for claim in &state.claims {
            let is_new = !now.claims.iter().any(|other| other.token == claim.token);
            is_new.then(|| self.control.used(Feature::Reopened));
        }
        seen.shards.insert(key.as_str().to_owned(), state);
    }

    fn member_written(&self, key: &EntryKey, node: NodeId, there: bool) {
        let mut seen = lock(&self.seen);
        if there {
            seen.members.entry(key.as_str().to_owned()).or_insert(node);
        } else if seen.members.remove(key.as_str()).is_some_and(|owner| owner != node) {
            drop(seen);
            self.control.used(Feature::DeclaredDead);
        }
    }
}

/// Returns true if this copy on a retry lane is a resent dead letter: it starts without attempts.
pub(crate) fn is_resent(message: &Message) -> bool {
    message.headers.get("sawmill-attempts").is_none()
}

impl Observer for FeatureCounter {
    fn saw(&self, _at: Duration, event: &Event<'_>) {
        match *event {
            Event::Readable { topic, message, .. } => self.readable(topic, message),
            Event::KeptAside { topic, .. } if topic.name.as_lane().is_none() => {
                self.control.used(Feature::Delayed);
            }
            Event::Trimmed { topic, shard, number, .. } => {
                lock(&self.seen).trimmed.insert((topic.uid.clone(), shard), number);
                self.control.used(Feature::Trim);
            }
            Event::Committed { node, key, value, .. } => match key.as_str().split('/').next() {
                Some("shards") => {
                    let new = value.and_then(|value| ShardState::decode(key, value).ok());
                    new.into_iter().for_each(|new| self.shard_written(key, new));
                }
                Some("members") => self.member_written(key, node, value.is_some()),
                _ => {}
            },
            Event::StoreCrashed { undone } => {
                undone.iter().for_each(|(key, entry)| self.undone(key, entry.as_ref()))
            }
            Event::KeptAside { .. } | Event::Refused { .. } | Event::Durable | Event::TopicDeleted { .. } => {
            }
        }
    }
}
