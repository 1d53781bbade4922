//! The second seam: entries, each a row that is changed only if it has the version that is expected.

use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Row;
use sawmill::ledger::{Commit, Entry, EntryKey, Ledger, Version, Write};
use sawmill::log::Hints;
use sawmill::{ErrorKind, Finding, Result};

use crate::Mysql;
use crate::connections::Line;
use crate::error::{Failure, code, corrupt};
use crate::row::{field, only};
use crate::schema::Tables;
use crate::sql::Sql;

#[async_trait]
impl Ledger for Mysql {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        self.work(move || async move { get(&mut self.line().await?, self.tables(), key).await }).await
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        self.work(move || async move { list(&mut self.line().await?, self.tables(), prefix).await }).await
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        let (write, first) = (&write, first_version(self.env().dice().roll()));
        let answer = self
            .work(move || async move { commit(&mut self.line().await?, self.tables(), write, first).await })
            .await;
        match answer {
            Ok(Commit::Done(version)) => {
                self.bells().ring_entries();
                Ok(Commit::Done(version))
            }
            Err(error) if error.kind() == ErrorKind::Unknown => {
                tracing::debug!(key = %write.key, %error, "the outcome of a commit is not known");
                Ok(Commit::Unknown)
            }
            answer => answer,
        }
    }

    fn watch(&self) -> Hints {
        self.bells().entry_hints()
    }

    async fn check_up(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.troubles(patience).await
    }
}

async fn get(line: &mut Line, tables: &Tables, key: &EntryKey) -> Result<Option<Entry>, Failure> {
    let mut sql = Sql::new(format_args!("SELECT name, version, value FROM {} WHERE name = ", tables.entry));
    sql.bytes(key.as_str().as_bytes());
    line.ask(&sql).await?.pop().and_then(|answer| only(answer.rows)).map(entry).transpose()
}

async fn list(line: &mut Line, tables: &Tables, prefix: &EntryKey) -> Result<Vec<Entry>, Failure> {
    let prefix = prefix.as_str().as_bytes();
    let mut sql = Sql::new(format_args!("SELECT name, version, value FROM {} WHERE name >= ", tables.entry));
    // No key has a byte as large as the last: so this is the end of all that begin with the prefix.
    sql.bytes(prefix).add(" AND name < ").bytes(&[prefix, &[0xff]].concat()).add(" ORDER BY name");
    let rows = line.ask(&sql).await?.pop().unwrap_or_default().rows;
    rows.into_iter().map(entry).collect()
}

fn entry(mut row: Row) -> Result<Entry, Failure> {
    let name: Vec<u8> = field(&mut row, 0)?;
    let (version, value): (u64, Vec<u8>) = (field(&mut row, 1)?, field(&mut row, 2)?);
    let name = String::from_utf8(name).map_err(|_| corrupt("an entry with a strange name"))?;
    Ok(Entry { key: EntryKey::raw(name), version: Version(version), value: value.into() })
}

/// The version that an entry is made with, in which there is chance: one that somebody has seen may be lost with the server, be made
/// anew, and must not be taken for the one that was lost. See [`life`](crate::life).
fn first_version(chance: u64) -> u64 {
    1 + (chance & ((1 << 40) - 1))
}

async fn commit(line: &mut Line, tables: &Tables, write: &Write, first: u64) -> Result<Commit, Failure> {
    let (key, table) = (write.key.as_str().as_bytes(), &tables.entry);
    let (sql, version) = match (write.expect, &write.value) {
        (None, Some(value)) => {
            let mut sql = Sql::new(format_args!("INSERT INTO {table} (name, version, value) VALUES ("));
            sql.bytes(key).add(format_args!(",{first},")).bytes(value).add(")");
            (sql, first)
        }
        (Some(Version(version)), Some(value)) => {
            let Some(next) = version.checked_add(1) else { return Ok(Commit::Conflict) };
            let mut sql = Sql::new(format_args!("UPDATE {table} SET version = {next}, value = "));
            sql.bytes(value).add(" WHERE name = ").bytes(key).add(format_args!(" AND version = {version}"));
            (sql, next)
        }
        (Some(Version(version)), None) => {
            let mut sql = Sql::new(format_args!("DELETE FROM {table} WHERE name = "));
            sql.bytes(key).add(format_args!(" AND version = {version}"));
            (sql, version)
        }
        (None, None) => {
            let there = get(line, tables, &write.key).await?.is_some();
            return Ok(if there { Commit::Conflict } else { Commit::Done(Version(0)) });
        }
    };
    match line.write(&sql).await {
        Ok(answer) if answer.changed > 0 => Ok(Commit::Done(Version(version))),
        Ok(_) => Ok(Commit::Conflict),
        Err(failure) if failure.code() == Some(code::DUPLICATE) => Ok(Commit::Conflict),
        Err(failure) => Err(failure),
    }
}
