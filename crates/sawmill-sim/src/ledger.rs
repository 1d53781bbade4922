//! The simulated ledger: [`Entries`](crate::entries::Entries) behind the simulated network.

use std::sync::Arc;

use async_trait::async_trait;
use sawmill::engine::storage::{Commit, Entry, EntryKey, Ledger, Notifications, Version, Write};
use sawmill::{Error, ErrorKind, Result};
use tokio::sync::watch;

use crate::control::NodeId;
use crate::faults::FaultKind;
use crate::network::{Call, CallFate, CallKind, Outcome, Seam};
use crate::observer::Event;
use crate::store::Inside;
use crate::tasks::lock;
use crate::trace::digest;

/// The ledger of a [`SimStore`](crate::SimStore) for one node.
pub struct SimLedger {
    pub(crate) inside: Arc<Inside>,
    pub(crate) node: NodeId,
    pub(crate) notifier: Arc<watch::Sender<()>>,
}

impl SimLedger {
    async fn read<T: Send + 'static>(
        &self,
        name: &'static str,
        effect: impl FnOnce(&Inside) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inside = self.inside.clone();
        let call = Call { node: self.node, seam: Seam::Ledger, name, kind: CallKind::Read };
        match self.inside.network.call(call, move |_| async move { effect(&inside) }).await {
            Outcome::Answer(answer) => answer,
            Outcome::Unavailable | Outcome::Unknown => Err(unavailable()),
        }
    }

    async fn write(&self, write: Write, lightly: bool) -> Result<Commit> {
        let (inside, node) = (self.inside.clone(), self.node);
        let call = Call { node, seam: Seam::Ledger, name: "commit", kind: CallKind::Write };
        let effect = move |info: crate::network::CallInfo| async move {
            inside.commit(node, write, lightly, info.fate == CallFate::UnknownLate)
        };
        match self.inside.network.call(call, effect).await {
            Outcome::Answer(commit) => Ok(commit),
            Outcome::Unavailable => Err(unavailable()),
            Outcome::Unknown => Ok(Commit::Unknown),
        }
    }
}

#[async_trait]
impl Ledger for SimLedger {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        let key = key.clone();
        self.read("get", move |inside| Ok(lock(&inside.entries).get(&key))).await
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let prefix = prefix.clone();
        self.read("list", move |inside| Ok(lock(&inside.entries).list(&prefix))).await
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        self.write(write, false).await
    }

    async fn commit_lightly(&self, write: Write) -> Result<Commit> {
        self.write(write, self.inside.settings.undoes).await
    }

    fn entry_notifications(&self) -> Notifications {
        Notifications::new(self.notifier.subscribe())
    }
}

impl Inside {
    /// Applies or refuses a commit.
    fn commit(self: &Arc<Self>, node: NodeId, write: Write, lightly: bool, late: bool) -> Commit {
        let (old, answer) = {
            let mut entries = lock(&self.entries);
            (entries.get(&write.key), entries.commit(&write, lightly))
        };
        let Write { key, expect, value } = write;
        let version = |version: Option<Version>| version.map_or(0, |version| version.0);
        let found = old.as_ref().map(|entry| entry.version);
        if let Commit::Done(now) = answer {
            let content = value.as_ref().map_or(0, |value| digest(value));
            let numbers = [digest(key.as_str().as_bytes()), now.0, content];
            self.control.note(node, "commit", &numbers, || {
                let text = value.as_ref().map_or("deleted".into(), |value| String::from_utf8_lossy(value));
                format!("{key} v{} -> v{} {text}", version(found), now.0)
            });
            let (old, value) = (old.as_ref(), value.as_ref());
            self.emit(&Event::Committed { node, key: &key, old, version: now, value, late });
            self.notify(Seam::Ledger);
            if !lightly {
                self.commit_made_durable();
            }
        } else {
            // A refused late write is counted by its own kind only.
            if !late {
                self.control.strike(node, FaultKind::Conflict, || {
                    format!("{key} is v{}, expected v{}", version(found), version(expect))
                });
            }
            self.emit(&Event::Refused { node, key: &key, expected: expect, found });
        }
        answer
    }
}

pub(crate) fn unavailable() -> Error {
    Error::new(ErrorKind::Unavailable, "the simulated store cannot be reached; nothing was written")
}
