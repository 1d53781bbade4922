//! Checks at the end of a history: the backlog drains in time, no claim of a dead worker is left, and all
//! counts agree.

use std::collections::BTreeMap;

use sawmill::MessageId;
use sawmill::admin::GroupStatus;
use sawmill::engine::model::Lane;

use super::book::Book;
use super::invariant::Invariant;
use super::letters::Decision;

impl Book {
    /// Records that the faults are over, and collects the claims without a living owner. `is_alive` tells
    /// which nodes live.
    pub fn quiet_begins(&mut self, is_alive: impl Fn(crate::NodeId) -> bool) {
        let mut orphans = Vec::new();
        for (key, mirror) in &self.mirrors {
            for claim in &mirror.state.claims {
                let owner = claim.owner.as_ref();
                let member = owner.and_then(|owner| self.member(mirror.group, owner.as_str()));
                if !member.is_some_and(|member| member.there && is_alive(member.node)) {
                    orphans.push((key.clone(), claim.token));
                }
            }
        }
        self.orphans = orphans;
        self.held_up = self.paused.keys().cloned().collect();
    }

    /// Checks, TTL + 5 s after the last late write, that no claim of a dead worker is still in its name.
    pub fn orphans_taken_over(&mut self) {
        for (key, token) in std::mem::take(&mut self.orphans) {
            let mirror = &self.mirrors[&key];
            let rules = &self.rules.groups[mirror.group];
            let topic = self.topics[mirror.topic].topic.name.base().to_owned();
            // A paused worker takes over nothing, and the living workers may not have a share of the limit
            // yet.
            if rules.limit.or(rules.rate).is_some() || self.held_up.contains(&(mirror.group, topic)) {
                continue;
            }
            let claims = &mirror.state.claims;
            let left = claims.iter().any(|claim| claim.token == token);
            self.check(Invariant::Drains, !left, |_| {
                let what =
                    format!("{key}: nobody has taken claim {token}, TTL + 5 s after the last late write");
                (what, vec![key.clone()])
            });
        }
    }

    /// Describes the work that is left; `None` if the backlog is drained.
    pub fn left_over(&self) -> Option<(String, Vec<String>)> {
        let there = self.places.iter().filter(|(place, _)| !self.trimmed.contains(place));
        for (place, logged) in there {
            for group in (0..self.rules.groups.len()).filter(|group| self.is_worked(*group, place.0)) {
                let settled =
                    self.mirror(group, *place).is_some_and(|mirror| mirror.settled.contains(&place.2));
                if !settled {
                    let known = &self.topics[place.0].topic;
                    let entry =
                        format!("shards/{}/{}/{:04}", known.uid, self.rules.groups[group].name, place.1);
                    let what = format!("{} in {} ({entry}, number {})", logged.origin, known.name, place.2);
                    return Some((what, vec![logged.origin.to_string(), entry]));
                }
            }
        }
        // Messages that were claimed before a seek must be finished too.
        let open = |(_, mirror): &(&String, &super::book::Mirror)| {
            mirror.state.pass > 0 && !mirror.state.claims.is_empty()
        };
        let (key, mirror) = self.mirrors.iter().find(open)?;
        Some((format!("{key} has open claims: {:?}", mirror.state.claims), vec![key.clone()]))
    }

    /// Returns the topics and retry lanes that groups work. None of their messages may be hidden once all is
    /// drained.
    pub fn worked_topics(&self) -> Vec<sawmill::engine::model::Topic> {
        let there = self.topics.iter().filter(|known| !known.is_deleted);
        let worked = there.filter(|known| !matches!(known.lane, Some((_, Lane::Dead))));
        worked.map(|known| known.topic.clone()).collect()
    }

    /// Records that the backlog did not drain in time.
    pub fn not_drained(&mut self, hidden: usize, after: std::time::Duration) {
        let (what, about) =
            self.left_over().unwrap_or((format!("{hidden} messages that are not readable"), vec![]));
        let what = format!("{after:?} after faults ended something is still to be done: {what}");
        self.wrong(Invariant::Drains, what, about);
    }

    /// Records that the backlog drained in time.
    pub fn drained(&mut self) {
        self.check(Invariant::Drains, true, |_| (String::new(), vec![]));
    }

    /// Checks at the end that every acknowledged message is in the log, and that everything before each
    /// cursor is settled or claimed.
    pub fn check_nothing_missing(&mut self) {
        for number in 0..self.pushed.len() {
            let Some(id) = self.pushed[number].acknowledged else { continue };
            if self.pushed[number].is_deleted {
                continue;
            }
            let same = self.origins.get(&id).is_some_and(|other| self.share_a_name(number, *other));
            let there = self.pushed[number].id == Some(id) || same;
            self.check(Invariant::NothingLost, there, |_| {
                (
                    format!("message {number} was acknowledged as {id}, and never was in the log"),
                    vec![id.to_string()],
                )
            });
        }
        let mut lost = Vec::new();
        for (place, logged) in self.places.iter().filter(|(place, _)| !self.trimmed.contains(place)) {
            for mirror in self.mirrors.values() {
                let behind = mirror.state.cursor.number().is_ok_and(|cursor| place.2 <= cursor);
                if (mirror.topic, mirror.shard) == (place.0, place.1) && behind {
                    let there = mirror.settled.contains(&place.2) || mirror.claim_of(self, place.2).is_some();
                    lost.push((logged.origin, there));
                }
            }
        }
        for (origin, there) in lost {
            self.check(Invariant::Cursor, there, |_| {
                (
                    format!("the cursor is past {origin}, which is neither settled nor claimed"),
                    vec![origin.to_string()],
                )
            });
        }
    }

    /// Invariant 10: compares the group's own status with the book, when everything is settled.
    ///
    /// Every place in the topic and in the retry lane is settled once: as done, retried, dead or dropped. So
    /// `done + dead letters + dropped` equals the number of places in the topic, plus messages with more than
    /// one end. Those are messages that are in the log twice (on an engine that cannot detect duplicates, or
    /// when a late append arrived after its retry was trimmed), and messages whose claim was taken from a
    /// worker that had put a copy on a lane but could not report it. They are identified one by one: any
    /// other message must have exactly one end.
    pub fn compare(&mut self, topic: &str, group: &str, status: &GroupStatus) {
        let Some(group) = self.group(group) else { return };
        let mut want = GroupStatus { oldest: status.oldest, ..GroupStatus::default() };
        for mirror in self.mirrors.values().filter(|mirror| mirror.group == group) {
            if self.topics[mirror.topic].topic.name.base() == topic {
                want.done += mirror.state.tally.done;
                want.dropped += mirror.state.tally.dropped;
                want.cancelled += mirror.state.tally.cancelled;
            }
        }
        let dead = self.places.keys().filter(|place| self.is_on(topic, group, Lane::Dead, place.0));
        for decision in dead.map(|place| self.decision(*place)) {
            want.dead += u64::from(decision.is_none());
            want.dropped += u64::from(decision == Some(Decision::Dropped));
        }
        self.check(Invariant::CountsConserve, *status == want, |_| {
            (format!("{topic}: the group's status is {status:?}, and the book says {want:?}"), vec![])
        });
        if self.rules.groups[group].logs_failures {
            return;
        }
        let ends = self.ends(topic, group);
        for (origin, ends, several) in ends {
            // A cancelled or skipped message may have had an end before, or none.
            let none = self.unwanted.contains(&origin) || self.was_sent_elsewhere(topic, group);
            let fine = ends == 1 || (several && ends > 1) || (none && ends == 0);
            self.check(Invariant::CountsConserve, fine, |_| {
                (
                    format!("{origin} has {ends} ends (done or dead) in group {group}"),
                    vec![origin.to_string()],
                )
            });
        }
    }

    /// Returns true if a seek moved the group in this topic.
    pub(super) fn was_sent_elsewhere(&self, topic: &str, group: usize) -> bool {
        let of_it = |mirror: &&super::book::Mirror| {
            mirror.group == group && self.topics[mirror.topic].topic.name.base() == topic
        };
        self.mirrors.values().filter(of_it).any(|mirror| mirror.state.pass > 0)
    }

    pub(super) fn is_on(&self, topic: &str, group: usize, lane: Lane, index: usize) -> bool {
        let known = &self.topics[index];
        known.topic.name.base() == topic && known.lane == Some((group, lane))
    }

    /// Returns the number of ends in a group for each message of a topic, and whether it may have several.
    fn ends(&self, topic: &str, group: usize) -> Vec<(MessageId, u64, bool)> {
        let pushed = self.pushed.iter().filter(|pushed| pushed.intent.topic == topic && !pushed.is_deleted);
        let mut ends: BTreeMap<MessageId, (u64, bool)> = pushed
            .filter_map(|pushed| pushed.id)
            .map(|origin| {
                (origin, (self.handled.get(&(group, origin)).map_or(0, |handling| handling.done), false))
            })
            .collect();
        for (place, logged) in &self.places {
            let dead = self.is_on(topic, group, Lane::Dead, place.0);
            let worked = self.is_worked(group, place.0);
            let Some((ends, several)) = ends.get_mut(&logged.origin).filter(|_| dead || worked) else {
                continue;
            };
            *ends += u64::from(dead && self.decision(*place) != Some(Decision::Resent));
            *several |= dead && self.is_half_sent_back(group, logged.origin);
            let superseded = |mirror: &super::book::Mirror| mirror.superseded.contains_key(&place.2);
            let replayed = |mirror: &super::book::Mirror| mirror.state.pass > 0;
            *several |= worked && self.undoable.touched.contains(&(group, *place));
            *several |= self.is_doubled(place.0, logged.id)
                || (worked && self.mirror(group, *place).is_some_and(replayed))
                || (worked && self.mirror(group, *place).is_some_and(superseded));
        }
        ends.into_iter().map(|(origin, (ends, several))| (origin, ends, several)).collect()
    }
}

impl Book {
    /// Records that the history could not be finished.
    pub fn not_ended(&mut self, why: &str) {
        self.wrong(Invariant::Drains, format!("the history did not come to its end: {why}"), vec![]);
    }
}
