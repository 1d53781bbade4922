//! A commit to a shard's entry, followed until it is decided.
//!
//! A commit may answer that nobody knows. Then the entry is read: it shows whether the write has taken effect, and if it has
//! not, the same write is sent again. Both expect the same version, so that at most one of them ever takes effect.

use std::time::Duration;

use super::{Delivery, Shared};
use crate::claim::{Token, WorkerId};
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Commit, Entry, EntryKey, Version, Write};
use crate::mill::Sawmill;
use crate::planted::{self, Bug};
use crate::shard::ShardState;

/// A change of a shard's entry that is to be committed.
pub(super) struct Change {
    pub(super) key: EntryKey,
    pub(super) expect: Option<Version>,
    pub(super) state: ShardState,
    /// The claims that are this worker's if the change takes effect, and were not before.
    pub(super) gains: Vec<Token>,
    pub(super) worker: WorkerId,
}

/// What became of a change.
pub(super) enum Decided {
    /// It took effect; this is how the entry is now.
    Done(Version, ShardState),
    /// It did not and never will.
    Conflict,
    /// It was not sent, or the worker was stopped before anyone could tell.
    Failed(Error),
}

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Commits the change, and follows it until it is decided.
pub(super) async fn decide(shared: &Shared, mut change: Change) -> Decided {
    let mill = &shared.builder.mill;
    let ledger = mill.ledger();
    let env = shared.env();
    let value = mill.encode_shard(&mut change.state);
    let write = Write { key: change.key.clone(), expect: change.expect, value: Some(value.clone()) };
    let began = env.now();
    let mut pause = FIRST_PAUSE;
    // What must not be started twice must be known to be claimed, whatever happens to the store. Otherwise a crash of all of
    // it is as if the worker had died a moment earlier.
    let lasting = shared.builder.delivery != Delivery::AtLeastOnce && !planted::is(Bug::LightUnderOnce);
    // Until the first answer that nobody knows, an error means that nothing was written.
    let mut unsure = false;
    loop {
        shared.counts().commits += 1;
        let answer = match lasting {
            true => ledger.commit(write.clone()).await,
            false => ledger.commit_lightly(write.clone()).await,
        };
        match answer {
            Ok(Commit::Done(version)) => return Decided::Done(version, change.state),
            Ok(Commit::Conflict) if planted::is(Bug::ConflictMeansYes) => {
                return Decided::Done(
                    Version(change.expect.map_or(1, |version| version.0 + 1)),
                    change.state,
                );
            }
            Ok(Commit::Conflict) if !unsure => {
                shared.counts().conflicts += 1;
                return Decided::Conflict;
            }
            Err(error) if !unsure => return Decided::Failed(error),
            Ok(Commit::Unknown) if planted::is(Bug::UnknownMeansNo) => return Decided::Conflict,
            Ok(Commit::Unknown) if planted::is(Bug::UnknownMeansYes) => {
                return Decided::Done(
                    Version(change.expect.map_or(1, |version| version.0 + 1)),
                    change.state,
                );
            }
            Ok(Commit::Unknown | Commit::Conflict) | Err(_) => unsure = true,
        }
        loop {
            let late = shared.stop.is_cancelled() && env.now().since(began) >= shared.builder.ttl;
            if late || shared.abort.is_cancelled() {
                return Decided::Failed(Error::invalid("stopped before a commit was decided"));
            }
            match ledger.get(&change.key).await.and_then(|entry| change.landed(mill, entry.as_ref())) {
                Ok(Landed::Yes(version, state)) => return Decided::Done(version, state),
                Ok(Landed::Never) => return Decided::Conflict,
                Ok(Landed::NotYet) => break,
                // A newer program has changed it since, and this one cannot tell what was there before.
                Err(error) if error.kind() == ErrorKind::Outdated => return Decided::Failed(error),
                Err(error) => tracing::debug!(%error, key = %change.key, "still undecided"),
            }
            env.sleep(env.dice().jitter(pause)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        env.sleep(env.dice().jitter(pause)).await;
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

impl Change {
    /// Whether the change has taken effect, by the entry as it is now.
    fn landed(&self, mill: &Sawmill, entry: Option<&Entry>) -> Result<Landed> {
        if entry.map(|entry| entry.version) == self.expect {
            return Ok(Landed::NotYet);
        }
        let Some(entry) = entry else { return Ok(Landed::Never) };
        let now = mill.decode_shard(entry)?;
        // Tokens are given out by the entry itself, so another claim with this token has another owner or another block.
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
