//! The ledger: each entry is a row in a partition of its own, changed by lightweight transactions only.
//!
//! A version must not be forgotten while a write for it may still arrive: a deleted entry stays as a marker
//! for ten days, so that a late write finds it. Names are listed in another table before their entry is
//! created; listing skips a name without an entry.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use sawmill_engine::Result;
use sawmill_engine::storage::{Commit, Entry, EntryKey, Finding, Ledger, Notifications, Version, Write};

use crate::connection::link::Answer;
use crate::error::{Failure, corrupt, of_read};
use crate::store::{Cassandra, read};

/// How many entries are read concurrently.
const AT_ONCE: usize = 64;

type Row = (Option<i64>, Option<Bytes>, Option<bool>);

fn version_of(number: i64) -> Result<Version> {
    u64::try_from(number).map(Version).map_err(|_| corrupt(format!("an entry with version {number}")))
}

impl Cassandra {
    async fn entry(&self, key: &EntryKey) -> Result<Option<Entry>> {
        let rows =
            self.link().execute(&self.link().statements.entry_get, (self.namespace(), key.as_str())).await;
        let row = read(rows.and_then(Answer::rows::<Row>))?.into_iter().next();
        let Some((Some(version), value, dead)) = row else { return Ok(None) };
        if dead == Some(true) {
            return Ok(None);
        }
        Ok(Some(Entry { key: key.clone(), version: version_of(version)?, value: value.unwrap_or_default() }))
    }

    async fn change(&self, write: &Write, mark: &[u8]) -> Result<bool, Failure> {
        let (namespace, name) = (self.namespace(), write.key.as_str());
        let version = |version: Version| i64::try_from(version.0).unwrap_or(i64::MAX);
        let next = write.expect.map_or(1, |expected| version(expected).saturating_add(1));
        let expected = write.expect.map(version);
        let statements = &self.link().statements;
        match &write.value {
            Some(value) => {
                if expected.is_none() {
                    // List the name before the entry exists, so that a listing never misses the entry.
                    let listed = self.link().execute(&statements.name_add, (namespace, name)).await;
                    listed.map_err(|failure| Failure::Refused(of_read(failure)))?;
                }
                let values = (next, value.as_ref(), mark, namespace, name, expected);
                self.link().transact(&statements.entry_set, values).await
            }
            // A negative version, which no write can expect.
            None => {
                self.link().transact(&statements.entry_drop, (-next, mark, namespace, name, expected)).await
            }
        }
    }

    /// Finds out whether a write with an unknown outcome was applied, by a serial read. `None` if that cannot
    /// be told.
    async fn resolve(&self, write: &Write, mark: &[u8]) -> Option<Commit> {
        let statement = &self.link().statements.entry_get_serial;
        let rows = self.link().execute(statement, (self.namespace(), write.key.as_str())).await;
        let rows: Vec<(Option<i64>, Option<Bytes>)> = rows.and_then(Answer::rows).ok()?;
        match rows.into_iter().next() {
            Some((Some(version), Some(by))) if by.as_ref() == mark => {
                let version = u64::try_from(version).ok().map(Version);
                Some(Commit::Done(if write.value.is_some() { version? } else { write.expect? }))
            }
            // It may have been overwritten, or may still arrive.
            _ => None,
        }
    }
}

#[async_trait]
impl Ledger for Cassandra {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        self.entry(key).await
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let from = prefix.as_str();
        // Keys consist of printable ASCII, which sorts before this character.
        let upto = format!("{from}\u{7f}");
        let values = (self.namespace(), from, &upto);
        let names: Vec<(String,)> = read(self.link().all(&self.link().statements.name_list, values).await)?;
        let keys: Vec<EntryKey> = names.into_iter().map(|(name,)| EntryKey::raw(name)).collect();
        let entries: Vec<_> = keys.iter().map(|key| self.entry(key)).collect();
        let entries: Vec<Option<Entry>> = stream::iter(entries).buffered(AT_ONCE).try_collect().await?;
        Ok(entries.into_iter().flatten().collect())
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        if write.value.is_none() && write.expect.is_none() {
            // There is nothing to delete; only check that there is no entry.
            let there = self.entry(&write.key).await?;
            return Ok(if there.is_none() { Commit::Done(Version(0)) } else { Commit::Conflict });
        }
        let rng = self.env().rng();
        let mark = [rng.next_u64().to_be_bytes(), rng.next_u64().to_be_bytes()].concat();
        match self.change(&write, &mark).await {
            Ok(true) => {}
            Ok(false) => return Ok(Commit::Conflict),
            Err(Failure::Refused(error)) => return Err(error),
            Err(Failure::Unknown(why)) => match self.resolve(&write, &mark).await {
                Some(done) => {
                    self.notifier().notify_entries();
                    return Ok(done);
                }
                None => {
                    tracing::debug!(key = %write.key, why, "a commit is undecided");
                    return Ok(Commit::Unknown);
                }
            },
        }
        self.notifier().notify_entries();
        let version = match (&write.value, write.expect) {
            (Some(_), expected) => Version(expected.map_or(1, |version| version.0 + 1)),
            (None, expected) => {
                let values = (self.namespace(), write.key.as_str());
                // A name that remains is skipped when listing.
                let _ = self.link().execute(&self.link().statements.name_drop, values).await;
                expected.unwrap_or(Version(0))
            }
        };
        Ok(Commit::Done(version))
    }

    fn entry_notifications(&self) -> Notifications {
        self.notifier().entry_notifications()
    }

    async fn diagnose(&self, _patience: Duration) -> Result<Vec<Finding>> {
        self.ring_findings().await
    }
}
