//! Checks starts and ends of handlers: no start without a reason, in order, not too early, and under a valid
//! claim.

use std::time::Duration;

use sawmill::MessageId;
use sawmill::engine::model::{Claim, Lane};

use super::book::{Book, How, Mirror, Place, Run, RunId, Started};
use super::invariant::Invariant;
use super::settled::Hidden;
use crate::control::NodeId;

impl Book {
    /// Records the start of a handler. Returns the number of the run, and how often the group started the
    /// message before.
    pub fn started(&mut self, started: &Started<'_>, hidden: Hidden<'_>) -> (RunId, u32) {
        let run = RunId(self.runs.len());
        let Some(group) = self.group(started.group) else {
            self.wrong(Invariant::NothingInvented, format!("there is no group {}", started.group), vec![]);
            return (run, 0);
        };
        let before = self.handled.get(&(group, started.origin)).map_or(0, |handling| handling.runs.len());
        if let Some(run) = self.started_though_deleted(group, started) {
            self.handled.entry((group, started.origin)).or_default().runs.push(run);
            return (run, before as u32);
        }
        self.delivered_as_pushed(group, started);
        self.not_too_early(started);
        self.once_at_most(group, started, before);
        let place = self.under_a_claim(group, started);
        let lost = self.is_under_a_lost_claim(group, started, place);
        if let Some(place) = place.filter(|_| !lost) {
            self.within_death_limit(group, started, place);
            self.not_twice(group, started, place);
            self.not_cancelled(group, started, place);
            self.as_planned(group, started, place);
            self.in_order(group, started, place, hidden);
        }
        self.not_paused(group, started);
        let worker = match lost {
            true => self.worker_of_lost_claim(started),
            false => place.and_then(|place| self.worker_of(group, place, started.token)),
        };
        let worker = worker.unwrap_or_default();
        let place = place.unwrap_or((usize::MAX, 0, 0));
        let (id, origin, token) = (started.message.id, started.origin, started.token);
        let (node, at) = (started.node, started.at);
        let (how, ended) = (None, None);
        self.runs.push(Run { group, id, origin, place, token, worker, node, at, how, ended, undone: lost });
        self.within_limits(group, started);
        let worker = self.runs.last().map(|run| run.worker.clone()).unwrap_or_default();
        self.within_key_limit(group, started, &worker);
        self.handled.entry((group, origin)).or_default().runs.push(run);
        (run, before as u32)
    }

    /// Records the end of a handler, and returns its message.
    pub fn ended(&mut self, run: RunId, how: How) -> MessageId {
        let Some(run) = self.runs.get_mut(run.0) else { return MessageId::from_u128(0) };
        if run.how.is_none() {
            (run.how, run.ended) = (Some(how), Some(self.wall));
        }
        run.origin
    }

    /// Records the end of a handler that ended some time ago.
    pub fn has_ended(&mut self, run: RunId, how: How) -> MessageId {
        if let Some(run) = self.runs.get_mut(run.0) {
            run.how.get_or_insert(how);
        }
        self.ended(run, how)
    }

    /// Returns true if a handler for this message runs on this node.
    pub fn runs_on(&self, node: NodeId, origin: MessageId) -> bool {
        self.runs.iter().any(|run| run.origin == origin && run.node == node && run.how.is_none())
    }

    fn about(started: &Started<'_>) -> Vec<String> {
        vec![started.origin.to_string(), started.message.id.to_string()]
    }

    /// Invariant 2: payload, key and headers are as pushed.
    fn delivered_as_pushed(&mut self, group: usize, started: &Started<'_>) {
        let message = started.message;
        let as_pushed = self.origins.get(&started.origin).is_some_and(|number| {
            let intent = &self.pushed[*number].intent;
            super::Intent::payload(*number) == message.payload
                && intent.key == message.key
                && intent.headers == message.own_headers()
                && intent.topic == started.topic
        });
        let works_it = self.rules.groups[group].topics.iter().any(|topic| topic == started.topic);
        self.check(Invariant::NothingInvented, as_pushed && works_it, |_| {
            (
                format!("{} was delivered, and nobody pushed this: {message:?}", started.origin),
                Self::about(started),
            )
        });
    }

    /// Invariant 9, for the message itself and for a delayed retry.
    fn not_too_early(&mut self, started: &Started<'_>) {
        let skew = self.rules.skew;
        let number = self.origins.get(&started.origin);
        let pushed = number.and_then(|number| self.pushed[*number].intent.due);
        let due = [pushed, started.message.due].into_iter().flatten().max();
        self.check(Invariant::DueTime, due.is_none_or(|due| started.wall + skew >= due), |_| {
            let early = due.map(|due| due.since(started.wall)).unwrap_or_default();
            (format!("{} was started {early:?} before it was due", started.origin), Self::about(started))
        });
    }

    /// Invariant 3. A duplicated message counts twice: the engine declares that it cannot detect duplicates.
    fn once_at_most(&mut self, group: usize, started: &Started<'_>, before: usize) {
        if !self.rules.groups[group].once {
            return;
        }
        let places = self.places_of(group, started.origin);
        // Each seek allows one more start.
        let passes =
            |place: &Place| self.mirror(group, *place).map_or(1, |mirror| mirror.state.pass as usize + 1);
        let lives = self.resent_places(group, started.origin);
        let places = places.iter().map(passes).sum::<usize>().max(1) + lives;
        self.check(Invariant::AtMostOnce, before < places, |_| {
            let what =
                format!("{} was started {} times by group {}", started.origin, before + 1, started.group);
            (what, Self::about(started))
        });
    }

    /// Returns the places of a message in the topics that a group works: the topic, or its retry lane.
    pub(super) fn places_of(&self, group: usize, id: MessageId) -> Vec<Place> {
        let mut places = Vec::new();
        for (index, known) in self.topics.iter().enumerate() {
            let mine = match known.lane {
                None => true,
                Some((owner, lane)) => owner == group && lane == Lane::Retry,
            };
            if let (true, Some(found)) = (mine, self.by_id.get(&(index, id))) {
                places.extend(found.iter().map(|(shard, number)| (index, *shard, *number)));
            }
        }
        places
    }

    /// Invariant 4, first half: a start needs a claim that is in the ledger now, open for this message, under
    /// the handler's token, and owned by a member on this node. A worker must not start anything after its
    /// lease has ended, and no other worker may take its claims before that. So this holds for every start, not
    /// only for the second.
    fn under_a_claim(&mut self, group: usize, started: &Started<'_>) -> Option<Place> {
        let places = self.places_of(group, started.message.id);
        let mut state = String::from("its shard has no claim with that token");
        let mut covered = Vec::new();
        for place in places.iter().copied() {
            let Some(mirror) = self.mirror(group, place) else { continue };
            let mut claims = mirror.claims_of(self, place.2);
            let Some((claim, index)) = claims.find(|(claim, _)| claim.token == started.token) else {
                continue;
            };
            let owner = claim.owner.as_ref();
            let member = owner.and_then(|owner| self.member(group, owner.as_str()));
            match member {
                Some(member) if member.there && member.node == started.node => {
                    if !claim.done.contains(index) {
                        covered.push(place);
                    } else {
                        state = "it is settled".to_owned();
                    }
                }
                _ => state = format!("the claim is under {owner:?}, no living member of this node"),
            }
        }
        // For a duplicated message, takes the first place that is neither running nor done.
        let fresh = |place: &&Place| {
            let mut runs = self.runs_at(group, **place).filter(|run| run.token == started.token);
            runs.next_back().is_none_or(|run| !matches!(run.how, None | Some(How::Done)))
        };
        let place = covered.iter().find(fresh).or(covered.first()).copied();
        let place = place.or_else(|| self.under_an_undone_claim(group, started, &places));
        self.check(Invariant::AtLeastOnce, place.is_some(), |_| {
            let what = format!(
                "{} was started on {} under token {}, and {state}",
                started.origin, started.node, started.token
            );
            (what, Self::about(started))
        });
        place
    }

    /// Invariant 4, second half: under the same claim, a second start needs a failure. (Under a later token
    /// the earlier claim was lost; whether it could be taken is checked at that write.)
    fn not_twice(&mut self, group: usize, started: &Started<'_>, place: Place) {
        if self.is_doubled(place.0, started.message.id) {
            return;
        }
        let last = self.runs_at(group, place).rfind(|run| run.token == started.token);
        let how = last.map(|run| run.how);
        let undone = last.is_some_and(|run| run.undone);
        let fine = undone || !matches!(how, Some(None | Some(How::Done | How::Dropped | How::Stopped)));
        self.check(Invariant::AtLeastOnce, fine, |_| {
            let what =
                format!("{} was started again under the same claim, and before it: {how:?}", started.origin);
            (what, Self::about(started))
        });
    }

    /// Invariant 13: the claim was taken before the cancellation was acknowledged. A worker that has not
    /// refreshed for a TTL starts nothing, including messages that it already claimed.
    fn not_cancelled(&mut self, group: usize, started: &Started<'_>, (topic, shard, _): Place) {
        let key = self.entry(group, topic, shard);
        let cancelled = self.cancelled.get(&started.origin);
        let late = cancelled.map_or(Duration::ZERO, |(at, _)| started.at.saturating_sub(*at));
        let last =
            cancelled.map_or(started.token, |(_, tokens)| tokens.get(&key).copied().unwrap_or_default());
        self.check(Invariant::Cancelled, late <= self.rules.ttl, |_| {
            let what = format!("{} was started {late:?} after it was cancelled", started.origin);
            (what, Self::about(started))
        });
        self.check(Invariant::Cancelled, started.token <= last, |_| {
            let what = format!(
                "{} was started under token {}, and cancelled when the last token of {key} was {last}",
                started.origin, started.token
            );
            (what, [Self::about(started), vec![key.clone()]].concat())
        });
    }

    /// Invariant 6: every earlier message of this key in the shard is settled, or is done or dead and about
    /// to be settled by the current claim's owner.
    fn in_order(&mut self, group: usize, started: &Started<'_>, place: Place, hidden: Hidden<'_>) {
        let (topic, shard, number) = place;
        let Some(key) = started.message.key.clone().filter(|_| self.rules.groups[group].ordered) else {
            return;
        };
        let Some(mirror) = self.mirror(group, place) else { return };
        // Messages claimed before a seek finish independently of those claimed after it.
        let old = |claim: &Claim| claim.token == started.token && claim.pass < mirror.state.pass;
        let is_old = mirror.claims_of(self, number).any(|(claim, _)| old(claim));
        if is_old {
            return;
        }
        let earlier = self.places.range((topic, shard, 0)..(topic, shard, number));
        let earlier = earlier.filter(|(place, _)| !self.trimmed.contains(place));
        let waits =
            earlier.filter(|(_, logged)| logged.key.as_ref() == Some(&key)).find(|(earlier, logged)| {
                let claim = mirror.claim_of(self, earlier.2).map(|(claim, _)| claim);
                let of_it = |run: &&Run| {
                    claim
                        .is_some_and(|claim| run.token == claim.token && run.speaks_for(claim.owner.as_ref()))
                };
                let mut runs = self.runs_at(group, **earlier).filter(of_it);
                let last = runs.next_back().and_then(|run| run.how);
                // For a duplicated message, the place of the run is unknown.
                let done = match self.is_doubled(topic, logged.id) {
                    true => self.handled.get(&(group, logged.origin)).is_some_and(|handling| {
                        let mut ends = handling.runs.iter().map(|run| self.runs[run.0].how);
                        ends.any(|how| {
                            how == Some(How::Done) || self.is_only_logged(group, logged.origin, how)
                        })
                    }),
                    false => last == Some(How::Done) || self.is_only_logged(group, logged.origin, last),
                };
                let dead = || self.is_dead(group, logged.origin, hidden);
                let unwanted = self.unwanted.contains(&logged.origin);
                !(mirror.settled.contains(&earlier.2) || done || unwanted || dead())
            });
        let waits = waits.map(|(_, logged)| logged.origin);
        self.check(Invariant::Ordered, waits.is_none(), |_| {
            let first = waits.unwrap_or(started.origin);
            let what =
                format!("{} was started before {first} of the same key was done or dead", started.origin);
            let entry = format!("{}/{shard:04}", started.group);
            (what, [Self::about(started), vec![first.to_string(), entry]].concat())
        });
    }

    /// Returns true if the group gave this message up and only logs that, judged by its last run.
    pub(super) fn is_only_logged(&self, group: usize, origin: MessageId, last: Option<How>) -> bool {
        let rules = &self.rules.groups[group];
        let handling = self.handled.get(&(group, origin)).filter(|_| rules.logs_failures);
        let failed = |run: &&RunId| self.runs[run.0].how == Some(How::Failed);
        let failures = handling.map_or(0, |handling| handling.runs.iter().filter(failed).count());
        match last {
            Some(How::GaveUp) => rules.logs_failures,
            Some(How::Failed) => failures > rules.retries as usize,
            _ => false,
        }
    }

    pub(super) fn mirror(&self, group: usize, (topic, shard, _): Place) -> Option<&Mirror> {
        let uid = &self.topics[topic].topic.uid;
        self.mirrors.get(&format!("shards/{uid}/{}/{shard:04}", self.rules.groups[group].name))
    }

    /// Returns the runs of a group in one place, in order of their starts.
    pub(super) fn runs_at(&self, group: usize, place: Place) -> impl DoubleEndedIterator<Item = &Run> {
        let origin = self.places.get(&place).map(|logged| logged.origin);
        let handling = origin.and_then(|origin| self.handled.get(&(group, origin)));
        let runs = handling.map_or(&[][..], |handling| &handling.runs);
        runs.iter().map(|run| &self.runs[run.0]).filter(move |run| run.place == place)
    }
}

impl Mirror {
    /// Returns the latest open claim that covers this number, and the index in its block.
    pub(super) fn claim_of(&self, book: &Book, number: u64) -> Option<(&Claim, u32)> {
        self.claims_of(book, number).max_by_key(|(claim, _)| claim.pass)
    }

    /// Returns the open claims that cover this number, with the index in their block. There are several if a
    /// seek went back while the group was at work.
    pub(super) fn claims_of(&self, book: &Book, number: u64) -> impl Iterator<Item = (&Claim, u32)> {
        let covers = move |claim: &&Claim| {
            claim.span.range().is_ok_and(|(after, upto, _)| after < number && number <= upto)
        };
        self.state.claims.iter().filter(covers).filter_map(move |claim| {
            let index = self.numbers(book, claim).position(|other| other == number)?;
            Some((claim, index as u32))
        })
    }

    /// Returns the numbers of the messages of a claim, by index.
    pub(super) fn numbers<'a>(&self, book: &'a Book, claim: &Claim) -> impl Iterator<Item = u64> + 'a {
        let (after, upto, _) = claim.span.range().unwrap_or((0, 0, 0));
        book.between(self.topic, self.shard, after, upto)
    }
}
