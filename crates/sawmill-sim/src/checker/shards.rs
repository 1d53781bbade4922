//! Checks commits to shard entries: who may change a claim, how the cursor moves, and what counts as settled.

use std::time::Duration;

use bytes::Bytes;
use sawmill::MessageId;
use sawmill::engine::model::{Claim, Lane, ShardState, WorkerId};
use sawmill::engine::storage::{Entry, EntryKey, Version};

use super::book::{Book, How, Mirror};
use super::invariant::Invariant;
use super::settled::Hidden;
use crate::control::NodeId;
use crate::scenario::PEOPLE;

/// A change of a ledger entry.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// The time.
    pub at: Duration,
    /// The node that wrote it.
    pub node: NodeId,
    /// The key of the entry.
    pub key: &'a EntryKey,
    /// The entry before.
    pub old: Option<&'a Entry>,
    /// Its version now.
    pub version: Version,
    /// Its value now; `None` if it is deleted.
    pub value: Option<&'a Bytes>,
}

impl Book {
    /// Checks a change of a ledger entry.
    pub fn committed(&mut self, written: &Written<'_>, hidden: Hidden<'_>) {
        self.version_grows(written);
        self.format_holds(written);
        let mut parts = written.key.as_str().split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("members"), ..) => self.member_written(written),
            (Some("schedules"), Some(_), Some(name), None) => self.schedule_written(written, name, hidden),
            (Some("cancels"), Some(_), Some(id), None) => self.cancel_written(written, id),
            (Some("shards"), Some(uid), Some(group), Some(shard)) => {
                let topic = self.topics.iter().position(|known| known.topic.uid == uid);
                // A worker that has not noticed the deletion may write once more.
                if topic.is_some_and(|topic| self.topics[topic].is_deleted) {
                    return;
                }
                if let (PEOPLE, Some(topic)) = (group, topic) {
                    return self.letters_written(written, topic, hidden);
                }
                if let (Some(topic), Some(group), Ok(shard)) = (topic, self.group(group), shard.parse()) {
                    self.shard_written(written, (group, topic, shard), hidden);
                }
            }
            _ => {}
        }
    }

    /// Invariant 13: only messages whose cancellation was requested are marked as cancelled.
    fn cancel_written(&mut self, written: &Written<'_>, id: &str) {
        let id = id.parse::<MessageId>().ok();
        let wanted = id.is_some_and(|id| self.to_cancel.contains(&id));
        self.check(Invariant::Cancelled, wanted || written.value.is_none(), |_| {
            let key = written.key.as_str().to_owned();
            (format!("{key}: a message was cancelled that nobody wanted to cancel"), vec![key])
        });
        self.unwanted.extend(id);
    }

    fn shard_written(
        &mut self,
        written: &Written<'_>,
        (group, topic, shard): (usize, usize, u16),
        hidden: Hidden<'_>,
    ) {
        let key = written.key.as_str().to_owned();
        let decoded = written.value.map(|value| decode(written.key, value));
        let Some(Ok(new)) = decoded else {
            return self.wrong(Invariant::StaleWriter, format!("{key} was deleted or damaged"), vec![key]);
        };
        // A seek may have changed the entry before the topic had its first message.
        let before = written.old.and_then(|old| decode(written.key, &old.value).ok());
        let empty = || Mirror {
            group,
            topic,
            shard,
            state: before.unwrap_or_default(),
            settled: Default::default(),
            sent_to: 0,
            settled_before: Default::default(),
            sent_at: Duration::ZERO,
            superseded: Default::default(),
            deaths: Default::default(),
            opened: Default::default(),
        };
        self.keep_mirror(&key);
        let mut mirror = self.mirrors.remove(&key).unwrap_or_else(empty);
        let old = std::mem::replace(&mut mirror.state, new.clone());
        let change = Change { key: &key, node: written.node, old: &old, new: &new };
        self.claims_kept(&mut mirror, &change, hidden);
        self.passes.insert(key.clone(), new.pass);
        if old.pass == new.pass {
            self.claims_opened(&mut mirror, &change);
        } else {
            self.sent_elsewhere(&mut mirror, &change);
        }
        self.mirrors.insert(key, mirror);
    }

    /// Checks that everything claimed before is still claimed by a permitted owner, or is settled.
    fn claims_kept(&mut self, mirror: &mut Mirror, change: &Change<'_>, hidden: Hidden<'_>) {
        let mut ends = Vec::new();
        for claim in &change.old.claims {
            let now = change.new.claims.iter().find(|now| now.is_on_the_block_of(claim));
            let owned = self.is_by(mirror.group, claim.owner.as_ref(), change.node);
            let by_owner = self.may_change(mirror, change, claim, now, owned);
            let numbers: Vec<u64> = mirror.numbers(self, claim).collect();
            for (index, number) in (0..).zip(numbers) {
                let was = claim.done.contains(index);
                let is = now.is_none_or(|now| now.done.contains(index));
                self.check(Invariant::StaleWriter, is || !was, |_| {
                    (format!("{}: progress of claim {} shrank", change.key, claim.token), change.about())
                });
                if is && !was {
                    if claim.pass == change.new.pass || number <= mirror.sent_to {
                        mirror.settled.insert(number);
                    }
                    ends.push(self.settled(mirror, change, claim, number, hidden));
                } else if !is
                    && now.is_some_and(|now| now.owner.is_none())
                    && claim.owner.is_some()
                    && by_owner
                {
                    self.given_back(mirror, change, claim, number);
                }
                if !is && now.is_some_and(|now| now.token != claim.token) && claim.owner.is_some() {
                    *mirror.superseded.entry(number).or_default() += 1;
                    *mirror.deaths.entry((claim.pass, number)).or_default() += 1;
                }
            }
        }
        self.counted_as_they_ended(change, &ends);
        let (old, new) = (change.old.tally, change.new.tally);
        let log_only = self.rules.groups[mirror.group].logs_failures;
        self.check(Invariant::NothingLost, log_only || new.dropped == old.dropped, |_| {
            (format!("{}: a message was dropped, which this group does not do", change.key), change.about())
        });
    }

    /// Invariant 7: only its owner changes a claim. Others adopt it if it has no owner or a dead one.
    fn may_change(
        &mut self,
        mirror: &Mirror,
        change: &Change<'_>,
        claim: &Claim,
        now: Option<&Claim>,
        owned: bool,
    ) -> bool {
        let same_hand = now.is_none_or(|now| now.token == claim.token && now.owner == claim.owner);
        let given_back = now.is_some_and(|now| now.owner.is_none() && now.token == claim.token);
        let node = change.node;
        if same_hand || given_back {
            let changed = now != Some(claim);
            return self.check(Invariant::StaleWriter, owned || !changed, |_| {
                let what = format!("claim {} of {:?} was changed by {node}", claim.token, claim.owner);
                (format!("{}: {what}", change.key), change.about())
            });
        }
        let by = now.and_then(|now| now.owner.as_ref());
        let gone = claim.owner.as_ref().is_none_or(|owner| {
            let member = self.member(mirror.group, owner.as_str());
            member.is_none_or(|member| !member.there || self.is_next_life(node, member.node))
        });
        let fenced = now.is_some_and(|now| now.token > change.old.token);
        let rightly = gone && fenced && self.is_by(mirror.group, by, node);
        self.check(Invariant::StaleWriter, rightly, |_| {
            let what = format!(
                "claim {} of {:?} was taken by {by:?} on {node} under token {:?}; its owner is {}",
                claim.token,
                claim.owner,
                now.map(|now| now.token),
                if gone { "gone" } else { "alive" },
            );
            (format!("{}: {what}", change.key), change.about())
        });
        false
    }

    /// Invariant 4: a message that is given back was not started, or failed. Under at-most-once it was not
    /// started.
    fn given_back(&mut self, mirror: &Mirror, change: &Change<'_>, claim: &Claim, number: u64) {
        let place = (mirror.topic, mirror.shard, number);
        let Some(logged) = self.places.get(&place) else { return };
        let origin = logged.origin;
        if self.is_doubled(mirror.topic, logged.id) {
            return;
        }
        let once = self.rules.groups[mirror.group].once;
        let last = self.runs_at(mirror.group, place).filter(|run| run.token == claim.token).last();
        // An undone run does not count.
        let last = last.filter(|run| !run.undone);
        let how = last.map(|run| run.how);
        let fine = match how {
            None => true,
            Some(None | Some(How::Done)) => false,
            Some(_) => !once,
        };
        self.check(Invariant::AtLeastOnce, fine, |_| {
            let what = format!("{}: {origin} was given back, and its last run: {how:?}", change.key);
            (what, vec![origin.to_string(), change.key.to_owned()])
        });
    }

    /// Checks that a seek moved the cursor and changed nothing else. Messages before the cursor are finished
    /// unless they are claimed. Messages after it are handled from now on, possibly again.
    fn sent_elsewhere(&mut self, mirror: &mut Mirror, change: &Change<'_>) {
        let only =
            ShardState { cursor: change.old.cursor.clone(), pass: change.old.pass, ..change.new.clone() };
        self.check(Invariant::Cursor, only == *change.old, |_| {
            (format!("{}: a seek changed more than the cursor", change.key), change.about())
        });
        mirror.sent_to = change.new.cursor.number().unwrap_or(0);
        (mirror.settled_before, mirror.sent_at) = (std::mem::take(&mut mirror.settled), self.now);
        self.sent_where_it_should(mirror, change);
        let behind: Vec<u64> = self.between(mirror.topic, mirror.shard, 0, mirror.sent_to).collect();
        let open =
            |number: u64| mirror.claims_of(self, number).any(|(claim, index)| !claim.done.contains(index));
        mirror.settled = behind.into_iter().filter(|number| !open(*number)).collect();
    }

    /// Checks the cursor and new claims: invariant 8, and who may claim.
    fn claims_opened(&mut self, mirror: &mut Mirror, change: &Change<'_>) {
        let (from, to) = (change.old.cursor.number().unwrap_or(0), change.new.cursor.number().unwrap_or(0));
        self.check(Invariant::Cursor, to >= from, |_| {
            (format!("{}: the cursor moved from {from} back to {to}", change.key), change.about())
        });
        let fresh = |claim: &&Claim| !change.old.claims.iter().any(|old| old.is_on_the_block_of(claim));
        let opened: Vec<&Claim> = change.new.claims.iter().filter(fresh).collect();
        let between = self.between(mirror.topic, mirror.shard, from, to).count();
        let claimed: u32 = opened.iter().map(|claim| claim.count).sum();
        let spans = opened
            .iter()
            .all(|claim| claim.span.range().is_ok_and(|(after, upto, _)| after >= from && upto <= to));
        self.check(Invariant::Cursor, between as u64 == u64::from(claimed) && spans, |_| {
            let what = format!(
                "the cursor moved from {from} to {to} past {between} messages, and {claimed} were claimed"
            );
            (format!("{}: {what}", change.key), change.about())
        });
        mirror.opened.extend(opened.iter().map(|claim| claim.token));
        self.not_too_many(mirror, change, &opened);
        for claim in opened {
            let by_owner = self.is_by(mirror.group, claim.owner.as_ref(), change.node);
            self.check(Invariant::StaleWriter, by_owner && claim.token > change.old.token, |_| {
                let what =
                    format!("claim {} of {:?} was opened by {}", claim.token, claim.owner, change.node);
                (format!("{}: {what}", change.key), change.about())
            });
            if self.rules.groups[mirror.group].ordered {
                let alone = change.new.claims.iter().all(|other| other.owner == claim.owner);
                self.check(Invariant::Ordered, alone, |_| {
                    let what = format!("{:?} claimed while another worker holds a claim", claim.owner);
                    (format!("{}: {what}", change.key), change.about())
                });
            }
        }
    }

    /// Returns true if this worker is or was a member from this node.
    fn is_by(&self, group: usize, worker: Option<&WorkerId>, node: NodeId) -> bool {
        let member = worker.and_then(|worker| self.member(group, worker.as_str()));
        member.is_some_and(|member| member.node == node)
    }

    /// Returns true if the group works this topic: it is no lane, or the group's retry lane.
    pub(super) fn is_worked(&self, group: usize, topic: usize) -> bool {
        let known = &self.topics[topic];
        match known.lane {
            None => self.rules.groups[group].topics.iter().any(|name| name == known.topic.name.base()),
            Some((owner, lane)) => owner == group && lane == Lane::Retry,
        }
    }
}

/// Decodes the state without the format fields, which are checked separately.
fn decode(key: &EntryKey, value: &[u8]) -> sawmill::Result<ShardState> {
    let mut state = ShardState::decode(key, value)?;
    state.forget_formats();
    Ok(state)
}

trait Same {
    /// Returns true if this is the same claim, possibly with another owner.
    fn is_on_the_block_of(&self, other: &Claim) -> bool;
}

impl Same for Claim {
    fn is_on_the_block_of(&self, other: &Claim) -> bool {
        (&self.span, self.pass) == (&other.span, other.pass)
    }
}

/// A commit to a shard's entry.
pub(super) struct Change<'a> {
    pub(super) key: &'a str,
    node: NodeId,
    pub(super) old: &'a ShardState,
    pub(super) new: &'a ShardState,
}

impl Change<'_> {
    pub(super) fn about(&self) -> Vec<String> {
        vec![self.key.to_owned()]
    }
}
