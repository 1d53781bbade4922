//! A commit to a shard's entry, followed until it is decided.
//!
//! The outcome of a commit may be unknown. Then the entry is read: it shows whether the write has taken
//! effect. If it has not, the same write is sent again. Both expect the same version, so at most one of them
//! takes effect.

use std::time::Duration;

use sawmill_engine::fault;
use sawmill_engine::model::{ShardState, Token, WorkerId};
use sawmill_engine::storage::{Commit, Entry, EntryKey, Version, Write};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::store::Store;
use crate::worker::{Delivery, Shared};

/// A change to a shard's entry that is to be committed.
pub(crate) struct ShardChange {
    pub(crate) key: EntryKey,
    pub(crate) expect: Option<Version>,
    pub(crate) state: ShardState,
    /// The claims that this worker gains if the change takes effect.
    pub(crate) gains: Vec<Token>,
    pub(crate) worker: WorkerId,
}

/// What became of a change.
pub(crate) enum CommitOutcome {
    /// It took effect; this is the entry now.
    Done(Version, ShardState),
    /// It did not take effect and never will.
    Conflict,
    /// It was not sent, or the worker was stopped before the outcome was known.
    Failed(Error),
}

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Commits the change, and follows it until it is decided.
pub(crate) async fn commit_until_decided(shared: &Shared, mut change: ShardChange) -> CommitOutcome {
    let store = &*shared.builder.store;
    let ledger = store.ledger();
    let env = shared.env();
    let value = store.encode_shard(&mut change.state);
    let write = Write { key: change.key.clone(), expect: change.expect, value: Some(value.clone()) };
    let began = env.now();
    let mut pause = FIRST_PAUSE;
    // Messages that must not be started twice need a claim that survives a crash of the whole store. For
    // others such a crash is as if the worker had died a moment earlier.
    let lasting = shared.builder.delivery != Delivery::AtLeastOnce && !fault!(LightUnderOnce);
    // Until a commit has an unknown outcome, an error means that nothing was written.
    let mut unsure = false;
    loop {
        shared.counts().commits += 1;
        let answer = match lasting {
            true => ledger.commit(write.clone()).await,
            false => ledger.commit_lightly(write.clone()).await,
        };
        match answer {
            Ok(Commit::Done(version)) => return CommitOutcome::Done(version, change.state),
            Ok(Commit::Conflict) if fault!(ConflictMeansYes) => {
                return CommitOutcome::Done(
                    Version(change.expect.map_or(1, |version| version.0 + 1)),
                    change.state,
                );
            }
            Ok(Commit::Conflict) if !unsure => {
                shared.counts().conflicts += 1;
                return CommitOutcome::Conflict;
            }
            Err(error) if !unsure => return CommitOutcome::Failed(error),
            Ok(Commit::Unknown) if fault!(UnknownMeansNo) => return CommitOutcome::Conflict,
            Ok(Commit::Unknown) if fault!(UnknownMeansYes) => {
                return CommitOutcome::Done(
                    Version(change.expect.map_or(1, |version| version.0 + 1)),
                    change.state,
                );
            }
            Ok(Commit::Unknown | Commit::Conflict) | Err(_) => unsure = true,
        }
        loop {
            let late = shared.stop.is_cancelled() && env.now().since(began) >= shared.builder.ttl;
            if late || shared.abort.is_cancelled() {
                return CommitOutcome::Failed(Error::invalid("stopped before a commit was decided"));
            }
            match ledger.get(&change.key).await.and_then(|entry| change.landed(store, entry.as_ref())) {
                Ok(Landed::Yes(version, state)) => return CommitOutcome::Done(version, state),
                Ok(Landed::Never) => return CommitOutcome::Conflict,
                Ok(Landed::NotYet) => break,
                // A newer program has changed the entry since, and this one cannot read it.
                Err(error) if error.kind() == ErrorKind::Outdated => return CommitOutcome::Failed(error),
                Err(error) => tracing::debug!(%error, key = %change.key, "still undecided"),
            }
            env.sleep(env.rng().jitter(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        env.sleep(env.rng().jitter(pause)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

enum Landed {
    Yes(Version, ShardState),
    /// The entry is as it was before: the write may still be on its way.
    NotYet,
    /// The entry has moved on without it.
    Never,
}

impl ShardChange {
    /// Returns whether the change has taken effect, by the entry as it is now.
    fn landed(&self, store: &Store, entry: Option<&Entry>) -> Result<Landed> {
        if entry.map(|entry| entry.version) == self.expect {
            return Ok(Landed::NotYet);
        }
        let Some(entry) = entry else { return Ok(Landed::Never) };
        let now = store.decode_shard(entry)?;
        // Tokens are issued by the entry itself, so another claim with this token has another owner or
        // another block.
        let gained = self.gains.iter().all(|token| {
            let mine = self.state.claims.iter().find(|claim| claim.token == *token);
            let there = now.claims.iter().find(|claim| claim.token == *token);
            matches!((mine, there), (Some(mine), Some(there))
                if there.owner.as_ref() == Some(&self.worker) && mine.span == there.span)
        });
        if now == self.state || (gained && !self.gains.is_empty()) {
            Ok(Landed::Yes(entry.version, now))
        } else {
            Ok(Landed::Never)
        }
    }
}
