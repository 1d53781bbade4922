//! The ledger on PostgreSQL. A change of an entry inserts a new row, so no row is ever updated. The newest
//! version of an entry counts; older versions stay behind it until they are deleted together.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sawmill_engine::storage::{Commit, Entry, EntryKey, Finding, Ledger, Notifications, Version, Write};
use sawmill_engine::{ErrorKind, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connection::pool::Param;
use crate::error::{Effect, corrupt};
use crate::log::topics::wrong_row;
use crate::schema::LOCK_CLASS;
use crate::store::Postgres;

/// The number of old versions after which they are deleted.
const OLD_VERSIONS: i64 = 64;

/// A version is the number of the change followed by this many random bits. A crash of the server may undo a
/// light commit while its writer lives on. The next change then gets the same number and must not be mistaken
/// for the lost one.
const RANDOM_BITS: u32 = 20;

/// Returns a version for the change after `current`.
fn version_after(current: i64, random: u64) -> i64 {
    let random = random & ((1 << RANDOM_BITS) - 1);
    (((current >> RANDOM_BITS) + 1) << RANDOM_BITS) | random.cast_signed()
}

#[async_trait]
impl Ledger for Postgres {
    async fn get(&self, key: &EntryKey) -> Result<Option<Entry>> {
        let sql = format!("SELECT * FROM {}.newest($1)", self.schema());
        let rows = self.query(Effect::Reads, &sql, &[(&key.as_str(), Type::TEXT)]).await?;
        rows.first().map(entry).transpose()
    }

    async fn list(&self, prefix: &EntryKey) -> Result<Vec<Entry>> {
        let sql = format!("SELECT * FROM {}.newest_between($1, $2)", self.schema());
        let end = prefix_end(prefix.as_str());
        let params: [Param<'_>; 2] = [(&prefix.as_str(), Type::TEXT), (&end, Type::TEXT)];
        let rows = self.query(Effect::Reads, &sql, &params).await?;
        rows.iter().map(entry).collect()
    }

    async fn commit(&self, write: Write) -> Result<Commit> {
        self.commit_entry(&write, "on").await
    }

    /// Does not wait for the disk: a crash of the server may undo the commit, together with everything that
    /// came after it.
    async fn commit_lightly(&self, write: Write) -> Result<Commit> {
        self.commit_entry(&write, "off").await
    }

    fn entry_notifications(&self) -> Notifications {
        self.notifier().entry_notifications()
    }

    async fn diagnose(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.findings(patience).await
    }
}

impl Postgres {
    async fn commit_entry(&self, write: &Write, sync: &str) -> Result<Commit> {
        let expect = write.expect.map_or(0, |version| version.0);
        // No entry has version 0 or one that does not fit.
        let current = i64::try_from(expect).ok().filter(|current| write.expect.is_none() || *current > 0);
        let Some(current) = current else { return Ok(Commit::Conflict) };
        if write.expect.is_none() && write.value.is_none() {
            let there = self.get(&write.key).await?.is_some();
            return Ok(if there { Commit::Conflict } else { Commit::Done(Version(0)) });
        }
        let next = version_after(current, self.env().rng().next_u64());
        match self.script(&script(self.schema(), write, (current, next), sync)).await {
            Ok(rows) if rows.get(CHANGE).is_none_or(|rows| *rows == 0) => Ok(Commit::Conflict),
            Ok(_) => {
                self.notifier().entries_changed();
                let changed = write.value.is_some();
                Ok(Commit::Done(Version(if changed { next.unsigned_abs() } else { expect })))
            }
            Err(error) if error.kind() == ErrorKind::Unknown => Ok(Commit::Unknown),
            Err(error) => Err(error),
        }
    }
}

/// The index of the statement of [`script`] that makes the change.
const CHANGE: usize = 1;

/// Returns the change as a transaction of two statements that are sent together. The function that makes the
/// change needs each of its statements to see what was committed before, whatever the server's default
/// isolation level is.
fn script(schema: &str, write: &Write, (current, next): (i64, i64), sync: &str) -> String {
    let (key, lock) = (quoted(write.key.as_str()), quoted(&format!("{schema} {}", write.key)));
    let value = match &write.value {
        // Hexadecimal does not depend on the session's setting for backslashes.
        Some(value) => format!("decode('{}', 'hex')", hexadecimal(value)),
        None => "NULL".to_owned(),
    };
    // Deletes only versions shortly before this one, so the cost stays the same when vacuum cannot clean up.
    let old = match current > 0 && (current >> RANDOM_BITS) % OLD_VERSIONS == 0 {
        true => (current - ((2 * OLD_VERSIONS) << RANDOM_BITS)).to_string(),
        false => "NULL".to_owned(),
    };
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
         SELECT FROM {schema}.change({LOCK_CLASS}, {lock}, '{sync}', {key}, {current}, {next}, {value}, {old}) AS changed
         WHERE changed"
    )
}

/// Quotes a text as a literal of SQL.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digits =
        bytes.iter().flat_map(|byte| [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    digits.map(char::from).collect()
}

/// Returns the first key after all keys with this prefix, which ends with an ASCII character.
fn prefix_end(prefix: &str) -> String {
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
        assert_eq!(prefix_end("a/"), "a0");
        assert!(("a/".."a0").contains(&"a/zzz"));
        assert!(!("a/".."a0").contains(&"ab/"));
    }

    #[test]
    fn versions_grow_and_no_two_changes_have_the_same() {
        let mut current = 0;
        for random in [u64::MAX, 0, 7, 1 << 40] {
            let next = version_after(current, random);
            assert_eq!(next >> RANDOM_BITS, (current >> RANDOM_BITS) + 1);
            assert!(next > current);
            current = next;
        }
        assert_ne!(version_after(5, 1), version_after(5, 2));
        // Versions written before they had random bits.
        assert!(version_after(1000, 0) > 1000);
    }

    #[test]
    fn values_stand_in_a_statement_as_they_are() {
        assert_eq!(quoted("it's"), "'it''s'");
        assert_eq!(hexadecimal(&[0, 0x1f, 0xff]), "001fff");
    }
}
