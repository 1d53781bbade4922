//! Reporting: what is done goes into the claims, what failed goes to its lane first, and what is left is given back.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use super::decide::{Change, Decided, decide};
use super::foreman::{Foreman, PROGRESS, SHORT_LINGER};
use super::item::{Copy, Failed, Ticket};
use super::journal::Journal;
use super::slot;
use super::{Delivery, Lanes, SourceSpec};
use crate::claim::WorkerId;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::ledger::Version;
use crate::log::Record;
use crate::message::{Message, MessageId};
use crate::planted::{self, Bug};
use crate::shard::{Fate, Report, ShardState};
use crate::topic::Topic;
use crate::unique;

impl Foreman {
    /// Notes in the state what there is to report about this source. Claims that are not ours any more are dropped.
    pub(super) fn settle_in(
        &self,
        state: &mut ShardState,
        index: usize,
        me: &WorkerId,
    ) -> Vec<(Ticket, Report)> {
        let mut bench = self.shared.bench();
        let before = state.tally;
        let mut reports = bench.reports(index);
        reports.retain(|(ticket, report)| {
            let settled = state.settle(me, report);
            if settled.is_err() {
                bench.lose(*ticket);
            }
            settled.is_ok()
        });
        self.shared.saw_settling(index, before, state.tally);
        reports
    }

    /// The reports are in the ledger.
    pub(super) fn written(
        &mut self,
        index: usize,
        version: Version,
        state: ShardState,
        reports: Vec<(Ticket, Report)>,
    ) {
        self.shared.saw_settled(index);
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
    pub(super) async fn report(&mut self, me: &WorkerId) -> Result<()> {
        let now = self.shared.env().now();
        let (dirty, pause) = {
            let bench = self.shared.bench();
            // Under at-most-once what is done and not reported would be taken for lost.
            let seldom = bench.in_hand() > 0
                && bench.is_quick()
                && self.shared.builder.delivery != Delivery::AtMostOnce;
            let pause = if seldom { PROGRESS } else { self.linger() };
            (bench.dirty(), if bench.is_full() { Duration::ZERO } else { pause })
        };
        let released: Vec<usize> = {
            let bench = self.shared.bench();
            (0..self.sources.len()).filter(|index| bench.is_closed(*index)).collect()
        };
        let due = |index: &usize| now.since(self.sources[*index].written) >= pause;
        // When one is due all others go with it, in one transaction where the engine can.
        let mut wanted = if dirty.iter().any(due) { dirty } else { Vec::new() };
        wanted.extend(released.iter().copied());
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() {
            return Ok(());
        }
        self.refresh(me, &wanted).await?;
        self.write_reports(me, &wanted, &released).await
    }

    /// Writes the reports of some sources, and gives back the claims of others: those that were adopted and not taken in hand,
    /// and those in hand if all of them are closed.
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
                let held = {
                    let bench = self.shared.bench();
                    if bench.is_closed(index) { bench.tokens(index) } else { Vec::new() }
                };
                for token in held.into_iter().map(|(_, token)| token).chain(adopted).collect::<Vec<_>>() {
                    // A claim that was just closed by its report is not there to be given back.
                    let _ = state.give_back(me, token);
                }
            }
            if state != before {
                let key = self.spec(index).key.clone();
                let change = Change { key, expect, state, gains: Vec::new(), worker: me.clone() };
                changes.push((index, change, reports));
            } else if released.contains(&index) {
                self.gave_back(index);
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
                        self.shared.saw_give_back(index);
                        self.gave_back(index);
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

    /// The claims of this source are not this worker's any more.
    fn gave_back(&mut self, index: usize) {
        self.adopted.retain(|(adopted, _)| *adopted != index);
        let mut bench = self.shared.bench();
        if bench.is_closed(index) {
            bench.gave_back(index);
        }
    }

    /// Appends the copies of failed messages to their lanes, and gives back the names of unique ones. Only then do the
    /// messages count as settled.
    pub(super) async fn settle_failed(&mut self) -> Result<()> {
        let shared = self.shared.clone();
        let log = shared.builder.mill.log();
        let now = shared.env().wall();
        let failed = {
            let mut bench = shared.bench();
            // Past the lease the claim may be another's by now, who will run the message and speak for it.
            if !bench.has_failed() || !bench.is_leased(shared.env().now()) {
                return Ok(());
            }
            bench.failed()
        };
        let mut batches: Vec<(Topic, Vec<Record>)> = Vec::new();
        let mut settled = Vec::new();
        for failed in &failed {
            let lanes = &self.spec(failed.source).lanes;
            let (copy, fate) = copy_of(failed, lanes, now);
            settled.push(fate);
            let Some((lane, message)) = copy else { continue };
            let record = Record::repeatable_in(log, lane, message);
            match batches.iter_mut().find(|(topic, _)| topic.uid == lane.uid) {
                Some((_, records)) => records.push(record),
                None => batches.push((lane.clone(), vec![record])),
            }
        }
        for (topic, records) in batches {
            log.append(&topic, now, records).await?;
        }
        self.give_back_names(&failed, &settled).await?;
        let dead = settled.iter().filter(|fate| **fate == Fate::Dead).count();
        shared.counts().dead += dead as u64;
        shared.saw_copies(&failed);
        let mut bench = shared.bench();
        for (failed, fate) in failed.iter().zip(settled) {
            bench.failed_settled(failed, fate);
        }
        drop(bench);
        slot::fill(&shared);
        Ok(())
    }

    /// The names of unique messages that are settled for good are free for this group.
    async fn give_back_names(&self, failed: &[Failed], fates: &[Fate]) -> Result<()> {
        let shared = &self.shared;
        let kept = |fate: &Fate| *fate == Fate::Dead && planted::is(Bug::DeadNameNotFreed);
        let for_good = failed.iter().zip(fates).filter(|(_, fate)| **fate != Fate::Retried && !kept(fate));
        let mut topics: BTreeMap<usize, Vec<(&str, MessageId)>> = BTreeMap::new();
        for (Failed { item, source, .. }, _) in for_good {
            if let Some(name) = item.message.unique_name() {
                topics.entry(self.spec(*source).topic_index).or_default().push((name, item.message.origin()));
            }
        }
        for (index, names) in topics {
            // The names are the topic's, also of messages that come from a lane.
            let is_base =
                |source: &&SourceSpec| source.topic_index == index && source.topic.name.as_lane().is_none();
            if let Some(source) = shared.sources.iter().find(is_base) {
                let mill = &shared.builder.mill;
                unique::settle(mill, &source.topic, &shared.group, names.into_iter()).await?;
            }
        }
        Ok(())
    }
}

/// The wait before a retry; another one if that bug is planted.
fn planted_wait(after: Duration) -> Duration {
    match () {
        () if planted::is(Bug::RetriedAtOnce) => Duration::ZERO,
        () if planted::is(Bug::RetriedLate) => after * 4,
        () => after,
    }
}

/// The copy that a message leaves on a lane, if any, and what became of it.
fn copy_of<'a>(failed: &Failed, lanes: &'a Lanes, now: Timestamp) -> (Option<(&'a Topic, Message)>, Fate) {
    let item = &failed.item;
    let failures = &item.failures;
    match &failed.copy {
        Copy::Retry { after, counted } => {
            let copy = item.message.retry_copy(
                item.failed.saturating_add(u32::from(*counted)),
                failures,
                item.pass,
                now + planted_wait(*after),
            );
            let due = copy.due.filter(|_| !planted::is(Bug::RetryWithoutDue));
            (Some((&lanes.retry, Message { due, ..copy })), Fate::Retried)
        }
        Copy::Dead { reason } => {
            let counted = u32::from(!failures.is_empty());
            let copy =
                item.message.dead_copy(item.failed.saturating_add(counted), failures, item.pass, reason);
            (Some((&lanes.dead, copy)), Fate::Dead)
        }
        Copy::None { fate } => (None, *fate),
    }
}

impl Foreman {
    /// Waits for what runs, gives back what was not started, and says so in the ledger.
    pub(super) async fn leave(&mut self) {
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
            // What is finished must not wait for the last handler: others can take over the rest.
            let _ = env.within(shared.builder.ttl, self.hand_over()).await;
            let _ = env.within(PROGRESS, shared.wake.notified()).await;
        }
        // A store that is down must not keep the worker for ever: what cannot be said now, others find out.
        match env.within(shared.builder.ttl, self.say_goodbye()).await {
            Some(true) => shared.journal.iter().for_each(Journal::finish),
            Some(false) => {}
            None => {
                tracing::warn!(group = %shared.group, "left without reporting everything: the store does not answer");
            }
        }
    }

    /// Settles what failed, reports what is done, and gives back shards of which nothing runs any more.
    async fn hand_over(&mut self) -> Result<()> {
        self.settle_failed().await?;
        let me = self.shared.bench().me().cloned();
        match me.filter(|me| self.me.as_ref() == Some(me)) {
            Some(me) => self.report(&me).await,
            None => Ok(()),
        }
    }

    /// True if nothing of what was this worker's is left.
    async fn say_goodbye(&mut self) -> bool {
        let shared = self.shared.clone();
        loop {
            let me = shared.bench().me().cloned();
            // Declared dead: nothing is ours to give back.
            let Some(me) = me.filter(|me| self.me.as_ref() == Some(me)) else { return false };
            if let Err(error) = self.give_back_all(&me).await {
                tracing::debug!(%error, "not given back yet");
            }
            if self.adopted.is_empty() && shared.bench().is_empty() {
                return true;
            }
            shared.env().sleep(SHORT_LINGER).await;
        }
    }

    /// Gives back every claim of which nothing runs and no failed message waits for its copy.
    async fn give_back_all(&mut self, me: &WorkerId) -> Result<()> {
        self.settle_failed().await?;
        let closed: Vec<usize> = {
            let bench = self.shared.bench();
            let adopted = |index: &usize| self.adopted.iter().any(|(adopted, _)| adopted == index);
            (0..self.sources.len()).filter(|index| adopted(index) || bench.is_closed(*index)).collect()
        };
        self.refresh_all(me, &closed).await?;
        self.write_reports(me, &closed, &closed).await
    }

    async fn refresh_all(&mut self, me: &WorkerId, wanted: &[usize]) -> Result<()> {
        for index in wanted {
            self.sources[*index].known = None;
        }
        self.refresh(me, wanted).await
    }
}
