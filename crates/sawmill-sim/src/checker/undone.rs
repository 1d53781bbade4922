//! Crashes of the store: what was written lightly is undone, as if the workers that wrote it had died a moment before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sawmill::ledger::{Entry, EntryKey};
use sawmill::shard::ShardState;
use sawmill::{MessageId, Token, WorkerId};

use super::book::{Book, Mirror, Place, Run, Started};

/// What the book was like when the last durable write was made.
#[derive(Default)]
pub(super) struct Lasting {
    /// Whether the store may undo anything.
    pub(super) is_needed: bool,
    mirrors: BTreeMap<String, Option<Mirror>>,
    renewed: BTreeMap<String, Duration>,
    /// What was counted since: in which group, of which message, and whether it was done.
    ends: Vec<((usize, MessageId), bool)>,
    /// Messages, by group and place, that may have been claimed by a worker that did not know yet that its claim was undone: what it
    /// made of them comes beside what the next makes.
    pub(super) touched: BTreeSet<(usize, Place)>,
    /// Claims that were undone while their workers may not know of it.
    lost: BTreeSet<(String, Token, WorkerId)>,
    /// When members had last renewed their entries, of those whose renewal was undone: they go by a lease that others do not see.
    beats: BTreeMap<String, Duration>,
}

impl Book {
    /// The store may undo what was written lightly.
    pub fn store_may_undo(&mut self) {
        self.lasting.is_needed = true;
    }

    /// All that was written until now lasts.
    pub fn lasts(&mut self) {
        self.lasting.mirrors.clear();
        self.lasting.renewed.clear();
        self.lasting.ends.clear();
    }

    /// A shard's entry is about to change.
    pub(super) fn keep_mirror(&mut self, key: &str) {
        if self.lasting.is_needed && !self.lasting.mirrors.contains_key(key) {
            self.lasting.mirrors.insert(key.to_owned(), self.mirrors.get(key).cloned());
        }
    }

    /// A member is about to be renewed.
    pub(super) fn keep_renewal(&mut self, key: &str, renewed: Duration) {
        if self.lasting.is_needed {
            self.lasting.renewed.entry(key.to_owned()).or_insert(renewed);
        }
    }

    /// A message was counted as done, or as copied.
    pub(super) fn keep_end(&mut self, group: usize, origin: MessageId, done: bool) {
        if self.lasting.is_needed {
            self.lasting.ends.push(((group, origin), done));
        }
    }

    /// The store has crashed, and this entry is as it was before.
    pub fn undone(&mut self, key: &EntryKey, entry: Option<&Entry>) {
        let text = key.as_str().to_owned();
        match entry {
            Some(entry) => self.versions.insert(text.clone(), entry.version.0),
            None => self.versions.remove(&text),
        };
        if let (Some(renewed), Some(seen)) = (self.lasting.renewed.remove(&text), self.members.get_mut(&text))
        {
            self.lasting.beats.insert(text.clone(), seen.renewed);
            seen.renewed = renewed;
        }
        let Some(before) = self.lasting.mirrors.remove(&text) else { return };
        let Some(now) = self.mirrors.remove(&text) else { return };
        // The entry may be older than what the book knows of it.
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

    /// The workers of claims that are not there any more may go on for a while, and what they did may be done again.
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
                self.lasting.lost.insert((key.to_owned(), claim.token, owner.clone()));
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
            // After the crash, newer tokens are issued a second time, and a claim that is open again is run again, even for a message
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
            self.lasting.touched.insert((now.group, (now.topic, now.shard, number)));
            *restored.superseded.entry(number).or_default() += 1;
        }
        if is_there {
            self.mirrors.insert(key.to_owned(), restored);
        }
    }

    /// The crash is over: what was counted since the last durable write does not count.
    pub fn all_undone(&mut self) {
        for (key, done) in std::mem::take(&mut self.lasting.ends) {
            let Some(handling) = self.handled.get_mut(&key) else { continue };
            if done {
                handling.done = handling.done.saturating_sub(1);
            } else {
                handling.copied = handling.copied.saturating_sub(1);
            }
        }
        self.lasts();
    }

    /// True if a message is started under a claim that the store has undone.
    pub(super) fn is_under_a_lost_claim(
        &self,
        group: usize,
        started: &Started<'_>,
        place: Option<Place>,
    ) -> bool {
        let Some(place) = place.filter(|_| self.lasting.is_needed) else { return false };
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

    /// The worker that had the undone claim under which a message is started.
    pub(super) fn loser_of(&self, started: &Started<'_>) -> Option<String> {
        let group = self.group(started.group)?;
        let is_here = |owner: &WorkerId| {
            self.member(group, owner.as_str()).is_some_and(|member| member.node == started.node)
        };
        let mut lost = self.lasting.lost.iter();
        let claim = lost.find(|(_, token, owner)| *token == started.token && is_here(owner));
        let owner = claim.map(|(_, _, owner)| owner.as_str().to_owned());
        owner.or_else(|| self.with_an_undone_beat(started))
    }

    /// The worker of this node that goes by a lease of which the others do not know, because the store has undone its last beats.
    /// It was declared dead meanwhile, and its claims may be others' by now.
    fn with_an_undone_beat(&self, started: &Started<'_>) -> Option<String> {
        let holds = |(key, beat): &(&String, &Duration)| {
            let of_group = key.strip_prefix("members/").and_then(|key| key.strip_prefix(started.group));
            let here = self.members.get(*key).is_some_and(|member| member.node == started.node);
            of_group.is_some_and(|key| key.starts_with('/')) && here && started.at <= **beat + self.rules.ttl
        };
        let (key, _) = self.lasting.beats.iter().find(holds)?;
        key.rsplit('/').next().map(str::to_owned)
    }

    /// True if the owner of the claim was declared dead because the store has undone its beats, and has its lease still.
    fn is_of_one_whose_beat_was_undone(&self, group: usize, started: &Started<'_>, place: Place) -> bool {
        let Some(mirror) = self.mirror(group, place) else { return false };
        let mut claims = mirror.claims_of(self, place.2).filter(|(claim, _)| claim.token == started.token);
        claims.any(|(claim, _)| {
            let Some(owner) = &claim.owner else { return false };
            let key = format!("members/{}/{owner}", self.rules.groups[group].name);
            let beat = self.lasting.beats.get(&key);
            let is_here =
                self.member(group, owner.as_str()).is_some_and(|member| member.node == started.node);
            is_here && beat.is_some_and(|beat| started.at <= *beat + self.rules.ttl)
        })
    }

    /// The place in which a message is started under a claim that was undone, if its worker need not know that yet.
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
            self.lasting.lost.iter().any(|(lost, token, owner)| {
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
    /// True if this run speaks for a claim of this owner: it was not undone, or is the owner's own.
    pub(super) fn speaks_for(&self, owner: Option<&WorkerId>) -> bool {
        !self.undone || owner.is_some_and(|owner| owner.as_str() == self.worker)
    }
}
