//! The foreman: grabs blocks for the slots, adopts what the dead left, reports progress, and lets go.
//!
//! It is one loop. In each round it settles what failed, looks around if it is time, grabs what there is room for, and
//! reports what is done; then it waits for a slot, a hint or its timer. Everything it knows of the ledger may be out of date:
//! compare-and-set decides.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;

use super::bench::{Copy, Incoming, Ticket};
use super::decide::{Change, Decided, decide};
use super::{Shared, SourceSpec, slot};
use crate::claim::{Claim, Token, WorkerId};
use crate::clock::Moment;
use crate::error::{ErrorKind, Result};
use crate::ledger::{EntryKey, Version, Write};
use crate::log::{Block, Hints, Record, Want};
use crate::member::{Member, Sightings};
use crate::message::Message;
use crate::planted::{self, Bug};
use crate::retry::{Failure, Next};
use crate::ring;
use crate::shard::{Fate, Grab, Report, ShardState, shard_of};

/// How long a finished claim may stay open in the ledger, in the hope that a grab takes its report along.
const LINGER: Duration = Duration::from_millis(20);
/// How often progress is reported while a claim is being worked.
const PROGRESS: Duration = Duration::from_millis(500);
/// The shortest and the longest wait when nothing happens; the longest is the builder's `poll`.
const FIRST_WAIT: Duration = Duration::from_millis(20);
/// The most messages in one block.
const BLOCK: usize = super::GRAB_MOST;

/// What the foreman knows of a shard.
struct Source {
    spec: usize,
    /// The shard's entry when it was last seen; `None` if it has to be looked at before anything is written.
    known: Option<(Option<Version>, ShardState)>,
    maybe: Maybe,
    /// The ring prefers this worker for it.
    mine: bool,
    /// Another worker has written to it lately, so what is known is likely to be out of date.
    contended: bool,
    /// When something was last written.
    written: Moment,
}

/// Whether a shard may have messages after the cursor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Maybe {
    No,
    Unknown,
    /// The last read left some behind.
    Yes,
}

pub(super) struct Foreman {
    shared: Arc<Shared>,
    me: Option<WorkerId>,
    sources: Vec<Source>,
    /// The order in which sources are tried; own ones before others, and within these in turn.
    order: Vec<usize>,
    turn: usize,
    /// Claims that were adopted and whose messages are still to be read.
    adopted: Vec<(usize, Claim)>,
    members: BTreeSet<String>,
    sightings: Sightings,
    look_at: Moment,
    drain: u64,
    wait: Duration,
}

/// Works until the worker is stopped.
pub(super) async fn run(shared: Arc<Shared>) {
    let source = |spec| Source {
        spec,
        known: None,
        maybe: Maybe::Unknown,
        mine: false,
        contended: false,
        written: Moment::default(),
    };
    let mut foreman = Foreman {
        me: None,
        sources: (0..shared.sources.len()).map(source).collect(),
        order: Vec::new(),
        turn: 0,
        adopted: Vec::new(),
        members: BTreeSet::new(),
        sightings: Sightings::default(),
        look_at: Moment::default(),
        drain: 0,
        wait: FIRST_WAIT,
        shared: shared.clone(),
    };
    let mut news = shared.builder.mill.log().news();
    let mut watch = shared.builder.mill.ledger().watch();
    while !shared.stop.is_cancelled() {
        match foreman.round().await {
            Ok(true) => foreman.wait = FIRST_WAIT,
            Ok(false) => foreman.rest(&mut news, &mut watch).await,
            Err(error) => {
                // The store is in trouble: stay alive and wait.
                tracing::warn!(%error, group = %shared.group, "the store does not answer; waiting");
                foreman.forget();
                foreman.rest(&mut Hints::never(), &mut Hints::never()).await;
            }
        }
    }
    foreman.leave().await;
    shared.foreman_done.cancel();
}

impl Foreman {
    /// One round. True if it achieved something and the next one should follow at once.
    async fn round(&mut self) -> Result<bool> {
        let me = self.shared.bench().me().cloned();
        if me != self.me {
            // A new id: nothing of what the old one knew or held counts any more.
            self.me = me;
            self.forget();
            if !planted::is(Bug::RemovedGoesOn) {
                self.adopted.clear();
            }
        }
        let Some(me) = self.me.clone() else { return Ok(false) };
        self.settle_failed().await?;
        let now = self.shared.env().now();
        let drain = self.shared.drains.load(Ordering::SeqCst);
        if now >= self.look_at || drain > self.drain {
            self.look_around(&me).await?;
            self.drain = drain;
        }
        self.fetch_adopted().await?;
        let grabbed = self.grab(&me).await?;
        self.report(&me).await?;
        slot::fill(&self.shared);
        if grabbed == 0 && self.is_drained() {
            self.shared.drained.send_replace(self.drain);
        }
        Ok(grabbed > 0)
    }

    /// Forgets what it knows of the ledger, so that the next round looks anew.
    fn forget(&mut self) {
        for source in &mut self.sources {
            source.known = None;
        }
        self.look_at = Moment::default();
    }

    fn is_drained(&self) -> bool {
        let nothing_left =
            self.sources.iter().all(|source| source.maybe == Maybe::No || !self.may_try(source));
        nothing_left && self.adopted.is_empty() && self.shared.bench().is_empty()
    }

    fn spec(&self, source: usize) -> &SourceSpec {
        &self.shared.sources[self.sources[source].spec]
    }

    // ── waiting ──

    /// Waits for a slot, a hint, or until it is time to look again.
    async fn rest(&mut self, news: &mut Hints, watch: &mut Hints) {
        let env = self.shared.env().clone();
        let now = env.now();
        let (next_wait, soon) = {
            let bench = self.shared.bench();
            (bench.next_wait(), !bench.dirty().is_empty() || bench.has_failed())
        };
        let mut wait = env.dice().jitter(self.wait);
        if soon {
            wait = wait.min(LINGER);
        }
        if let Some(next) = next_wait {
            wait = wait.min(next.since(now));
        }
        let shared = self.shared.clone();
        tokio::select! {
            biased;
            () = shared.stop.cancelled() => {}
            () = shared.wake.notified() => return,
            () = news.next() => {
                self.maybe_anywhere();
                return;
            }
            () = watch.next(), if self.is_kept_out() => {
                // The worker that still holds a shard of ours may have let go of it.
                self.look_at = now;
                env.sleep(LINGER).await;
                return;
            }
            () = env.sleep(wait) => {
                slot::fill(&self.shared);
                if planted::is(Bug::HintsOnly) {
                    return;
                }
                if wait >= self.wait / 2 {
                    self.maybe_anywhere();
                }
            }
        }
        // Idle waiting backs off, and is reset by work.
        self.wait = (self.wait * 2).min(self.shared.builder.poll);
    }

    /// True if another worker holds a shard that the ring now gives to this one.
    fn is_kept_out(&self) -> bool {
        let Some(me) = &self.me else { return false };
        self.sources.iter().any(|source| {
            let rules = self.shared.sources[source.spec].rules;
            source.mine && source.known.as_ref().is_some_and(|(_, state)| !state.may_grab(me, rules))
        })
    }

    fn maybe_anywhere(&mut self) {
        for source in &mut self.sources {
            if source.maybe == Maybe::No {
                source.maybe = Maybe::Unknown;
            }
        }
    }
}

// ── looking around: who is there, what did they leave ──

impl Foreman {
    /// Reads the group's entries and its members, declares the silent dead, and takes over what nobody works.
    async fn look_around(&mut self, me: &WorkerId) -> Result<()> {
        let shared = self.shared.clone();
        let ledger = shared.builder.mill.ledger();
        for topic in shared.topics() {
            let entries = ledger.list(&EntryKey::shards(&topic, &shared.group)).await?;
            let mut entries = entries.into_iter().peekable();
            for index in 0..self.sources.len() {
                let key = self.spec(index).key.clone();
                if self.spec(index).topic.uid != topic.uid {
                    continue;
                }
                match entries.next_if(|entry| entry.key == key) {
                    Some(entry) => {
                        let state = ShardState::decode(&key, &entry.value)?;
                        self.learn(index, me, Some(entry.version), state);
                    }
                    None => self.learn(index, me, None, ShardState::default()),
                }
            }
        }
        // The members are listed after the entries: a worker joins before it grabs, so that the owner of a claim that was
        // seen and is not among them has left or was declared dead.
        let stale = self.members.clone();
        self.meet_members(me).await?;
        let members = if planted::is(Bug::StaleMembers) { stale } else { self.members.clone() };
        self.adopt(me, &members).await?;
        self.let_go();
        self.maybe_anywhere();
        self.look_at = shared.env().now() + shared.env().dice().jitter(shared.builder.poll);
        Ok(())
    }

    /// Takes note of a shard's entry. Claims in hand that are not in it any more are lost.
    fn learn(&mut self, index: usize, me: &WorkerId, version: Option<Version>, state: ShardState) {
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
        self.sources[index].known = Some((version, state));
    }

    async fn meet_members(&mut self, me: &WorkerId) -> Result<()> {
        let shared = self.shared.clone();
        let ledger = shared.builder.mill.ledger();
        let mut entries = ledger.list(&EntryKey::members(&shared.group)).await?;
        let others: Vec<_> =
            entries.iter().filter(|entry| entry.key.last() != me.as_str()).cloned().collect();
        for silent in self.sightings.look(&others, shared.env().now(), shared.builder.ttl) {
            let expect = match planted::is(Bug::UncheckedDeath) {
                true => ledger.get(&silent.key).await?.map(|entry| entry.version),
                false => Some(silent.version),
            };
            // Conflict: it lives. Unknown: it will be seen at the next look.
            let write = Write { key: silent.key.clone(), expect, value: None };
            if let crate::ledger::Commit::Done(_) = ledger.commit(write).await? {
                tracing::warn!(member = %silent.key, "silent for a full TTL: declared dead");
                entries.retain(|entry| entry.key != silent.key);
            }
        }
        let members: BTreeSet<String> = entries.iter().map(|entry| entry.key.last().to_owned()).collect();
        if members != self.members {
            tracing::info!(group = %shared.group, members = members.len(), "the set of workers has changed");
            shared.counts().rebalances += 1;
            self.members = members;
        }
        let mut working = Vec::new();
        for entry in &entries {
            working.push((entry.key.last(), Member::decode(entry)?));
        }
        let mut rank = vec![(usize::MAX, false, 0); self.sources.len()];
        for topic in shared.topics() {
            let works_it = |(_, member): &&(&str, Member)| member.topics.contains(&topic.uid);
            let names: Vec<&str> = working.iter().filter(works_it).map(|(name, _)| *name).collect();
            let holders =
                if names.is_empty() { Vec::new() } else { ring::preferred(&topic.uid, &names, topic.shards) };
            let wandering = ring::wandering(&topic.uid, me.as_str(), topic.shards);
            for (index, source) in self.sources.iter_mut().enumerate() {
                let spec = &shared.sources[source.spec];
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
        Ok(())
    }

    /// Takes over claims that nobody works. In ordered groups only of the shards that the ring gives to this worker.
    async fn adopt(&mut self, me: &WorkerId, members: &BTreeSet<String>) -> Result<()> {
        let is_gone = |owner: &WorkerId| !members.contains(owner.as_str());
        for index in self.order.clone() {
            let rules = self.spec(index).rules;
            let (idle, may_start) = {
                let bench = self.shared.bench();
                (bench.idle_slots() > 0, bench.may_start(self.shared.env().now()))
            };
            let source = &self.sources[index];
            if !may_start || !(source.mine || (idle && !rules.ordered)) {
                continue;
            }
            let Some((expect, state)) = &source.known else { continue };
            if !state.has_orphans(is_gone) {
                continue;
            }
            let (expect, mut state) = (*expect, state.clone());
            let adopted = state.adopt(me, rules, is_gone);
            let gains: Vec<Token> = adopted.iter().map(|claim| claim.token).collect();
            if gains.is_empty() {
                continue;
            }
            let change =
                Change { key: self.spec(index).key.clone(), expect, state, gains, worker: me.clone() };
            match decide(&self.shared, change).await {
                Decided::Done(version, state) => {
                    tracing::info!(key = %self.spec(index).key, claims = adopted.len(), "adopted");
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

    /// Reads the messages of adopted claims again, and takes them in hand.
    async fn fetch_adopted(&mut self) -> Result<()> {
        while let Some((index, claim)) = self.adopted.first().cloned() {
            let shared = self.shared.clone();
            let spec = self.spec(index);
            let log = shared.builder.mill.log();
            let messages = match log.reread(&spec.topic, spec.shard, &claim.span).await {
                Ok(messages) => messages,
                Err(error) if error.kind() == ErrorKind::Gone => {
                    tracing::error!(%error, key = %spec.key, "an adopted claim cannot be worked: dropping it");
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            self.adopted.remove(0);
            if shared.bench().me() != self.me.as_ref() {
                return Ok(());
            }
            let (lost, deaths) = (claim.lost, claim.deaths);
            let ticket = self.take(index, claim, messages);
            let mut bench = shared.bench();
            if lost {
                bench.bury(
                    ticket,
                    "lost: its worker died, and an at-most-once group never starts a message again",
                );
            } else if deaths >= MOST_DEATHS {
                bench.bury(ticket, &format!("{deaths} workers died while they held it"));
            }
        }
        Ok(())
    }

    fn take(&self, index: usize, claim: Claim, messages: Vec<Message>) -> Ticket {
        let env = self.shared.env();
        let policy = self.shared.builder.retry;
        let wait = |failed| match policy.after(failed, env.dice()) {
            Next::After(wait) => Some(wait),
            Next::AtOnce | Next::GiveUp => None,
        };
        let incoming = Incoming {
            source: index,
            topic: self.spec(index).topic_index,
            claim,
            messages,
            cancelled: self.shared.abort.child_token(),
        };
        self.shared.bench().take(incoming, wait, env.now())
    }

    /// In ordered groups: starts nothing more of shards that the ring gives to others, so that they can be given back.
    fn let_go(&mut self) {
        for (index, source) in self.sources.iter().enumerate() {
            if self.spec(index).rules.ordered && !source.mine {
                self.shared.bench().close(index);
            }
        }
    }
}

/// After how many deaths of its workers a claim is not run again: its messages are likely to be the cause.
const MOST_DEATHS: u32 = 10;

// ── grabbing ──

impl Foreman {
    /// True if this worker may try to grab from this source.
    fn may_try(&self, source: &Source) -> bool {
        let spec = &self.shared.sources[source.spec];
        if !spec.rules.ordered {
            return true;
        }
        let Some(me) = &self.me else { return false };
        let held_by_another = source.known.as_ref().is_some_and(|(_, state)| !state.may_grab(me, spec.rules));
        source.mine && !held_by_another
    }

    /// The sources to read next: one that is known to have more, or all of which nothing is known. Topics in the order
    /// of their priority; own shards first, and others only when a slot would be idle.
    fn pick(&mut self, room: usize) -> Vec<usize> {
        let idle = self.shared.bench().idle_slots() > 0;
        let class = |index: usize| (self.spec(index).topic_index, self.sources[index].mine);
        let wanted = |index: &usize| {
            let source = &self.sources[*index];
            let pending = self.adopted.iter().any(|(adopted, _)| adopted == index);
            source.maybe != Maybe::No && !pending && (source.mine || idle) && self.may_try(source)
        };
        let candidates: Vec<usize> = self.order.iter().copied().filter(wanted).collect();
        let Some(first) = candidates.first() else { return Vec::new() };
        let first = class(*first);
        let mut picked: Vec<usize> = candidates.into_iter().filter(|index| class(*index) == first).collect();
        self.turn = self.turn.wrapping_add(1);
        let turn = self.turn % picked.len();
        picked.rotate_left(turn);
        if self.sources[picked[0]].maybe == Maybe::Yes {
            picked.truncate(1);
        } else {
            picked.retain(|index| self.sources[*index].maybe == Maybe::Unknown);
            picked.truncate(room);
        }
        picked
    }

    /// Reads and claims the next blocks. Returns how many messages were taken in hand.
    async fn grab(&mut self, me: &WorkerId) -> Result<usize> {
        let room = self.shared.bench().room(self.shared.env().now());
        if room == 0 {
            return Ok(0);
        }
        let mut picked = self.pick(room);
        if picked.is_empty() {
            return Ok(0);
        }
        self.refresh(me, &picked).await?;
        picked.retain(|index| self.may_try(&self.sources[*index]));
        let limit = (room / picked.len().max(1)).clamp(1, BLOCK);
        let blocks = self.read(&picked, limit).await?;

        let mut changes = Vec::new();
        for (index, mut block) in blocks {
            self.sources[index].maybe = if block.more { Maybe::Yes } else { Maybe::No };
            if block.messages.is_empty() {
                continue;
            }
            if planted::is(Bug::CursorTooFar) && block.messages.len() > 1 {
                block.messages.pop();
            }
            let Some((expect, mut state)) = self.sources[index].known.clone() else { continue };
            let reports = self.settle_in(&mut state, index, me);
            let grab =
                Grab { span: block.span.clone(), end: block.end.clone(), count: block.messages.len() as u32 };
            let Ok(token) = state.grab(me, self.spec(index).rules, &grab) else { continue };
            let change = Change {
                key: self.spec(index).key.clone(),
                expect,
                state,
                gains: vec![token],
                worker: me.clone(),
            };
            changes.push((index, change, token, reports, block));
        }
        let shared = self.shared.clone();
        let decisions = changes.into_iter().map(|(index, change, token, reports, block)| {
            let decided = decide(&shared, change);
            async move { (index, decided.await, token, reports, block) }
        });
        let mut taken = 0;
        let mut trouble = None;
        for (index, decided, token, reports, block) in join_all(decisions).await {
            match decided {
                Decided::Done(version, state) => {
                    let claim = state.claims.iter().find(|claim| claim.token == token).cloned();
                    self.written(index, version, state, reports);
                    if shared.bench().me() != Some(me) && !planted::is(Bug::RemovedGoesOn) {
                        continue;
                    }
                    if let Some(claim) = claim {
                        taken += block.messages.len();
                        self.take(index, claim, block.messages);
                        slot::fill(&shared);
                    }
                }
                Decided::Conflict => self.out_of_date(index),
                Decided::Failed(error) => {
                    self.out_of_date(index);
                    trouble = Some(error);
                }
            }
        }
        match trouble {
            Some(error) => Err(error),
            None => Ok(taken),
        }
    }

    /// Another worker has written to this shard.
    fn out_of_date(&mut self, index: usize) {
        let source = &mut self.sources[index];
        source.known = None;
        source.contended = true;
        source.maybe = Maybe::Unknown;
    }

    /// Gets the entries of sources of which too little is known, or which others write to as well.
    async fn refresh(&mut self, me: &WorkerId, picked: &[usize]) -> Result<()> {
        let shared = self.shared.clone();
        let ledger = shared.builder.mill.ledger();
        let stale = picked.iter().copied().filter(|index| {
            let source = &self.sources[*index];
            source.known.is_none() || source.contended
        });
        let gets: Vec<_> = stale.map(|index| (index, self.spec(index).key.clone())).collect();
        let entries =
            join_all(gets.into_iter().map(|(index, key)| async move { (index, ledger.get(&key).await) }));
        for (index, entry) in entries.await {
            match entry? {
                Some(entry) => {
                    let state = ShardState::decode(&entry.key, &entry.value)?;
                    let unchanged = self.sources[index].known.as_ref().map(|(version, _)| *version)
                        == Some(Some(entry.version));
                    self.sources[index].contended &= !unchanged;
                    self.learn(index, me, Some(entry.version), state);
                }
                None => self.learn(index, me, None, ShardState::default()),
            }
        }
        Ok(())
    }

    /// Reads the picked sources after their cursors.
    async fn read(&self, picked: &[usize], limit: usize) -> Result<Vec<(usize, Block)>> {
        let log = self.shared.builder.mill.log();
        let mut blocks = Vec::new();
        for topic in self.shared.topics() {
            let (mut indexes, mut wants) = (Vec::new(), Vec::new());
            for index in picked.iter().copied().filter(|index| self.spec(*index).topic.uid == topic.uid) {
                if let Some((_, state)) = &self.sources[index].known {
                    indexes.push(index);
                    wants.push(Want { shard: self.spec(index).shard, after: state.cursor.clone(), limit });
                }
            }
            if !wants.is_empty() {
                self.shared.counts().reads += 1;
                blocks.extend(indexes.into_iter().zip(log.read(&topic, &wants).await?));
            }
        }
        Ok(blocks)
    }
}

// ── reporting ──

impl Foreman {
    /// Notes in the state what there is to report about this source. Claims that are not ours any more are dropped.
    fn settle_in(&self, state: &mut ShardState, index: usize, me: &WorkerId) -> Vec<(Ticket, Report)> {
        let mut bench = self.shared.bench();
        let mut reports = bench.reports(index);
        reports.retain(|(ticket, report)| {
            let settled = state.settle(me, report);
            if settled.is_err() {
                bench.lose(*ticket);
            }
            settled.is_ok()
        });
        reports
    }

    /// The reports are in the ledger.
    fn written(&mut self, index: usize, version: Version, state: ShardState, reports: Vec<(Ticket, Report)>) {
        let mut bench = self.shared.bench();
        for (ticket, report) in &reports {
            bench.reported(*ticket, report);
        }
        drop(bench);
        let source = &mut self.sources[index];
        source.known = Some((Some(version), state));
        source.written = self.shared.env().now();
    }

    /// Reports what is done, where no grab has taken the report along and it is time.
    async fn report(&mut self, me: &WorkerId) -> Result<()> {
        let now = self.shared.env().now();
        let (dirty, pause) = {
            let bench = self.shared.bench();
            let seldom = bench.in_hand() > 0 && bench.is_quick();
            (bench.dirty(), if seldom { PROGRESS } else { LINGER })
        };
        let released: Vec<usize> = {
            let bench = self.shared.bench();
            (0..self.sources.len()).filter(|index| bench.is_closed(*index)).collect()
        };
        let due =
            |index: &usize| now.since(self.sources[*index].written) >= pause || released.contains(index);
        let mut wanted: Vec<usize> = dirty.into_iter().filter(due).collect();
        wanted.extend(released.iter().copied());
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return Ok(());
        }
        let unknown: Vec<usize> =
            wanted.iter().copied().filter(|index| self.sources[*index].known.is_none()).collect();
        self.refresh(me, &unknown).await?;
        self.write_reports(me, &wanted, &released).await
    }

    /// Writes the reports of some sources, and gives back all claims of others.
    async fn write_reports(&mut self, me: &WorkerId, wanted: &[usize], released: &[usize]) -> Result<()> {
        let mut changes = Vec::new();
        for index in wanted.iter().copied() {
            let Some((expect, mut state)) = self.sources[index].known.clone() else { continue };
            let before = state.clone();
            let reports = self.settle_in(&mut state, index, me);
            if released.contains(&index) {
                let adopted = self
                    .adopted
                    .iter()
                    .filter(|(adopted, _)| *adopted == index)
                    .map(|(_, claim)| claim.token);
                let held = self.shared.bench().tokens(index).into_iter().map(|(_, token)| token);
                for token in held.chain(adopted).collect::<Vec<_>>() {
                    // A claim that was just closed by its report is not there to be given back.
                    let _ = state.give_back(me, token);
                }
            }
            if state != before {
                let key = self.spec(index).key.clone();
                let change = Change { key, expect, state, gains: Vec::new(), worker: me.clone() };
                changes.push((index, change, reports));
            } else if released.contains(&index) {
                self.shared.bench().gave_back(index);
            }
        }
        let shared = self.shared.clone();
        let decisions = changes.into_iter().map(|(index, change, reports)| {
            let decided = decide(&shared, change);
            async move { (index, decided.await, reports) }
        });
        let mut trouble = None;
        for (index, decided, reports) in join_all(decisions).await {
            match decided {
                Decided::Done(version, state) => {
                    self.written(index, version, state, reports);
                    if released.contains(&index) {
                        self.adopted.retain(|(adopted, _)| *adopted != index);
                        self.shared.bench().gave_back(index);
                    }
                }
                Decided::Conflict => self.out_of_date(index),
                Decided::Failed(error) => {
                    self.out_of_date(index);
                    trouble = Some(error);
                }
            }
        }
        trouble.map_or(Ok(()), Err)
    }

    /// Appends the copies of failed messages to their lanes. Only then do the messages count as settled.
    async fn settle_failed(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        let log = shared.builder.mill.log();
        let now = shared.env().wall();
        let failed = {
            let mut bench = shared.bench();
            // Past the lease the claim may be another's by now, who will run the message and speak for it.
            if !bench.has_failed() || !bench.is_leased(shared.env().now()) {
                return Ok(());
            }
            bench.take_failed()
        };
        let mut batches: Vec<(crate::topic::Topic, Vec<Record>)> = Vec::new();
        let mut settled = Vec::new();
        for failed in &failed {
            let lanes = &self.spec(failed.source).lanes;
            let (lane, message, fate) = copy_of(failed, lanes, now);
            let key =
                message.key.clone().unwrap_or_else(|| message.id.as_u128().to_be_bytes().to_vec().into());
            let record = Record { shard: shard_of(&key, lane.shards), message };
            match batches.iter_mut().find(|(topic, _)| topic.uid == lane.uid) {
                Some((_, records)) => records.push(record),
                None => batches.push((lane.clone(), vec![record])),
            }
            settled.push(fate);
        }
        for (topic, records) in batches {
            if let Err(error) = log.append(&topic, now, records).await {
                shared.bench().put_back_failed(failed);
                return Err(error);
            }
        }
        let dead = settled.iter().filter(|fate| **fate == Fate::Dead).count();
        shared.counts().dead += dead as u64;
        let mut bench = shared.bench();
        for (failed, fate) in failed.into_iter().zip(settled) {
            bench.failed_settled(failed.item, fate);
        }
        drop(bench);
        slot::fill(&shared);
        Ok(())
    }
}

fn copy_of<'a>(
    failed: &super::bench::Failed,
    lanes: &'a super::Lanes,
    now: crate::clock::Timestamp,
) -> (&'a crate::topic::Topic, Message, Fate) {
    let item = &failed.item;
    let failures: &[Failure] = &item.failures;
    match &failed.copy {
        Copy::Retry { after, counted } => {
            let copy = item.message.retry_copy(item.failed + u32::from(*counted), failures, now + *after);
            (&lanes.retry, copy, Fate::Retried)
        }
        Copy::Dead { reason } => {
            let counted = u32::from(!failures.is_empty());
            (&lanes.dead, item.message.dead_copy(item.failed + counted, failures, reason), Fate::Dead)
        }
    }
}

// ── leaving ──

impl Foreman {
    /// Waits for what runs, gives back what was not started, and says so in the ledger.
    async fn leave(&mut self) {
        let shared = self.shared.clone();
        let env = shared.env().clone();
        {
            let mut bench = shared.bench();
            bench.stop();
            for index in 0..self.sources.len() {
                bench.close(index);
            }
        }
        while shared.bench().running() > 0 {
            let _ = self.settle_failed().await;
            let _ = env.within(PROGRESS, shared.wake.notified()).await;
        }
        // A store that is down must not keep the worker for ever: what cannot be said now, others find out.
        if env.within(shared.builder.ttl, self.say_goodbye()).await.is_none() {
            tracing::warn!(group = %shared.group, "left without reporting everything: the store does not answer");
        }
    }

    async fn say_goodbye(&mut self) {
        let shared = self.shared.clone();
        loop {
            let me = shared.bench().me().cloned();
            // Declared dead: nothing is ours to give back.
            let Some(me) = me.filter(|me| self.me.as_ref() == Some(me)) else { return };
            let all: Vec<usize> = (0..self.sources.len())
                .filter(|index| {
                    let adopted = self.adopted.iter().any(|(adopted, _)| adopted == index);
                    adopted || !shared.bench().tokens(*index).is_empty()
                })
                .collect();
            if all.is_empty() && !shared.bench().has_failed() {
                return;
            }
            let said = async {
                self.settle_failed().await?;
                self.refresh_all(&me, &all).await?;
                self.write_reports(&me, &all, &all).await
            };
            if let Err(error) = said.await {
                tracing::debug!(%error, "not given back yet");
                shared.env().sleep(LINGER).await;
            }
        }
    }

    async fn refresh_all(&mut self, me: &WorkerId, wanted: &[usize]) -> Result<()> {
        for index in wanted {
            self.sources[*index].known = None;
        }
        self.refresh(me, wanted).await
    }
}
