//! Looking around: who is there, what did the dead leave, and which shards are whose.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join, join_all};

use super::decide::{Change, Decided, decide};
use super::foreman::{Foreman, SHORTEST_LOOK, Source};
use super::gate::Sight;
use super::item::Incoming;
use super::journal::Journal;
use crate::cancel::Unwanted;
use crate::claim::{Claim, Token, WorkerId};
use crate::clock::Moment;
use crate::error::Result;
use crate::ledger::{Commit, Entry, EntryKey, Version, Write};
use crate::member::{InUse, Member, beat_interval, lease};
use crate::message::Message;
use crate::planted::{self, Bug};
use crate::retry::Next;
use crate::ring;
use crate::shard::ShardState;

/// The longest time between two looks at who is there: what a dead worker held must run again soon after its TTL.
const LONGEST_LOOK: Duration = Duration::from_millis(2500);

impl Foreman {
    /// How often to look at who is there. Others must be found dead in time, however seldom this worker polls for messages.
    pub(super) fn look_interval(&self) -> Duration {
        LONGEST_LOOK.min(self.shared.poll).min(self.shared.builder.ttl / 4)
    }

    /// Looks at who is there; when somebody has come or gone, and now and then, at everything.
    pub(super) async fn look(&mut self, me: &WorkerId) -> Result<()> {
        let shared = self.shared.clone();
        let env = shared.env();
        let interval = self.look_interval();
        // What is in hand may have been cancelled, or taken; and shares of a limit move with the members.
        let involved = shared.bench().in_hand() > 0 || shared.builder.limit.is_some();
        let well = involved || env.now() + interval / 2 >= self.look_well_from;
        if well || self.see_others(me).await? {
            self.look_around(me).await?;
            let seldom = shared.poll.min(shared.builder.ttl);
            self.look_well_from = env.now() + env.dice().jitter(seldom);
        }
        let now = env.now();
        self.look_from = now + interval / 2;
        // A beat wakes the foreman, and the look goes with it: only if beats are rarer does it have a time of its own.
        let own = match beat_interval(shared.builder.ttl) <= interval {
            true => interval * 5 / 4,
            false => env.dice().jitter(interval),
        };
        self.look_at = now + own + interval / 4;
        if let Some(death) = self.sightings.first_death() {
            self.look_at = self.look_at.min(death.max(now + SHORTEST_LOOK));
        }
        Ok(())
    }

    /// Reads the group's entries and its members, declares the silent dead, and takes over what nobody works.
    async fn look_around(&mut self, me: &WorkerId) -> Result<()> {
        let shared = self.shared.clone();
        let ledger = shared.builder.mill.ledger();
        let topics = shared.topics();
        let keys: Vec<EntryKey> = topics.iter().map(|topic| EntryKey::shards(topic, &shared.group)).collect();
        let lists = join_all(keys.iter().map(|key| ledger.list(key))).await;
        for (topic, entries) in topics.into_iter().zip(lists) {
            let entries: BTreeMap<_, _> =
                entries?.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
            for index in (0..self.sources.len()).filter(|index| shared.sources[*index].topic.uid == topic.uid)
            {
                match entries.get(&self.spec(index).key) {
                    Some(entry) => {
                        let state = shared.builder.mill.decode_shard(entry)?;
                        self.learn(index, me, Some(entry.version), state);
                    }
                    None => self.learn(index, me, None, ShardState::default()),
                }
            }
        }
        self.learn_cancels().await?;
        self.recover(me).await?;
        // The members are listed after the entries: a worker joins before it grabs, so that the owner of a claim that was
        // seen and is not among them has left or was declared dead.
        let stale = self.members.clone();
        self.see_others(me).await?;
        let members = if planted::is(Bug::StaleMembers) { stale } else { self.members.clone() };
        self.adopt(me, &members).await?;
        self.take_back(me);
        self.let_go();
        if !planted::is(Bug::HintsOnly) {
            self.maybe_anywhere();
        }
        Ok(())
    }

    /// Takes note of a shard's entry. Claims in hand that are not in it any more are lost.
    pub(super) fn learn(&mut self, index: usize, me: &WorkerId, version: Option<Version>, state: ShardState) {
        let mut bench = self.shared.bench();
        for (ticket, token) in bench.tokens(index) {
            let mine = |claim: &Claim| claim.token == token && claim.owner.as_ref() == Some(me);
            let keep = planted::is(Bug::DroppedFence) || planted::is(Bug::RemovedGoesOn);
            if !keep && !state.claims.iter().any(mine) {
                tracing::debug!(key = %self.spec(index).key, %token, "claim lost");
                bench.lose(ticket);
            }
        }
        drop(bench);
        // A crash of the whole store may have undone an adoption: it must not be in hand twice when it is adopted again.
        let mine = |claim: &Claim, token| claim.token == token && claim.owner.as_ref() == Some(me);
        self.adopted.retain(|(other, adopted)| {
            *other != index || state.claims.iter().any(|claim| mine(claim, adopted.token))
        });
        self.sources[index].known = Some((version, state));
    }

    /// Looks which messages were cancelled, if some entry says that there are more than this worker knows of.
    pub(super) async fn learn_cancels(&mut self) -> Result<()> {
        let counted = |source: &Source| source.known.as_ref().map(|(_, state)| state.cancels);
        let grown = |source: &Source| counted(source).is_some_and(|count| Some(count) != source.cancels);
        if !self.sources.iter().any(grown) {
            return Ok(());
        }
        let shared = self.shared.clone();
        let mut entries = Vec::new();
        for topic in shared.topics().iter().filter(|topic| topic.name.as_lane().is_none()) {
            entries.extend(shared.builder.mill.ledger().list(&EntryKey::cancels(topic)).await?);
        }
        let unwanted = Arc::new(Unwanted::named_by(&entries));
        // First told, then dropped: what comes back to the bench in between has heard of it.
        shared.site.cancels.send_replace(unwanted.clone());
        if !planted::is(Bug::CancelledInHandRuns) {
            shared.bench().cancel(&unwanted);
        }
        for source in &mut self.sources {
            source.cancels = counted(source).or(source.cancels);
        }
        Ok(())
    }

    /// Looks which topics are paused, and at who is there. True if somebody has come or gone.
    async fn see_others(&mut self, me: &WorkerId) -> Result<bool> {
        let began = self.shared.env().now();
        let members = EntryKey::members(&self.shared.group);
        // What this worker's entry says of limits is looked at before the members are listed.
        let said = self.shared.bench().says();
        let (sights, entries) =
            join(self.see_pauses(said), self.shared.builder.mill.ledger().list(&members)).await;
        let mut sights = sights?;
        let changed = self.meet_members(me, entries?, &mut sights).await?;
        self.looked(me, began, &sights);
        Ok(changed)
    }

    /// Which topics are paused; and what this worker's entry says of limits.
    async fn see_pauses(&self, said: Vec<InUse>) -> Result<Vec<Sight>> {
        let (mill, group) = (&self.shared.builder.mill, &self.shared.group);
        let bases = self.shared.bases();
        let pauses = join_all(bases.iter().map(|topic| mill.is_paused(topic, group))).await;
        let sight =
            |(paused, said): (Result<bool>, InUse)| Ok(Sight { paused: paused?, said, ..Sight::default() });
        pauses.into_iter().zip(said).map(sight).collect()
    }

    /// What was seen counts from before it was asked for, as a lease does.
    fn looked(&self, me: &WorkerId, began: Moment, sights: &[Sight]) {
        let mut bench = self.shared.bench();
        if bench.me() == Some(me) {
            bench.looked(began + lease(self.shared.builder.ttl), sights, self.shared.env().now());
            if bench.wants_beat() {
                self.shared.beat_now.notify_one();
            }
        }
    }

    /// Takes note of who is there, and declares the silent dead. True if somebody has come or gone.
    async fn meet_members(
        &mut self,
        me: &WorkerId,
        mut entries: Vec<Entry>,
        sights: &mut [Sight],
    ) -> Result<bool> {
        let shared = self.shared.clone();
        let ledger = shared.builder.mill.ledger();
        let others: Vec<_> =
            entries.iter().filter(|entry| entry.key.last() != me.as_str()).cloned().collect();
        for silent in self.sightings.look(&others, shared.env().now(), shared.builder.ttl) {
            let expect = match planted::is(Bug::UncheckedDeath) {
                true => ledger.get(&silent.key).await?.map(|entry| entry.version),
                false => Some(silent.version),
            };
            // Conflict: it lives. Unknown: it will be seen at the next look.
            let write = Write { key: silent.key.clone(), expect, value: None };
            if let Commit::Done(_) = ledger.commit(write).await? {
                shared.saw_death(&silent.key);
                entries.retain(|entry| entry.key != silent.key);
            }
        }
        let members: BTreeSet<String> = entries.iter().map(|entry| entry.key.last().to_owned()).collect();
        let changed = members != self.members;
        if changed {
            shared.tend.notify_one();
            shared.saw_rebalance(me, members.len());
            shared.counts().rebalances += 1;
            self.members = members;
        }
        let mut working = Vec::new();
        for entry in &entries {
            working.push((entry.key.last(), Member::decode(entry)?));
        }
        for (topic, sight) in shared.bases().iter().zip(sights) {
            let at_work = working.iter().filter(|(_, member)| member.topics.contains(&topic.uid));
            for (place, (name, member)) in at_work.enumerate() {
                sight.members += 1;
                match *name == me.as_str() {
                    true => sight.rank = Some(place),
                    false => sight.others += member.in_use.get(&topic.uid).copied().unwrap_or_default(),
                }
            }
        }
        // Of a limited topic no more work than can have a share of the limit.
        let most = shared.builder.limit.map_or(usize::MAX, |limit| limit.workers());
        let mut rank = vec![(usize::MAX, false, 0); self.sources.len()];
        for topic in shared.topics() {
            let works_it = |(_, member): &&(&str, Member)| member.topics.contains(&topic.uid);
            let names: Vec<&str> =
                working.iter().filter(works_it).map(|(name, _)| *name).take(most).collect();
            let holders =
                if names.is_empty() { Vec::new() } else { ring::preferred(&topic.uid, &names, topic.shards) };
            let wandering = ring::wandering(&topic.uid, me.as_str(), topic.shards);
            for (index, source) in self.sources.iter_mut().enumerate() {
                let spec = &shared.sources[index];
                if spec.topic.uid == topic.uid {
                    let holder = holders.get(usize::from(spec.shard)).map(|holder| names[*holder]);
                    source.mine = holder == Some(me.as_str());
                    let wander = wandering.iter().position(|shard| *shard == spec.shard).unwrap_or_default();
                    rank[index] = (spec.topic_index, !source.mine, wander);
                }
            }
        }
        self.order = (0..self.sources.len()).collect();
        self.order.sort_by_key(|index| rank[*index]);
        Ok(changed)
    }

    /// Takes over claims that nobody works. In ordered groups only of the shards that the ring gives to this worker.
    async fn adopt(&mut self, me: &WorkerId, members: &BTreeSet<String>) -> Result<()> {
        // What a former life left is recovered, not adopted, however long that takes.
        let past = self.shared.journal.as_ref().and_then(Journal::past);
        let is_past = |owner: &WorkerId| past.as_ref().is_some_and(|past| past.workers.contains(owner));
        let is_gone = |owner: &WorkerId| !members.contains(owner.as_str()) && !is_past(owner);
        // What this worker's former self left comes first: there may not be room for more.
        let former = self.shared.name.as_ref().and_then(|name| name.former.clone());
        if let Some(former) = former.filter(is_gone) {
            self.adopt_where(me, |owner| owner == Some(&former)).await?;
        }
        self.adopt_where(me, |owner| owner.is_none_or(is_gone)).await
    }

    /// Takes over claims whose owner, or nobody, is `wanted`: no more of them than this worker may still start.
    async fn adopt_where(&mut self, me: &WorkerId, wanted: impl Fn(Option<&WorkerId>) -> bool) -> Result<()> {
        for index in self.order.clone() {
            let (rules, topic) = (self.spec(index).rules, self.spec(index).topic_index);
            let (idle, may_start) = {
                let (bench, now) = (self.shared.bench(), self.shared.env().now());
                let may_start = bench.may_start(now) && !bench.is_crowded() && !bench.is_shut(topic);
                (bench.idle_slots(topic, now) > 0, may_start)
            };
            let source = &self.sources[index];
            let pending: u64 = self.adopted.iter().map(|(_, claim)| claim.open()).sum();
            let most = self.shared.bench().starts_left().saturating_sub(pending);
            if !may_start || most == 0 || !(source.mine || (idle && !rules.ordered)) {
                continue;
            }
            let Some((expect, state)) = &source.known else { continue };
            if !state.claims.iter().any(|claim| wanted(claim.owner.as_ref())) {
                continue;
            }
            let (expect, mut state) = (*expect, state.clone());
            let adopted = state.adopt_some(me, rules, most, &wanted);
            let gains: Vec<Token> = adopted.iter().map(|claim| claim.token).collect();
            if gains.is_empty() {
                continue;
            }
            let change =
                Change { key: self.spec(index).key.clone(), expect, state, gains, worker: me.clone() };
            match decide(&self.shared, change).await {
                Decided::Done(version, state) => {
                    self.shared.saw_adoption(index, me, adopted.len());
                    self.shared.counts().adopted += adopted.len() as u64;
                    self.sources[index].known = Some((Some(version), state));
                    self.adopted.extend(adopted.into_iter().map(|claim| (index, claim)));
                }
                Decided::Conflict => self.sources[index].known = None,
                Decided::Failed(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A crash of the whole store may undo what was written lightly, while this worker lives: then claims of its own are there
    /// that it has closed. Nobody else would take them as long as it beats; so it works them again, as another would have if
    /// it had died a moment before the crash. What is written so that it lasts, as under at-most-once, does not come back.
    fn take_back(&mut self, me: &WorkerId) {
        for (index, source) in self.sources.iter().enumerate() {
            let Some((_, state)) = &source.known else { continue };
            let held = self.shared.bench().tokens(index);
            let adopted = &self.adopted;
            let is_known = |token: Token| {
                held.iter().any(|(_, held)| *held == token)
                    || adopted.iter().any(|(other, claim)| *other == index && claim.token == token)
            };
            let forgotten: Vec<(usize, Claim)> = state
                .claims
                .iter()
                .filter(|claim| claim.owner.as_ref() == Some(me) && !claim.once && !is_known(claim.token))
                .map(|claim| (index, claim.clone()))
                .collect();
            if !forgotten.is_empty() {
                let key = &self.spec(index).key;
                tracing::info!(%key, claims = forgotten.len(), "reports were undone by the store: working them again");
            }
            if !planted::is(Bug::ReopenedClaimIgnored) {
                self.adopted.extend(forgotten);
            }
        }
    }

    /// Reads the messages of adopted claims again, and takes them in hand.
    pub(super) async fn fetch_adopted(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        if planted::is(Bug::AdoptedIsNotRun) {
            return Ok(());
        }
        // Of a shard that is being let go nothing more is taken in hand: these are given back with the others.
        while let Some(at) = self.adopted.iter().position(|(index, _)| !shared.bench().is_closing(*index)) {
            if shared.bench().is_crowded() {
                return Ok(());
            }
            let (index, claim) = self.adopted[at].clone();
            let messages = self.reread(index, &claim).await?;
            self.adopted.remove(at);
            let me = self.me.clone();
            self.take(me.as_ref(), index, claim, messages);
        }
        Ok(())
    }

    /// Takes a claim in hand, unless this worker is not the one any more that it belongs to. What must not be run is marked
    /// so in the same moment, before a slot can see it.
    pub(super) fn take(&self, me: Option<&WorkerId>, index: usize, claim: Claim, messages: Vec<Message>) {
        self.shared.saw_time();
        let env = self.shared.env();
        let policy = self.shared.builder.retry;
        let wait = |failed| match policy.after(failed, env.dice()) {
            Next::After(wait) => Some(wait),
            Next::AtOnce | Next::GiveUp => None,
        };
        let (lost, deaths, started) = (claim.lost, claim.deaths, claim.started.clone());
        let incoming = Incoming {
            source: index,
            topic: self.spec(index).topic_index,
            claim,
            messages,
            unwanted: self.shared.site.cancels.borrow().clone(),
            cancelled: Arc::new(self.shared.abort.child_token()),
        };
        let mut bench = self.shared.bench();
        if bench.me() != me && !planted::is(Bug::RemovedGoesOn) {
            return;
        }
        let ticket = bench.take(incoming, wait, env.now());
        if lost {
            let reason = "lost: its worker died, and an at-most-once group never starts a message again";
            bench.bury(ticket, |_| true, reason);
        } else if planted::is(Bug::GivesEverythingUp) {
            bench.bury(ticket, |_| true, "planted");
        } else if (deaths >= MOST_DEATHS && !planted::is(Bug::NeverBuried))
            || (deaths >= 2 && planted::is(Bug::BuriedTooSoon))
        {
            bench.bury(ticket, |_| true, &format!("{deaths} workers died while they held it"));
        } else if !started.is_empty() {
            let reason =
                "lost: its worker died while it ran, and an at-most-once group never starts a message again";
            bench.bury(ticket, |index| started.contains(index), reason);
        }
    }

    /// Starts nothing more of shards that others are to work, so that they can be given back: in ordered groups those that
    /// the ring gives to others, and all of a topic whose limit others have all of.
    fn let_go(&mut self) {
        for (index, source) in self.sources.iter().enumerate() {
            let mut bench = self.shared.bench();
            if (self.spec(index).rules.ordered && !source.mine)
                || bench.is_others(self.spec(index).topic_index)
            {
                bench.close(index);
            }
        }
    }
}

/// After how many deaths of its workers a claim is not run again: its messages are likely to be the cause.
const MOST_DEATHS: u32 = 10;
