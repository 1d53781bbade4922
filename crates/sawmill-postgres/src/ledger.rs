//! The second seam on PostgreSQL: a change of an entry is a new row, so that no row is ever updated. Of an entry the newest
//! version counts; a few old ones lie behind it until they are dropped together.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use sawmill::ledger::{Commit, Entry, EntryKey, Ledger, Version, Write};
use sawmill::log::Hints;
use sawmill::{ErrorKind, Finding, Result};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::error::{Effect, corrupt};
use crate::pool::Param;
use crate::schema::LOCK_CLASS;
use crate::store::Postgres;
use crate::topics::wrong_row;

/// Old versions of an entry are dropped when so many have come together.
const OLD_VERSIONS: i64 = 64;

/// A version is the number of the change and, in so many bits, chance. What was committed lightly may be undone by a crash of
/// the server, while those who wrote it live on; the change that then takes its number must not be taken for it.
const CHANCE_BITS: u32 = 20;

/// The version of the change after this version.
fn version_after(current: i64, chance: u64) -> i64 {
    let chance = chance & ((1 << CHANCE_BITS) - 1);
    (((current >> CHANCE_BITS) + 1) << CHANCE_BITS) | chance.cast_signed()
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

    async fn check_up(&self, patience: Duration) -> Result<Vec<Finding>> {
        self.troubles(patience).await
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
        let next = version_after(current, self.env().dice().roll());
        match self.script(&script(self.schema(), write, (current, next), sync)).await {
            Ok(rows) if rows.get(CHANGE).is_none_or(|rows| *rows == 0) => Ok(Commit::Conflict),
            Ok(_) => {
                self.news_desk().entries_changed();
                let changed = write.value.is_some();
                Ok(Commit::Done(Version(if changed { next.unsigned_abs() } else { expect })))
            }
            Err(error) if error.kind() == ErrorKind::Unknown => Ok(Commit::Unknown),
            Err(error) => Err(error),
        }
    }
}

/// Which of the statements of [`script`] makes the change.
const CHANGE: usize = 1;

/// The change as a transaction of two statements that are sent as one. What makes it is a function of the schema, and it wants
/// each of its statements to see what was committed before, whatever the server's default is.
fn script(schema: &str, write: &Write, (current, next): (i64, i64), sync: &str) -> String {
    let (key, lock) = (quoted(write.key.as_str()), quoted(&format!("{schema} {}", write.key)));
    let value = match &write.value {
        // Whatever the session says of backslashes.
        Some(value) => format!("decode('{}', 'hex')", hexadecimal(value)),
        None => "NULL".to_owned(),
    };
    // Only what lies a little behind, so that it costs the same however much cannot be cleaned up.
    let old = match current > 0 && (current >> CHANCE_BITS) % OLD_VERSIONS == 0 {
        true => (current - ((2 * OLD_VERSIONS) << CHANCE_BITS)).to_string(),
        false => "NULL".to_owned(),
    };
    format!(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
         SELECT FROM {schema}.change({LOCK_CLASS}, {lock}, '{sync}', {key}, {current}, {next}, {value}, {old}) AS changed
         WHERE changed"
    )
}

/// As a text stands in a statement.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
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
    fn versions_grow_and_no_two_changes_have_the_same() {
        let mut current = 0;
        for chance in [u64::MAX, 0, 7, 1 << 40] {
            let next = version_after(current, chance);
            assert_eq!(next >> CHANCE_BITS, (current >> CHANCE_BITS) + 1);
            assert!(next > current);
            current = next;
        }
        assert_ne!(version_after(5, 1), version_after(5, 2));
        // Versions of one before they had chance in them.
        assert!(version_after(1000, 0) > 1000);
    }

    #[test]
    fn values_stand_in_a_statement_as_they_are() {
        assert_eq!(quoted("it's"), "'it''s'");
        assert_eq!(hexadecimal(&[0, 0x1f, 0xff]), "001fff");
    }
}
