//! A name that one living worker has at a time.
//!
//! A worker's id is new at each start, so two workers may have the same name, and mostly nobody minds. Where names mean
//! something, as the numbers of instances do that a supervisor starts again and again, an entry of the ledger says which
//! worker has the name. It is taken by compare-and-set, and only from a worker that is no member any more: one that left,
//! or that was seen silent for its full TTL. A worker joins before it takes its name, so that a holder who is not among the
//! members is gone.

use std::sync::{Mutex, MutexGuard};

use serde::{Deserialize, Serialize};

use crate::claim::WorkerId;
use crate::env::Env;
use crate::error::{Error, ErrorKind, Result};
use crate::ledger::{Commit, EntryKey, Ledger, Version, Write};
use crate::member::Sightings;
use crate::observe;
use crate::topic::GroupName;

/// How many times within a TTL the holder of a name is looked at.
const LOOKS: u32 = 40;

/// What the entry of a name says.
#[derive(Debug, Serialize, Deserialize)]
struct Holder {
    worker: WorkerId,
}

/// The name of this worker, if it must be its alone.
pub(super) struct Name {
    key: EntryKey,
    text: String,
    taken: Mutex<Taken>,
    /// Who had the name before this worker: what that one left is this worker's to go on with.
    pub(super) former: Option<WorkerId>,
}

/// The entry as this worker knows it.
struct Taken {
    version: Option<Version>,
}

impl Name {
    /// Waits until nobody has this name who is alive. One who shows that it is, is the error.
    pub(super) async fn free(
        ledger: &dyn Ledger,
        env: &Env,
        group: &GroupName,
        text: &str,
        ttl: std::time::Duration,
    ) -> Result<Self> {
        let key = EntryKey::name(group, text);
        let mut sightings = Sightings::default();
        let mut seen: Option<(WorkerId, Version)> = None;
        loop {
            let entry = ledger.get(&key).await?;
            let (version, former) = match &entry {
                Some(entry) => (Some(entry.version), Some(decode(&key, &entry.value)?)),
                None => (None, None),
            };
            let ours = |former| Self {
                key: key.clone(),
                text: text.to_owned(),
                taken: Mutex::new(Taken { version }),
                former,
            };
            let Some(holder) = former else { return Ok(ours(None)) };
            // Looked up after the name: a worker joins before it takes one.
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
            for silent in sightings.look(std::slice::from_ref(&member), env.now(), ttl) {
                let write = Write { key: silent.key.clone(), expect: Some(silent.version), value: None };
                // If it is not done, the next look tells whether that one lives, or somebody else was faster.
                if let Commit::Done(_) = ledger.commit(write).await? {
                    observe::declared_dead(&silent.key);
                }
            }
            env.sleep(ttl / LOOKS).await;
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
            let holder = entry.as_ref().map(|entry| decode(&self.key, &entry.value)).transpose()?;
            let version = entry.map(|entry| entry.version);
            match holder {
                Some(holder) if holder == *me => {
                    self.taken().version = version;
                    return Ok(());
                }
                // Nothing was written, as far as one can see: the same write may be sent again.
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

fn decode(key: &EntryKey, value: &[u8]) -> Result<WorkerId> {
    let holder: Holder = serde_json::from_slice(value).map_err(|error| {
        let what = format!("ledger entry {key} cannot be understood; was it written by a newer version?");
        Error::new(ErrorKind::Corrupt, what).caused_by(error)
    })?;
    Ok(holder.worker)
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
