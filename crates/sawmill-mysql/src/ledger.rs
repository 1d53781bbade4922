//! The ledger on MySQL. Each entry is a row that is updated only if it has the expected version.

use std::time::Duration;

use async_trait::async_trait;
use mysql_async::Row;
use sawmill_engine::storage::{Commit, Entry, EntryKey, Finding, Ledger, Notifications, Version, Write};
use sawmill_engine::{ErrorKind, Result};

use crate::Mysql;
use crate::connection::connections::Connection;
use crate::connection::sql::Sql;
use crate::error::{Failure, code, corrupt};
use crate::log::row::{field, only};
use crate::schema::Tables;

#[async_trait]
impl Ledger for Mysql {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        self.work(move || async move { get(&mut self.connection().await?, self.tables(), key).await }).await
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        self.work(move || async move { list(&mut self.connection().await?, self.tables(), prefix).await })
            .await
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        let (write, first) = (&write, first_version(self.env().rng().next_u64()));
        let answer =
            self.work(move || async move {
                commit(&mut self.connection().await?, self.tables(), write, first).await
            })
            .await;
        match answer {
            Ok(Commit::Done(version)) => {
                self.notifier().notify_entries();
                Ok(Commit::Done(version))
            }
            Err(error) if error.kind() == ErrorKind::Unknown => {
                tracing::debug!(key = %write.key, %error, "the outcome of a commit is not known");
                Ok(Commit::Unknown)
            }
            answer => answer,
        }
    }

    fn entry_notifications(&self) -> Notifications {
        self.notifier().entry_notifications()
    }

    async fn diagnose(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.findings(patience).await
    }
}

async fn get(connection: &mut Connection, tables: &Tables, key: &EntryKey) -> Result<Option<Entry>, Failure> {
    let mut sql = Sql::new(format_args!("SELECT name, version, value FROM {} WHERE name = ", tables.entry));
    sql.bytes(key.as_str().as_bytes());
    connection.ask(&sql).await?.pop().and_then(|answer| only(answer.rows)).map(entry).transpose()
}

async fn list(
    connection: &mut Connection,
    tables: &Tables,
    prefix: &EntryKey,
) -> Result<Vec<Entry>, Failure> {
    let prefix = prefix.as_str().as_bytes();
    let mut sql = Sql::new(format_args!("SELECT name, version, value FROM {} WHERE name >= ", tables.entry));
    // Keys contain no byte 0xff, so this is the end of all keys with the prefix.
    sql.bytes(prefix).add(" AND name < ").bytes(&[prefix, &[0xff]].concat()).add(" ORDER BY name");
    let rows = connection.ask(&sql).await?.pop().unwrap_or_default().rows;
    rows.into_iter().map(entry).collect()
}

fn entry(mut row: Row) -> Result<Entry, Failure> {
    let name: Vec<u8> = field(&mut row, 0)?;
    let (version, value): (u64, Vec<u8>) = (field(&mut row, 1)?, field(&mut row, 2)?);
    let name = String::from_utf8(name).map_err(|_| corrupt("an entry with a strange name"))?;
    Ok(Entry { key: EntryKey::raw(name), version: Version(version), value: value.into() })
}

/// Returns the random first version of an entry. A version may be lost in a crash and its entry created
/// again; the new version must differ from the lost one. See [`incarnation`](crate::connection::incarnation).
fn first_version(random: u64) -> u64 {
    1 + (random & ((1 << 40) - 1))
}

async fn commit(
    connection: &mut Connection,
    tables: &Tables,
    write: &Write,
    first: u64,
) -> Result<Commit, Failure> {
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
            let there = get(connection, tables, &write.key).await?.is_some();
            return Ok(if there { Commit::Conflict } else { Commit::Done(Version(0)) });
        }
    };
    match connection.write(&sql).await {
        Ok(answer) if answer.changed > 0 => Ok(Commit::Done(Version(version))),
        Ok(_) => Ok(Commit::Conflict),
        Err(failure) if failure.code() == Some(code::DUPLICATE) => Ok(Commit::Conflict),
        Err(failure) => Err(failure),
    }
}
