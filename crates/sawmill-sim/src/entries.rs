//! The entries of the ledger, and how a crash of the store undoes light writes.
//!
//! A crash undoes all light writes since the last durable write, in the log or in the ledger. Versions are
//! never reused.

use std::collections::BTreeMap;

use bytes::Bytes;
use sawmill::engine::storage::{Commit, Entry, EntryKey, Version, Write};

#[derive(Default)]
pub(crate) struct Entries {
    held: BTreeMap<EntryKey, (Version, Bytes)>,
    /// The light writes since the last durable write, each with the previous value.
    light: Vec<(EntryKey, Option<(Version, Bytes)>)>,
    /// The greatest version before the last crash.
    floor: u64,
    greatest: u64,
}

impl Entries {
    pub(crate) fn get(&self, key: &EntryKey) -> Option<Entry> {
        self.held.get(key).map(|held| entry(key, held))
    }

    pub(crate) fn list(&self, prefix: &EntryKey) -> Vec<Entry> {
        let from = self.held.range(prefix.clone()..);
        let within = from.take_while(|(key, _)| key.as_str().starts_with(prefix.as_str()));
        within.map(|(key, held)| entry(key, held)).collect()
    }

    pub(crate) fn commit(&mut self, write: &Write, lightly: bool) -> Commit {
        let before = self.held.get(&write.key).cloned();
        let current = before.as_ref().map(|(version, _)| *version);
        if current != write.expect {
            return Commit::Conflict;
        }
        if lightly {
            self.light.push((write.key.clone(), before));
        }
        match &write.value {
            Some(value) => {
                let version = Version(current.map_or(0, |version| version.0).max(self.floor) + 1);
                self.greatest = self.greatest.max(version.0);
                self.held.insert(write.key.clone(), (version, value.clone()));
                Commit::Done(version)
            }
            None => {
                self.held.remove(&write.key);
                Commit::Done(current.unwrap_or(Version(0)))
            }
        }
    }

    /// Makes everything written until now durable. Returns true if something was not durable yet.
    pub(crate) fn make_durable(&mut self) -> bool {
        !std::mem::take(&mut self.light).is_empty()
    }

    /// Undoes everything that is not durable, as a crash of the store does. Returns the changed entries, as
    /// they are now.
    pub(crate) fn crash(&mut self) -> Vec<(EntryKey, Option<Entry>)> {
        self.floor = self.greatest;
        let mut keys = Vec::new();
        for (key, before) in std::mem::take(&mut self.light).into_iter().rev() {
            match before {
                Some(before) => self.held.insert(key.clone(), before),
                None => self.held.remove(&key),
            };
            keys.push(key);
        }
        keys.sort();
        keys.dedup();
        keys.into_iter().map(|key| (key.clone(), self.get(&key))).collect()
    }
}

fn entry(key: &EntryKey, (version, value): &(Version, Bytes)) -> Entry {
    Entry { key: key.clone(), version: *version, value: value.clone() }
}
