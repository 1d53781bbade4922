//! The ledger: entries of the coordination topic that begin with `l/`.

pub(crate) mod coordination;
#[cfg(test)]
pub(crate) mod model_tests;
pub(crate) mod rules;

use std::time::Duration;

use async_trait::async_trait;
use sawmill_engine::Result;
use sawmill_engine::storage::{Commit, Entry, EntryKey, Finding, Ledger, Notifications, Write};

use crate::ledger::coordination::check_size;
use crate::store::Kafka;

const PREFIX: &str = "l/";

#[async_trait]
impl Ledger for Kafka {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        self.coordination.catch_up().await?;
        let known = self.coordination.known(&format!("{PREFIX}{key}"));
        Ok(known.map(|(version, value)| Entry { key: key.clone(), version, value }))
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        self.coordination.catch_up().await?;
        let known = self.coordination.known_from(&format!("{PREFIX}{prefix}"));
        let entry = |(name, version, value): (String, _, _)| {
            let key = EntryKey::raw(name.strip_prefix(PREFIX)?);
            Some(Entry { key, version, value })
        };
        Ok(known.into_iter().filter_map(entry).collect())
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        check_size(write.value.as_ref())?;
        self.coordination.commit(&format!("{PREFIX}{}", write.key), write.expect, write.value).await
    }

    fn entry_notifications(&self) -> Notifications {
        self.coordination.notifications()
    }

    async fn diagnose(&self, _patience: Duration) -> Result<Vec<Finding>> {
        self.durability_findings().await
    }
}
