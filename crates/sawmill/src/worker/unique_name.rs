//! A name that one living worker has at a time.
//!
//! A worker's id is new at each start, so two workers may usually have the same name. Where names must be
//! unique, as for the numbered instances of a supervisor, an entry of the ledger says which worker has the
//! name. It is taken by compare-and-set, and only from a worker that is no member any more: one that left, or
//! that was seen silent for its full TTL. A worker joins before it takes its name, so a holder that is not
//! among the members is gone.

use std::sync::{Mutex, MutexGuard};

use sawmill_engine::model::{GroupName, WorkerId};
use sawmill_engine::storage::{Commit, Entry, EntryKey, Ledger, Version, Write};
use sawmill_engine::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::store::{LivenessTracker, Store, decode_json, remove_silent};

/// How many times within a TTL the holder of a name is checked.
const CHECKS_PER_TTL: u32 = 40;

/// The content of a name's entry.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    worker: WorkerId,
}

/// The name of this worker, which no other living worker of the group may have.
pub(super) struct UniqueName {
    key: EntryKey,
    text: String,
    taken: Mutex<Taken>,
    /// The worker that had the name before. This worker takes over its unfinished messages first.
    pub(super) former: Option<WorkerId>,
}

/// The entry as this worker knows it.
struct Taken {
    version: Option<Version>,
}

impl UniqueName {
    /// Waits until no living worker has this name. Fails if the holder shows that it is alive.
    pub(super) async fn free(
        store: &Store,
        group: &GroupName,
        text: &str,
        ttl: std::time::Duration,
    ) -> Result<Self> {
        let (key, ledger) = (EntryKey::name(group, text), store.ledger());
        let mut liveness = LivenessTracker::default();
        let mut seen: Option<(WorkerId, Version)> = None;
        loop {
            let entry = ledger.get(&key).await?;
            let (version, former) = match &entry {
                Some(entry) => (Some(entry.version), Some(holder_of(entry)?)),
                None => (None, None),
            };
            let ours = |former| Self {
                key: key.clone(),
                text: text.to_owned(),
                taken: Mutex::new(Taken { version }),
                former,
            };
            let Some(holder) = former else { return Ok(ours(None)) };
            // Read after the name's entry: a worker joins before it takes a name.
            let Some(member) = ledger.get(&EntryKey::member(group, holder.as_str())).await? else {
                return Ok(ours(Some(holder)));
            };
            match &seen {
                None => {
                    tracing::info!(worker = %holder, "this name is another's: waiting to see whether that one lives")
                }
                Some(seen) if *seen != (holder.clone(), member.version) => {
                    return Err(in_use(text, group, &holder));
                }
                Some(_) => {}
            }
            seen = Some((holder.clone(), member.version));
            // If it was not removed, the next round shows whether it lives or another worker was faster.
            remove_silent(store, &mut liveness, &[member], ttl).await?;
            store.env().sleep(ttl / CHECKS_PER_TTL).await;
        }
    }

    /// Takes the name for a worker that has joined under this id.
    pub(super) async fn take(&self, ledger: &dyn Ledger, me: &WorkerId) -> Result<()> {
        let value = serde_json::to_vec(&Holder { worker: me.clone() }).unwrap_or_default();
        loop {
            let expect = self.taken().version;
            let write = Write { key: self.key.clone(), expect, value: Some(value.clone().into()) };
            let answer = ledger.commit(write).await?;
            if let Commit::Done(version) = answer {
                self.taken().version = Some(version);
                return Ok(());
            }
            let entry = ledger.get(&self.key).await?;
            let holder = entry.as_ref().map(holder_of).transpose()?;
            let version = entry.map(|entry| entry.version);
            match holder {
                Some(holder) if holder == *me => {
                    self.taken().version = version;
                    return Ok(());
                }
                // Nothing has been written yet: the same write may be sent again.
                _ if version == expect => {}
                holder => {
                    let holder = holder.map_or_else(|| "another".to_owned(), |holder| holder.to_string());
                    return Err(Error::new(
                        ErrorKind::InUse,
                        format!("another worker ({holder}) has taken the name {}", self.text),
                    ));
                }
            }
        }
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

fn holder_of(entry: &Entry) -> Result<WorkerId> {
    Ok(decode_json::<Holder>(entry)?.worker)
}

fn in_use(text: &str, group: &GroupName, holder: &WorkerId) -> Error {
    Error::new(
        ErrorKind::InUse,
        format!(
            "a worker with the name {text} is at work in group {group} already, as {holder}: stop that one first, or give \
             this one a name of its own"
        ),
    )
}
