//! The ledger: an entry is a row of its own partition, changed by lightweight transactions and by nothing else.
//!
//! A version is never forgotten while its entry may be written: a deleted entry stays as a mark for days, so that a write which comes late
//! finds it. Names are listed apart, before their entry is made; a name that is listed without an entry is passed over.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use sawmill::ledger::{Commit, Entry, EntryKey, Ledger, Version, Write};
use sawmill::log::Hints;
use sawmill::{Finding, Result};

use crate::error::{Trouble, corrupt, of_read};
use crate::link::Answer;
use crate::store::{Cassandra, read};

/// How many entries are read at once.
const AT_ONCE: usize = 64;

type Row = (Option<i64>, Option<Bytes>, Option<bool>);

fn version_of(number: i64) -> Result<Version> {
    u64::try_from(number).map(Version).map_err(|_| corrupt(format!("an entry with version {number}")))
}

impl Cassandra {
    async fn entry(&self, key: &EntryKey) -> Result<Option<Entry>> {
        let rows = self.link().ask(&self.link().say.entry_get, (self.namespace(), key.as_str())).await;
        let row = read(rows.and_then(Answer::rows::<Row>))?.into_iter().next();
        let Some((Some(version), value, dead)) = row else { return Ok(None) };
        if dead == Some(true) {
            return Ok(None);
        }
        Ok(Some(Entry { key: key.clone(), version: version_of(version)?, value: value.unwrap_or_default() }))
    }

    async fn change(&self, write: &Write, mark: &[u8]) -> Result<bool, Trouble> {
        let (namespace, name) = (self.namespace(), write.key.as_str());
        let version = |version: Version| i64::try_from(version.0).unwrap_or(i64::MAX);
        let next = write.expect.map_or(1, |expected| version(expected).saturating_add(1));
        let expected = write.expect.map(version);
        let say = &self.link().say;
        match &write.value {
            Some(value) => {
                if expected.is_none() {
                    // Before it is there, so that whoever lists finds it from the first moment.
                    let listed = self.link().ask(&say.name_add, (namespace, name)).await;
                    listed.map_err(|trouble| Trouble::Refused(of_read(trouble)))?;
                }
                let values = (next, value.as_ref(), mark, namespace, name, expected);
                self.link().decide(&say.entry_set, values).await
            }
            // A version that nobody can expect.
            None => self.link().decide(&say.entry_drop, (-next, mark, namespace, name, expected)).await,
        }
    }

    /// Whether a write of which nobody knows has been done, by a read that leaves nothing undecided.
    async fn resolve(&self, write: &Write, mark: &[u8]) -> Option<Commit> {
        let say = &self.link().say.entry_get_sure;
        let rows = self.link().ask(say, (self.namespace(), write.key.as_str())).await;
        let rows: Vec<(Option<i64>, Option<Bytes>)> = rows.and_then(Answer::rows).ok()?;
        match rows.into_iter().next() {
            Some((Some(version), Some(by))) if by.as_ref() == mark => {
                let version = u64::try_from(version).ok().map(Version);
                Some(Commit::Done(if write.value.is_some() { version? } else { write.expect? }))
            }
            // It may have been overwritten, or may still come.
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
        // Keys are made of letters, digits and signs, which all come before this.
        let upto = format!("{from}\u{7f}");
        let values = (self.namespace(), from, &upto);
        let names: Vec<(String,)> = read(self.link().all(&self.link().say.name_list, values).await)?;
        let keys: Vec<EntryKey> = names.into_iter().map(|(name,)| EntryKey::raw(name)).collect();
        let entries: Vec<_> = keys.iter().map(|key| self.entry(key)).collect();
        let entries: Vec<Option<Entry>> = stream::iter(entries).buffered(AT_ONCE).try_collect().await?;
        Ok(entries.into_iter().flatten().collect())
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        if write.value.is_none() && write.expect.is_none() {
            // There is nothing to delete: it is only a question whether it is so.
            let there = self.entry(&write.key).await?;
            return Ok(if there.is_none() { Commit::Done(Version(0)) } else { Commit::Conflict });
        }
        let dice = self.env().dice();
        let mark = [dice.roll().to_be_bytes(), dice.roll().to_be_bytes()].concat();
        match self.change(&write, &mark).await {
            Ok(true) => {}
            Ok(false) => return Ok(Commit::Conflict),
            Err(Trouble::Refused(error)) => return Err(error),
            Err(Trouble::Unknown(why)) => match self.resolve(&write, &mark).await {
                Some(done) => {
                    self.bells().ring_entries();
                    return Ok(done);
                }
                None => {
                    tracing::debug!(key = %write.key, why, "a commit is undecided");
                    return Ok(Commit::Unknown);
                }
            },
        }
        self.bells().ring_entries();
        let version = match (&write.value, write.expect) {
            (Some(_), expected) => Version(expected.map_or(1, |version| version.0 + 1)),
            (None, expected) => {
                let values = (self.namespace(), write.key.as_str());
                // A name that stays is passed over.
                let _ = self.link().ask(&self.link().say.name_drop, values).await;
                expected.unwrap_or(Version(0))
            }
        };
        Ok(Commit::Done(version))
    }

    fn watch(&self) -> Hints {
        self.bells().entry_hints()
    }

    async fn check_up(&self, _patience: Duration) -> Result<Vec<Finding>> {
        self.troubles().await
    }
}
