//! The second seam on PostgreSQL: a change of an entry is a new row, so that no row is ever updated. Of an entry the newest
//! version counts; a few old ones lie behind it until they are dropped together.

use async_trait::async_trait;
use bytes::Bytes;
use sawmill::ledger::{Commit, Entry, EntryKey, Ledger, Version, Write};
use sawmill::log::Hints;
use sawmill::{ErrorKind, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::{Effect, corrupt};
use crate::pool::Param;
use crate::schema::LOCK_CLASS;
use crate::store::Postgres;
use crate::topics::wrong_row;

/// Old versions of an entry are dropped when so many have come together.
const OLD_VERSIONS: i64 = 64;

#[async_trait]
impl Ledger for Postgres {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        let sql = format!(
            "SELECT key, version, value FROM {}.entry WHERE key = $1 ORDER BY version DESC LIMIT 1",
            self.schema()
        );
        let rows = self.query(Effect::Reads, &sql, &[(&key.as_str(), Type::TEXT)]).await?;
        rows.first().map(entry).transpose()
    }

    /// Goes from key to key by the index, past all old versions, however many there are.
    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let schema = self.schema();
        let sql = format!(
            "WITH RECURSIVE newest AS (
                 (SELECT key, version, value FROM {schema}.entry WHERE key >= $1 AND key < $2
                  ORDER BY key, version DESC LIMIT 1)
                 UNION ALL
                 SELECT next.* FROM newest CROSS JOIN LATERAL (
                     SELECT key, version, value FROM {schema}.entry WHERE key > newest.key AND key < $2
                     ORDER BY key, version DESC LIMIT 1) AS next)
             SELECT key, version, value FROM newest"
        );
        let end = after_all(prefix.as_str());
        let params: [Param<'_>; 2] = [(&prefix.as_str(), Type::TEXT), (&end, Type::TEXT)];
        let rows = self.query(Effect::Reads, &sql, &params).await?;
        rows.iter().map(entry).collect()
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        self.commit_entry(&write, "on").await
    }

    /// Without waiting for the disk: a crash of the server may undo it, and then also all that came after it.
    async fn commit_lightly(&self, write: Write) -> Result<Commit> {
        self.commit_entry(&write, "off").await
    }

    fn watch(&self) -> Hints {
        self.news_desk().entry_hints()
    }
}

impl Postgres {
    async fn commit_entry(&self, write: &Write, sync: &str) -> Result<Commit> {
        let expect = write.expect.map_or(0, |version| version.0);
        // No entry has a version that is 0, or that does not fit.
        let current = i64::try_from(expect).ok().filter(|current| write.expect.is_none() || *current > 0);
        let Some(current) = current else { return Ok(Commit::Conflict) };
        if write.expect.is_none() && write.value.is_none() {
            let there = self.get(&write.key).await?.is_some();
            return Ok(if there { Commit::Conflict } else { Commit::Done(Version(0)) });
        }
        match self.script(&script(self.schema(), write, current, sync)).await {
            Ok(rows) if rows.get(CHANGE).is_none_or(|rows| *rows == 0) => Ok(Commit::Conflict),
            Ok(_) => {
                self.news_desk().entries_changed();
                let changed = write.value.is_some();
                Ok(Commit::Done(Version(if changed { expect + 1 } else { expect })))
            }
            Err(error) if error.kind() == ErrorKind::Unknown => Ok(Commit::Unknown),
            Err(error) => Err(error),
        }
    }
}

/// Which of the statements of [`script`] makes the change.
const CHANGE: usize = 4;

/// The change as a transaction of several statements that are sent as one: first the entry is locked, and then looked at.
/// A statement sees what was committed before it began, so locking must be one of its own: otherwise a writer that was held
/// up could put a version where another one was dropped long ago.
fn script(schema: &str, write: &Write, current: i64, sync: &str) -> String {
    let key = quoted(write.key.as_str());
    let newest =
        format!("SELECT version FROM {schema}.entry WHERE key = {key} ORDER BY version DESC LIMIT 1");
    let lock = quoted(&format!("{schema} {}", write.key));
    let mut script = format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = {sync};
         SET LOCAL lock_timeout = '10s'; SELECT pg_advisory_xact_lock({LOCK_CLASS}, hashtext({lock}));"
    );
    match &write.value {
        Some(value) => {
            script += &format!(
                "INSERT INTO {schema}.entry (key, version, value) SELECT {key}, {current} + 1, '\\x{}'::bytea
                 WHERE coalesce(({newest}), 0) = {current};",
                hexadecimal(value)
            );
            if current > 0 && current % OLD_VERSIONS == 0 {
                // Only what lies a little behind, so that it costs the same however much cannot be cleaned up.
                script += &format!(
                    "DELETE FROM {schema}.entry WHERE key = {key} AND version <= {current} AND version > {current} - {}
                     AND ({newest}) > {current};",
                    2 * OLD_VERSIONS
                );
            }
        }
        None => {
            script += &format!("DELETE FROM {schema}.entry WHERE key = {key} AND ({newest}) = {current};")
        }
    }
    script
}

/// As a text stands in a statement.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits =
        bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    digits.map(char::from).collect()
}

/// The first key after all that begin with this prefix: its last byte is ASCII.
fn after_all(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    match end.pop() {
        Some(last) => end.push(char::from_u32(last as u32 + 1).unwrap_or(char::MAX)),
        None => end.push(char::MAX),
    }
    end
}

fn entry(row: &Row) -> Result<Entry> {
    let read = || -> Result<(String, i64, &[u8]), tokio_postgres::Error> {
        Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
    };
    let (key, version, value) = read().map_err(wrong_row)?;
    match u64::try_from(version) {
        Ok(version @ 1..) => Ok(Entry {
            key: EntryKey::raw(key),
            version: Version(version),
            value: Bytes::copy_from_slice(value),
        }),
        _ => Err(corrupt(format!("entry {key} with version {version}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_prefix_lie_before_its_end() {
        assert_eq!(after_all("a/"), "a0");
        assert!(("a/".."a0").contains(&"a/zzz"));
        assert!(!("a/".."a0").contains(&"ab/"));
    }

    #[test]
    fn values_stand_in_a_statement_as_they_are() {
        assert_eq!(quoted("it's"), "'it''s'");
        assert_eq!(hexadecimal(&[0, 0x1f, 0xff]), "001fff");
    }
}
