//! The coordinator's knowledge of each shard: its entry as last seen, and whether it may have messages.
//!
//! All of it may be out of date. Compare-and-set decides whether a write based on it takes effect.

use std::sync::Arc;

use futures_util::future::join_all;
use sawmill_engine::fault;
use sawmill_engine::model::{Claim, Message, NextAttempt, ShardState, WorkerId};
use sawmill_engine::runtime::Moment;
use sawmill_engine::storage::{EntryKey, Version};
use sawmill_engine::{ErrorKind, Result};

use crate::store::cancel::CancelledMessages;
use crate::worker::inflight::IncomingClaim;
use crate::worker::{ShardSource, Shared};

/// The most claims on a shard. They are one value in the ledger, which every change rewrites.
const MOST_CLAIMS: usize = 1000;
/// After this many deaths of its workers a claim is not run again: its messages are likely to be the cause.
const MOST_DEATHS: u32 = 10;

/// The coordinator's knowledge of a shard.
pub(crate) struct ShardView {
    /// The shard's entry when it was last seen; `None` if it must be read before anything is written.
    pub(crate) known: Option<(Option<Version>, ShardState)>,
    pub(crate) readable: Readable,
    /// The ring prefers this worker for the shard.
    pub(crate) preferred: bool,
    /// Another worker has written to the entry lately, so `known` is likely to be out of date.
    pub(crate) contended: bool,
    /// The entry's count of cancellations when they were last read; `None` if they never were.
    pub(crate) cancellations: Option<u32>,
    /// When this worker last wrote the entry.
    pub(crate) written: Moment,
}

impl ShardView {
    /// Notes that there may be messages now.
    fn recheck(&mut self) {
        if !self.readable.is_worth_reading() {
            self.readable = Readable::Unknown;
        }
    }
}

/// The knowledge of whether a shard has messages after the cursor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readable {
    No,
    /// The engine returned nothing but there may be messages: the shard is read again after a rest.
    Later,
    Unknown,
    /// The last read left some behind.
    Yes,
}

impl Readable {
    pub(crate) fn is_worth_reading(self) -> bool {
        matches!(self, Self::Unknown | Self::Yes)
    }
}

/// The shards of a worker, as one member of the group knows them.
pub(crate) struct ShardCache {
    pub(crate) shared: Arc<Shared>,
    /// The id under which the worker is a member.
    pub(crate) me: Option<WorkerId>,
    /// In the order of [`Shared::sources`].
    pub(crate) shards: Vec<ShardView>,
    /// Adopted claims whose messages are still to be read.
    pub(crate) adopted: Vec<(usize, Claim)>,
}

impl ShardCache {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let view = |_| ShardView {
            known: None,
            readable: Readable::Unknown,
            preferred: false,
            contended: false,
            cancellations: None,
            written: Moment::default(),
        };
        Self { me: None, shards: shared.sources.iter().map(view).collect(), adopted: Vec::new(), shared }
    }

    /// Starts over under another id. Everything that was known or held under the old one is dropped.
    pub(crate) fn become_member(&mut self, me: Option<WorkerId>) {
        self.me = me;
        self.forget();
        if !fault!(RemovedGoesOn) {
            self.adopted.clear();
        }
    }

    /// Forgets the entries of all shards.
    pub(crate) fn forget(&mut self) {
        for shard in &mut self.shards {
            shard.known = None;
        }
    }

    pub(crate) fn source(&self, index: usize) -> &ShardSource {
        &self.shared.sources[index]
    }

    /// True if this worker may try to claim from this shard.
    pub(crate) fn may_claim_from(&self, index: usize) -> bool {
        let (source, shard) = (self.source(index), &self.shards[index]);
        if shard.known.as_ref().is_some_and(|(_, state)| state.claims.len() >= MOST_CLAIMS) {
            return false;
        }
        if !source.rules.ordered {
            return !self.shared.inflight().is_closing(index);
        }
        let Some(me) = &self.me else { return false };
        let held_by_another =
            shard.known.as_ref().is_some_and(|(_, state)| !state.may_claim(me, source.rules));
        // Claims that are being given back come before newer messages, even if the ring has given the shard
        // back meanwhile.
        shard.preferred && !held_by_another && !self.shared.inflight().is_closing(index)
    }

    /// Updates the known entry of a shard. Claims in hand that are no longer in it are lost.
    pub(crate) fn update_shard(
        &mut self,
        index: usize,
        me: &WorkerId,
        version: Option<Version>,
        state: ShardState,
    ) {
        let mut inflight = self.shared.inflight();
        for (ticket, token) in inflight.tokens(index) {
            let mine = |claim: &Claim| claim.token == token && claim.owner.as_ref() == Some(me);
            let keep = fault!(DroppedFence) || fault!(RemovedGoesOn);
            if !keep && !state.claims.iter().any(mine) {
                tracing::debug!(key = %self.source(index).key, %token, "claim lost");
                inflight.lose(ticket);
            }
        }
        drop(inflight);
        // A crash of the whole store may have undone an adoption: the claim must not be in hand twice when it
        // is adopted again.
        let mine = |claim: &Claim, token| claim.token == token && claim.owner.as_ref() == Some(me);
        self.adopted.retain(|(other, adopted)| {
            *other != index || state.claims.iter().any(|claim| mine(claim, adopted.token))
        });
        self.shards[index].known = Some((version, state));
    }

    /// Notes that another worker has written to this shard.
    pub(crate) fn out_of_date(&mut self, index: usize) {
        let shard = &mut self.shards[index];
        shard.known = None;
        shard.contended = true;
        shard.readable = Readable::Unknown;
    }

    /// Reads the entries of those of these shards that are unknown or contended.
    pub(crate) async fn reload(&mut self, me: &WorkerId, picked: &[usize]) -> Result<()> {
        let shared = self.shared.clone();
        let ledger = shared.builder.store.ledger();
        let stale = picked.iter().copied().filter(|index| {
            let shard = &self.shards[*index];
            shard.known.is_none() || shard.contended
        });
        let gets: Vec<_> = stale.map(|index| (index, self.source(index).key.clone())).collect();
        let entries =
            join_all(gets.into_iter().map(|(index, key)| async move { (index, ledger.get(&key).await) }));
        for (index, entry) in entries.await {
            match entry? {
                Some(entry) => {
                    let state = shared.builder.store.decode_shard(&entry)?;
                    let unchanged = self.shards[index].known.as_ref().map(|(version, _)| *version)
                        == Some(Some(entry.version));
                    self.shards[index].contended &= !unchanged;
                    self.update_shard(index, me, Some(entry.version), state);
                }
                None => self.update_shard(index, me, None, ShardState::default()),
            }
        }
        Ok(())
    }

    /// Reads all of these entries again.
    pub(crate) async fn reload_all(&mut self, me: &WorkerId, wanted: &[usize]) -> Result<()> {
        for index in wanted {
            self.shards[*index].known = None;
        }
        self.reload(me, wanted).await
    }

    /// Reads which messages were cancelled, if some entry counts other cancellations than this worker has
    /// read.
    pub(crate) async fn refresh_cancellations(&mut self) -> Result<()> {
        let counted = |shard: &ShardView| shard.known.as_ref().map(|(_, state)| state.cancels);
        let grown =
            |shard: &ShardView| counted(shard).is_some_and(|count| Some(count) != shard.cancellations);
        if !self.shards.iter().any(grown) {
            return Ok(());
        }
        let shared = self.shared.clone();
        let mut entries = Vec::new();
        for topic in shared.topics().iter().filter(|topic| topic.name.as_lane().is_none()) {
            entries.extend(shared.builder.store.ledger().list(&EntryKey::cancels(topic)).await?);
        }
        let cancelled_messages = Arc::new(CancelledMessages::named_by(&entries));
        // Published first, then dropped here: a message that is put back in between is checked against the
        // published list.
        shared.site.cancellations.send_replace(cancelled_messages.clone());
        if !fault!(CancelledInHandRuns) {
            shared.inflight().cancel(&cancelled_messages);
        }
        for shard in &mut self.shards {
            shard.cancellations = counted(shard).or(shard.cancellations);
        }
        Ok(())
    }

    pub(crate) fn recheck_all(&mut self) {
        self.shards.iter_mut().for_each(ShardView::recheck);
    }

    /// Notes that there may be messages in these topics.
    pub(crate) fn recheck_topics(&mut self, topics: &[String]) {
        for (shard, source) in self.shards.iter_mut().zip(&self.shared.sources) {
            if topics.contains(&source.topic.uid) {
                shard.recheck();
            }
        }
    }

    // ── taking claims in hand ──

    /// Reads the messages of a claim again. Returns none if they are gone from the log.
    pub(crate) async fn reread(&self, index: usize, claim: &Claim) -> Result<Vec<Message>> {
        let source = self.source(index);
        let log = self.shared.builder.store.log();
        match log.reread(&source.topic, source.shard, &claim.span).await {
            Err(error) if error.kind() == ErrorKind::Gone => {
                tracing::error!(%error, key = %source.key, "a claim that was taken over cannot be worked: dropping it");
                Ok(Vec::new())
            }
            messages => messages,
        }
    }

    /// Reads the messages of adopted claims again, and takes them in hand.
    pub(crate) async fn fetch_adopted(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        if fault!(AdoptedIsNotRun) {
            return Ok(());
        }
        // Claims on a shard that is being given up are not taken in hand: they are given back with its
        // others.
        while let Some(at) = self.adopted.iter().position(|(index, _)| !shared.inflight().is_closing(*index))
        {
            if shared.inflight().is_crowded() {
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

    /// Takes a claim in hand, unless it no longer belongs to this worker. Messages that must not run become
    /// dead letters under the same lock, before a slot can take them.
    pub(crate) fn take(&self, me: Option<&WorkerId>, index: usize, claim: Claim, messages: Vec<Message>) {
        self.shared.record_time();
        let env = self.shared.env();
        let policy = self.shared.builder.retry;
        let wait = |failed| match policy.after(failed, env.rng()) {
            NextAttempt::After(wait) => Some(wait),
            NextAttempt::AtOnce | NextAttempt::GiveUp => None,
        };
        let (lost, deaths, started) = (claim.lost, claim.deaths, claim.started.clone());
        let incoming = IncomingClaim {
            source: index,
            topic: self.source(index).topic_index,
            claim,
            messages,
            cancelled_messages: self.shared.site.cancellations.borrow().clone(),
            cancelled: Arc::new(self.shared.abort.child_token()),
        };
        let mut inflight = self.shared.inflight();
        if inflight.me() != me && !fault!(RemovedGoesOn) {
            return;
        }
        let ticket = inflight.take(incoming, wait, env.now());
        if lost {
            let reason = "lost: its worker died, and an at-most-once group never starts a message again";
            inflight.bury(ticket, |_| true, reason);
        } else if fault!(GivesEverythingUp) {
            inflight.bury(ticket, |_| true, "planted");
        } else if (deaths >= MOST_DEATHS && !fault!(NeverBuried)) || (deaths >= 2 && fault!(BuriedTooSoon)) {
            inflight.bury(ticket, |_| true, &format!("{deaths} workers died while they held it"));
        } else if !started.is_empty() {
            let reason =
                "lost: its worker died while it ran, and an at-most-once group never starts a message again";
            inflight.bury(ticket, |index| started.contains(index), reason);
        }
    }
}
