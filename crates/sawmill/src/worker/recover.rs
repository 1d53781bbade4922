//! Recovering: taking over what a former life of this worker had claimed, as its [journal](super::journal) knows it.

use std::collections::BTreeMap;

use super::Shared;
use super::decide::{Change, Decided, decide};
use super::foreman::Foreman;
use super::item::Start;
use super::journal::Past;
use crate::claim::{Claim, Progress, Token, WorkerId};
use crate::error::{ErrorKind, Result};
use crate::ledger::{EntryKey, Write};
use crate::message::Message;
use crate::planted::{self, Bug};

/// Says in the journal, if there is one, that these messages start now. False if they must not: then they are back on the bench.
pub(super) fn note_starts(shared: &Shared, starts: &[Start]) -> bool {
    let may = may_start(shared, starts);
    if may && shared.bench().is_spent() {
        // They are the last that this worker was to start.
        shared.stop_because(None);
    }
    may
}

fn may_start(shared: &Shared, starts: &[Start]) -> bool {
    let Some(journal) = &shared.journal else { return true };
    let noted = journal.started(starts.iter().map(|start| (start.item.message.id, start.item.pass)));
    if let Err(error) = &noted {
        tracing::error!(%error, "the worker stops, as it must not start what it cannot note");
        shared.stop_because(Some(error.to_string()));
    }
    let mut bench = shared.bench();
    // The disk may have taken its time.
    let now = shared.env().now();
    if noted.is_ok() && starts.iter().all(|start| bench.may_go_on(start.item.ticket, now)) {
        return true;
    }
    for start in starts.iter().rev() {
        bench.put_back(start.item.clone());
    }
    false
}

impl Foreman {
    /// Takes over what a former life has left, if there is something. Its member entry goes last: as long as it is there, nobody
    /// else takes the former life for dead.
    pub(super) async fn recover(&mut self, me: &WorkerId) -> Result<()> {
        let shared = self.shared.clone();
        let Some(journal) = &shared.journal else { return Ok(()) };
        let Some(past) = journal.past() else { return Ok(()) };
        if !shared.bench().is_leased(shared.env().now()) {
            return Ok(());
        }
        for index in 0..self.sources.len() {
            while !self.recover_source(me, index, &past).await? {}
        }
        for worker in &past.workers {
            self.remove_member(worker).await?;
        }
        journal.recovered();
        Ok(())
    }

    /// False if another worker has written to the shard meanwhile, and it is to be tried again.
    async fn recover_source(&mut self, me: &WorkerId, index: usize, past: &Past) -> Result<bool> {
        self.refresh(me, &[index]).await?;
        let Some((expect, mut state)) = self.sources[index].known.clone() else { return Ok(false) };
        let is_known = |owner: &WorkerId| past.workers.contains(owner);
        let mut started: BTreeMap<Token, Progress> = BTreeMap::new();
        for claim in state.claims.iter().filter(|claim| claim.owner.as_ref().is_some_and(is_known)) {
            let messages = self.reread(index, claim).await?;
            let was_started = |message: &Message| {
                past.started.contains(&(message.id, claim.pass)) && !planted::is(Bug::RecoveredRunsAgain)
            };
            let indexes = (0..claim.count).zip(&messages).filter(|(_, message)| was_started(message));
            started.insert(claim.token, indexes.map(|(index, _)| index).collect());
        }
        if started.is_empty() {
            return Ok(true);
        }
        let rules = self.spec(index).rules;
        let known = |claim: &Claim| started.get(&claim.token).cloned().unwrap_or_default();
        let recovered = state.recover(me, rules, is_known, known);
        if recovered.is_empty() {
            return Ok(true);
        }
        let gains = recovered.iter().map(|claim| claim.token).collect();
        let key = self.spec(index).key.clone();
        let change = Change { key, expect, state, gains, worker: me.clone() };
        match decide(&self.shared, change).await {
            Decided::Done(version, state) => {
                let open: u64 = recovered.iter().map(Claim::open).sum();
                let lost: u64 = recovered.iter().map(|claim| claim.started.len()).sum();
                tracing::info!(key = %self.spec(index).key, claims = recovered.len(), open, lost, "took over what a former life of this worker had claimed");
                self.shared.counts().recovered += recovered.len() as u64;
                self.sources[index].known = Some((Some(version), state));
                self.adopted.extend(recovered.into_iter().map(|claim| (index, claim)));
                Ok(true)
            }
            Decided::Conflict => {
                self.sources[index].known = None;
                Ok(false)
            }
            Decided::Failed(error) => Err(error),
        }
    }

    /// Removes the member entry of a former life. Nobody beats for it any more.
    async fn remove_member(&self, worker: &WorkerId) -> Result<()> {
        let ledger = self.shared.builder.mill.ledger();
        let key = EntryKey::member(&self.shared.group, worker.as_str());
        while let Some(entry) = ledger.get(&key).await? {
            ledger.commit(Write { key: key.clone(), expect: Some(entry.version), value: None }).await?;
        }
        Ok(())
    }

    /// The messages of a claim; none if they are gone from the log.
    pub(super) async fn reread(&self, index: usize, claim: &Claim) -> Result<Vec<Message>> {
        let spec = self.spec(index);
        let log = self.shared.builder.mill.log();
        match log.reread(&spec.topic, spec.shard, &claim.span).await {
            Err(error) if error.kind() == ErrorKind::Gone => {
                tracing::error!(%error, key = %spec.key, "a claim that was taken over cannot be worked: dropping it");
                Ok(Vec::new())
            }
            messages => messages,
        }
    }

    /// Lets the journal go on in its other file, if it is time.
    pub(super) fn tidy_journal(&self) {
        let Some(journal) = &self.shared.journal else { return };
        let (is_member, (oldest, last)) = {
            let bench = self.shared.bench();
            (bench.me().is_some(), bench.tickets())
        };
        // One that is no member may have left claims behind that the bench does not know any more.
        if is_member {
            journal.tidy(oldest, last);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Delivery, Sawmill};

    #[tokio::test]
    #[cfg(target_os = "linux")]
    async fn g16_a_worker_whose_journal_cannot_be_written_stops_and_leaves_messages_untouched() {
        let folder = tempfile::tempdir().unwrap();
        let mill = Sawmill::open("memory:").await.unwrap();
        mill.create_topic("orders").await.unwrap();
        let once = || mill.worker("orders").delivery(Delivery::AtMostOnce);
        let worker = once().journal(folder.path().join("j")).start(async || ()).await.unwrap();
        worker.shared.journal.as_ref().unwrap().spoil();
        mill.push_many("orders", (0..5).map(|i| i.to_string())).await.unwrap();
        let counts = worker.ended().await;
        assert_eq!((counts.started, counts.done, counts.dead), (0, 0, 0), "{counts:?}");
        assert!(counts.stopped_because.as_ref().is_some_and(|why| why.contains("journal")), "{counts:?}");

        let other = once().start(async || ()).await.unwrap();
        other.drained().await;
        assert_eq!(other.stop().await.done, 5);
    }
}
