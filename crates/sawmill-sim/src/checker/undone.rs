//! Crashes of the store: light writes are undone, as if their workers had died just before them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sawmill::MessageId;
use sawmill::engine::model::{ShardState, Token, WorkerId};
use sawmill::engine::storage::{Entry, EntryKey};

use super::book::{Book, Mirror, Place, Run, Started};

/// The state of the book at the last durable write.
#[derive(Default)]
pub(super) struct Undoable {
    /// True if the store may undo writes.
    pub(super) is_needed: bool,
    mirrors: BTreeMap<String, Option<Mirror>>,
    renewed: BTreeMap<String, Duration>,
    /// The messages counted since: group, message, and whether it was done.
    ends: Vec<((usize, MessageId), bool)>,
    /// Messages, by group and place, whose claim may have been undone without its worker knowing. That
    /// worker's results come in addition to the next worker's.
    pub(super) touched: BTreeSet<(usize, Place)>,
    /// Undone claims whose workers may not know of it.
    lost: BTreeSet<(String, Token, WorkerId)>,
    /// The renewal times of members whose renewal was undone. They rely on a lease that others do not see.
    beats: BTreeMap<String, Duration>,
}

impl Book {
    /// Records that the store may undo light writes.
    pub fn store_may_undo(&mut self) {
        self.undoable.is_needed = true;
    }

    /// Records that everything written until now is durable.
    pub fn all_durable(&mut self) {
        self.undoable.mirrors.clear();
        self.undoable.renewed.clear();
        self.undoable.ends.clear();
    }

    /// Keeps the state of a shard's entry that is about to change.
    pub(super) fn keep_mirror(&mut self, key: &str) {
        if self.undoable.is_needed && !self.undoable.mirrors.contains_key(key) {
            self.undoable.mirrors.insert(key.to_owned(), self.mirrors.get(key).cloned());
        }
    }

    /// Keeps the renewal time of a member that is about to be renewed.
    pub(super) fn keep_renewal(&mut self, key: &str, renewed: Duration) {
        if self.undoable.is_needed {
            self.undoable.renewed.entry(key.to_owned()).or_insert(renewed);
        }
    }

    /// Keeps that a message was counted as done or as copied.
    pub(super) fn keep_end(&mut self, group: usize, origin: MessageId, done: bool) {
        if self.undoable.is_needed {
            self.undoable.ends.push(((group, origin), done));
        }
    }

    /// Restores an entry that a crash of the store has undone.
    pub fn undone(&mut self, key: &EntryKey, entry: Option<&Entry>) {
        let text = key.as_str().to_owned();
        match entry {
            Some(entry) => self.versions.insert(text.clone(), entry.version.0),
            None => self.versions.remove(&text),
        };
        if let (Some(renewed), Some(seen)) =
            (self.undoable.renewed.remove(&text), self.members.get_mut(&text))
        {
            self.undoable.beats.insert(text.clone(), seen.renewed);
            seen.renewed = renewed;
        }
        let Some(before) = self.undoable.mirrors.remove(&text) else { return };
        let Some(now) = self.mirrors.remove(&text) else { return };
        // The entry may be older than the book's record of it.
        let state = entry.and_then(|entry| ShardState::decode(key, &entry.value).ok()).unwrap_or_default();
        let restored = before.unwrap_or_else(|| Mirror {
            state,
            settled: Default::default(),
            superseded: Default::default(),
            deaths: Default::default(),
            sent_to: 0,
            ..now.clone()
        });
        self.lose_claims(&text, &now, restored, entry.is_some());
    }

    /// Records the lost claims. Their workers may continue for a while, and their work may be repeated.
    fn lose_claims(&mut self, key: &str, now: &Mirror, mut restored: Mirror, is_there: bool) {
        let is_kept = |token: Token, owner: &WorkerId| {
            restored
                .state
                .claims
                .iter()
                .any(|claim| claim.token == token && claim.owner.as_ref() == Some(owner))
        };
        for claim in &now.state.claims {
            if let Some(owner) = claim.owner.as_ref().filter(|owner| !is_kept(claim.token, owner)) {
                self.undoable.lost.insert((key.to_owned(), claim.token, owner.clone()));
            }
        }
        let open = |number: &u64| !restored.settled.contains(number);
        let touched: Vec<u64> = self
            .places
            .range((now.topic, now.shard, 0)..=(now.topic, now.shard, u64::MAX))
            .map(|((_, _, number), _)| *number)
            .filter(open)
            .collect();
        for run in &mut self.runs {
            let (topic, shard, number) = run.place;
            // After the crash, newer tokens are issued again. A reopened claim runs again, even for a message
            // that another claim has settled.
            let given_since = run.token > restored.state.token
                || restored.state.claims.iter().any(|claim| claim.token == run.token);
            if (topic, shard) == (now.topic, now.shard)
                && run.group == now.group
                && (open(&number) || given_since)
            {
                run.undone = true;
            }
        }
        for number in touched {
            self.undoable.touched.insert((now.group, (now.topic, now.shard, number)));
            *restored.superseded.entry(number).or_default() += 1;
        }
        if is_there {
            self.mirrors.insert(key.to_owned(), restored);
        }
    }

    /// Ends the crash: counts since the last durable write are taken back.
    pub fn all_undone(&mut self) {
        for (key, done) in std::mem::take(&mut self.undoable.ends) {
            let Some(handling) = self.handled.get_mut(&key) else { continue };
            if done {
                handling.done = handling.done.saturating_sub(1);
            } else {
                handling.copied = handling.copied.saturating_sub(1);
            }
        }
        self.all_durable();
    }

    /// Returns true if a message is started under an undone claim.
    pub(super) fn is_under_a_lost_claim(
        &self,
        group: usize,
        started: &Started<'_>,
        place: Option<Place>,
    ) -> bool {
        let Some(place) = place.filter(|_| self.undoable.is_needed) else { return false };
        let node_of = |owner: &WorkerId| {
            self.member(group, owner.as_str()).filter(|member| member.there).map(|member| member.node)
        };
        let covers = |mirror: &Mirror| {
            let mut claims = mirror.claims_of(self, place.2);
            claims.any(|(claim, _)| {
                claim.token == started.token && claim.owner.as_ref().and_then(node_of) == Some(started.node)
            })
        };
        !self.mirror(group, place).is_some_and(covers)
    }

    /// Returns the worker that held the undone claim of this start.
    pub(super) fn worker_of_lost_claim(&self, started: &Started<'_>) -> Option<String> {
        let group = self.group(started.group)?;
        let is_here = |owner: &WorkerId| {
            self.member(group, owner.as_str()).is_some_and(|member| member.node == started.node)
        };
        let mut lost = self.undoable.lost.iter();
        let claim = lost.find(|(_, token, owner)| *token == started.token && is_here(owner));
        let owner = claim.map(|(_, _, owner)| owner.as_str().to_owned());
        owner.or_else(|| self.with_an_undone_beat(started))
    }

    /// Returns the worker of this node that relies on an undone renewal. Others have declared it dead
    /// meanwhile, and may hold its claims.
    fn with_an_undone_beat(&self, started: &Started<'_>) -> Option<String> {
        let holds = |(key, beat): &(&String, &Duration)| {
            let of_group = key.strip_prefix("members/").and_then(|key| key.strip_prefix(started.group));
            let here = self.members.get(*key).is_some_and(|member| member.node == started.node);
            of_group.is_some_and(|key| key.starts_with('/')) && here && started.at <= **beat + self.rules.ttl
        };
        let (key, _) = self.undoable.beats.iter().find(holds)?;
        key.rsplit('/').next().map(str::to_owned)
    }

    /// Returns true if the claim's owner was declared dead because its renewal was undone, while its lease
    /// still lasts.
    fn is_of_one_whose_beat_was_undone(&self, group: usize, started: &Started<'_>, place: Place) -> bool {
        let Some(mirror) = self.mirror(group, place) else { return false };
        let mut claims = mirror.claims_of(self, place.2).filter(|(claim, _)| claim.token == started.token);
        claims.any(|(claim, _)| {
            let Some(owner) = &claim.owner else { return false };
            let key = format!("members/{}/{owner}", self.rules.groups[group].name);
            let beat = self.undoable.beats.get(&key);
            let is_here =
                self.member(group, owner.as_str()).is_some_and(|member| member.node == started.node);
            is_here && beat.is_some_and(|beat| started.at <= *beat + self.rules.ttl)
        })
    }

    /// Returns the place of a start under an undone claim, if its worker need not know that yet.
    pub(super) fn under_an_undone_claim(
        &self,
        group: usize,
        started: &Started<'_>,
        places: &[Place],
    ) -> Option<Place> {
        let is_lost = |place: &&Place| {
            let (topic, shard, _) = **place;
            let (uid, name) = (&self.topics[topic].topic.uid, &self.rules.groups[group].name);
            let key = format!("shards/{uid}/{name}/{shard:04}");
            self.undoable.lost.iter().any(|(lost, token, owner)| {
                let member = self.member(group, owner.as_str());
                *lost == key
                    && *token == started.token
                    && member.is_some_and(|member| member.node == started.node)
            })
        };
        let undone =
            |place: &&Place| is_lost(place) || self.is_of_one_whose_beat_was_undone(group, started, **place);
        let adopted = || places.first().filter(|_| self.with_an_undone_beat(started).is_some());
        places.iter().find(undone).or_else(adopted).copied()
    }
}

impl Run {
    /// Returns true if this run counts for a claim of this owner: it was not undone, or it is the owner's
    /// own.
    pub(super) fn speaks_for(&self, owner: Option<&WorkerId>) -> bool {
        !self.undone || owner.is_some_and(|owner| owner.as_str() == self.worker)
    }
}
