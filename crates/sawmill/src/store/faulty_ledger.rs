//! A ledger for tests whose next commits meet chosen faults.

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use sawmill_engine::Result;
use sawmill_engine::storage::{Commit, Entry, EntryKey, Ledger, Memory, Notifications, Write};

/// What happens to a commit.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// It is not written, and has an unknown outcome.
    Lost,
    /// It is written, and has an unknown outcome.
    Unanswered,
    /// Another program writes this value just before. The commit reports this outcome.
    Overtaken(Bytes, Commit),
}

/// A ledger in memory with faults.
#[derive(Default)]
pub(crate) struct FaultyLedger {
    memory: Memory,
    /// The faults of the next commits, the last one first.
    faults: Mutex<Vec<Fault>>,
}

impl FaultyLedger {
    /// Sets the faults of the next commits, in their order.
    pub(crate) fn meet(&self, faults: impl IntoIterator<Item = Fault>) {
        let mut faults: Vec<Fault> = faults.into_iter().collect();
        faults.reverse();
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner) = faults;
    }
}

#[async_trait]
impl Ledger for FaultyLedger {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        self.memory.get(key).await
    }
    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        self.memory.list(prefix).await
    }
    async fn commit(&self, write: Write) -> Result<Commit> {
        let fault = self.faults.lock().unwrap_or_else(PoisonError::into_inner).pop();
        match fault {
            None => self.memory.commit(write).await,
            Some(Fault::Lost) => Ok(Commit::Unknown),
            Some(Fault::Unanswered) => self.memory.commit(write).await.map(|_| Commit::Unknown),
            Some(Fault::Overtaken(others, outcome)) => {
                self.memory.commit(Write { value: Some(others), ..write }).await?;
                Ok(outcome)
            }
        }
    }
    fn entry_notifications(&self) -> Notifications {
        self.memory.entry_notifications()
    }
}
