//! The ledger on SQLite. Entries are rows of one table, and each change is one statement that names the
//! expected version.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use sawmill_engine::storage::{Commit, Entry, EntryKey, Finding, Ledger, Notifications, Version, Write};
use sawmill_engine::{ErrorKind, Result};

use crate::Sqlite;
use crate::error::{Failure, corrupt};
use crate::threads::batch::Batch;

#[async_trait]
impl Ledger for Sqlite {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        let (namespace, key) = (self.namespace(), key.clone());
        self.check_certain()?;
        self.readers().read_lightly(move |connection| get(connection, &namespace, key)).await
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let (namespace, prefix) = (self.namespace(), prefix.clone());
        self.check_certain()?;
        self.readers().read_lightly(move |connection| list(connection, &namespace, &prefix)).await
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        ended(self.writer().write(weight(&write), move |batch| commit(batch, &write)).await)
    }

    async fn commit_lightly(&self, write: Write) -> Result<Commit> {
        ended(self.writer().write_lightly(weight(&write), move |batch| commit(batch, &write)).await)
    }

    fn entry_notifications(&self) -> Notifications {
        self.entry_notifications()
    }

    async fn diagnose(&self, _patience: Duration) -> Result<Vec<Finding>> {
        self.find_problems().await
    }
}

fn weight(write: &Write) -> usize {
    256 + write.value.as_ref().map_or(0, Bytes::len)
}

fn ended(ended: Result<Commit>) -> Result<Commit> {
    match ended {
        Err(error) if error.kind() == ErrorKind::Unknown => Ok(Commit::Unknown),
        ended => ended,
    }
}

fn get(connection: &Connection, namespace: &str, key: EntryKey) -> Result<Option<Entry>, Failure> {
    let mut select = connection
        .prepare_cached("SELECT key, version, value FROM entry WHERE namespace = ?1 AND key = ?2")?;
    let mut rows = select.query(params![namespace, key.as_str()])?;
    rows.next()?.map(|row| entry(row, key)).transpose()
}

fn list(connection: &Connection, namespace: &str, prefix: &EntryKey) -> Result<Vec<Entry>, Failure> {
    let mut select = connection.prepare_cached(
        "SELECT key, version, value FROM entry WHERE namespace = ?1 AND key >= ?2 ORDER BY key",
    )?;
    let mut rows = select.query(params![namespace, prefix.as_str()])?;
    let mut entries = Vec::new();
    while let Some(row) = rows.next()? {
        let key: String = row.get(0)?;
        if !key.starts_with(prefix.as_str()) {
            break;
        }
        entries.push(entry(row, EntryKey::raw(key))?);
    }
    Ok(entries)
}

fn entry(row: &Row<'_>, key: EntryKey) -> Result<Entry, Failure> {
    let version: i64 = row.get(1)?;
    match u64::try_from(version) {
        Ok(version @ 1..) => {
            let value = Bytes::copy_from_slice(row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?);
            Ok(Entry { key, version: Version(version), value })
        }
        _ => Err(corrupt(format!("entry {key} with version {version}")).into()),
    }
}

fn commit(batch: &mut Batch<'_>, write: &Write) -> Result<Commit, Failure> {
    let (connection, namespace, key) = (batch.connection, batch.namespace, write.key.as_str());
    let Ok(expect) = i64::try_from(write.expect.map_or(0, |version| version.0)) else {
        return Ok(Commit::Conflict);
    };
    let changed = match (&write.expect, &write.value) {
        (None, Some(value)) => connection
            .prepare_cached(
                "INSERT INTO entry (namespace, key, version, value) VALUES (?1, ?2, 1, ?3)
                 ON CONFLICT (namespace, key) DO NOTHING",
            )?
            .execute(params![namespace, key, &value[..]])?,
        (Some(_), Some(value)) => connection
            .prepare_cached(
                "UPDATE entry SET version = version + 1, value = ?4
                 WHERE namespace = ?1 AND key = ?2 AND version = ?3",
            )?
            .execute(params![namespace, key, expect, &value[..]])?,
        (Some(_), None) => connection
            .prepare_cached("DELETE FROM entry WHERE namespace = ?1 AND key = ?2 AND version = ?3")?
            .execute(params![namespace, key, expect])?,
        (None, None) => {
            let there = connection
                .prepare_cached("SELECT 1 FROM entry WHERE namespace = ?1 AND key = ?2")?
                .query_row(params![namespace, key], |_| Ok(()))
                .optional()?;
            return Ok(if there.is_some() { Commit::Conflict } else { Commit::Done(Version(0)) });
        }
    };
    if changed == 0 {
        return Ok(Commit::Conflict);
    }
    batch.entries_changed = true;
    let expected = write.expect.map_or(0, |version| version.0);
    Ok(Commit::Done(Version(if write.value.is_some() { expected + 1 } else { expected })))
}
