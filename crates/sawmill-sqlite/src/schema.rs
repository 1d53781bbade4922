//! Opens the database: connection settings, table creation and step-by-step migration.

use std::path::Path;
use std::thread;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, TransactionBehavior};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::error::{Failure, explain};
use crate::file;

/// The application id of Sawmill's databases: "SawM".
pub(crate) const APPLICATION_ID: i32 = 0x5361_774d;

/// Older SQLite libraries can damage a database in WAL mode when a checkpoint resets the log.
const OLDEST_LIBRARY: i32 = 3_051_003;

/// The migrations from each schema version to the next. Steps are appended and never changed.
const STEPS: &[&str] = &["
    -- A topic's uid is made from its id, which AUTOINCREMENT never gives out again.
    CREATE TABLE topic (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        shards INTEGER NOT NULL,
        retention_ms INTEGER NOT NULL,
        UNIQUE (namespace, name)
    );
    -- last: the last number given to a message of the shard. kept: how many messages it holds.
    -- A shard without its topic is what a deleted topic has left behind.
    CREATE TABLE shard (
        ref INTEGER PRIMARY KEY,
        topic INTEGER NOT NULL,
        number INTEGER NOT NULL,
        last INTEGER NOT NULL,
        kept INTEGER NOT NULL,
        UNIQUE (topic, number)
    );
    -- pos: the shard's ref above, the message's number in the lower 40 bits. The payload stands last:
    -- what comes before it is read without following a long one through its pages.
    CREATE TABLE message (
        pos INTEGER PRIMARY KEY,
        topic INTEGER NOT NULL,
        id BLOB NOT NULL,
        created_ms INTEGER NOT NULL,
        due_ms INTEGER,
        key BLOB,
        headers BLOB,
        payload BLOB NOT NULL
    );
    CREATE UNIQUE INDEX message_id ON message (topic, id);
    -- Messages that are not due yet. seq keeps the order of those with the same due time.
    CREATE TABLE aside (
        seq INTEGER PRIMARY KEY,
        topic INTEGER NOT NULL,
        shard INTEGER NOT NULL,
        id BLOB NOT NULL,
        created_ms INTEGER NOT NULL,
        due_ms INTEGER NOT NULL,
        key BLOB,
        headers BLOB,
        payload BLOB NOT NULL
    );
    CREATE UNIQUE INDEX aside_id ON aside (topic, id);
    CREATE INDEX aside_due ON aside (topic, due_ms);
    -- The ledger.
    CREATE TABLE entry (
        namespace TEXT NOT NULL,
        key TEXT NOT NULL,
        version INTEGER NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (namespace, key)
    ) WITHOUT ROWID;
", "
    -- Only messages that may be appended again are looked up by their id. Until now these were all; those on lanes still are.
    ALTER TABLE message ADD COLUMN repeatable INTEGER;
    ALTER TABLE aside ADD COLUMN repeatable INTEGER;
    UPDATE message SET repeatable = 1 WHERE topic IN (SELECT id FROM topic WHERE instr(name, '@') > 0);
    UPDATE aside SET repeatable = 1 WHERE topic IN (SELECT id FROM topic WHERE instr(name, '@') > 0);
    DROP INDEX message_id;
    CREATE UNIQUE INDEX message_id ON message (topic, id) WHERE repeatable;
    ALTER TABLE topic ADD COLUMN drops_unread INTEGER NOT NULL DEFAULT 0;
", "
    -- Messages that a handler has finished within a transaction of its own, and the group that it is of.
    CREATE TABLE finished (
        namespace TEXT NOT NULL,
        id BLOB NOT NULL,
        reader TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        PRIMARY KEY (namespace, id, reader)
    ) WITHOUT ROWID;
    CREATE INDEX finished_at ON finished (at_ms);
"];

/// The schema version that this program writes.
const NEWEST: i64 = STEPS.len() as i64;

/// Retries of a busy database, and how many of them wait only briefly: about ten seconds in all.
const BUSY_RETRIES: i32 = 10_000;
const SHORT_WAITS: i32 = 20;

/// Opens the database for writing, creating or migrating it first.
pub(crate) fn open(path: &Path) -> Result<Connection> {
    check_library(rusqlite::version_number())?;
    file::prepare(path)?;
    let mut connection = connect(path)?;
    let explained = |error: &rusqlite::Error| at(path, explain(error));
    if connection.is_readonly("main").map_err(|error| explained(&error))? {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{} can only be read: allow writing to the file and its folder", path.display()),
        ));
    }
    check_stamp(&connection, path)?;
    use_wal(&connection).map_err(|error| explained(&error))?;
    migrate(&mut connection, path)?;
    Ok(connection)
}

/// Returns the schema version of a database without changing it, or `None` if the file does not exist or is
/// not Sawmill's.
///
/// Versions only grow. Opening a database migrates it to the newest.
pub fn schema_version(path: &Path) -> Result<Option<u32>> {
    if !path.exists() {
        return Ok(None);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(|error| at(path, explain(&error)))?;
    let (stamp, version, _) = stamp(&connection).map_err(|error| at(path, explain(&error)))?;
    Ok(u32::try_from(version).ok().filter(|_| stamp == APPLICATION_ID))
}

/// Opens a read-only connection to the same database.
pub(crate) fn open_reader(path: &Path) -> Result<Connection> {
    let connection = connect(path)?;
    connection.pragma_update(None, "query_only", true).map_err(|error| at(path, explain(&error)))?;
    Ok(connection)
}

fn check_library(version: i32) -> Result<()> {
    if version >= OLDEST_LIBRARY {
        return Ok(());
    }
    let text = |v: i32| format!("{}.{}.{}", v / 1_000_000, v / 1_000 % 1_000, v % 1_000);
    Err(Error::new(
        ErrorKind::Unsupported,
        format!(
            "this program is linked with SQLite {}, which can damage a database: link it with {} or newer",
            text(version),
            text(OLDEST_LIBRARY)
        ),
    ))
}

/// Opens another connection to an existing database.
pub(crate) fn connect(path: &Path) -> Result<Connection> {
    // Without SQLITE_OPEN_CREATE: the file exists, with its permissions set.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let configured = || -> rusqlite::Result<Connection> {
        let mut connection = Connection::open_with_flags(path, flags)?;
        // SQLite's own busy timeout backs off further and further, and starves beside a process that writes
        // all the time.
        connection.busy_handler(Some(|asked: i32| {
            let wait =
                if asked < SHORT_WAITS { Duration::from_micros(100) } else { Duration::from_millis(1) };
            thread::park_timeout(wait);
            asked < BUSY_RETRIES
        }))?;
        connection.set_prepared_statement_cache_capacity(64);
        // Without QPSG, a changed parameter value can cause a statement to be planned again.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        // NORMAL could lose the schema in a power failure. For later writes the syncer thread syncs.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "cache_size", -16_000)?;
        Ok(connection)
    };
    configured().map_err(|error| at(path, explain(&error)))
}

/// Refuses a database of another program or a newer version, without changing it.
fn check_stamp(connection: &Connection, path: &Path) -> Result<()> {
    let (stamp, version, tables) = stamp(connection).map_err(|error| at(path, explain(&error)))?;
    if stamp != APPLICATION_ID && (stamp, tables) != (0, 0) {
        return Err(file::foreign(path));
    }
    if version > NEWEST {
        return Err(Error::new(
            ErrorKind::Corrupt,
            format!(
                "{} has schema version {version}, and this program knows up to {NEWEST}: upgrade the program",
                path.display()
            ),
        ));
    }
    if version < 0 {
        return Err(at(path, crate::error::corrupt(format!("schema version {version}"))));
    }
    Ok(())
}

/// Reads the application id, the schema version and the number of tables.
fn stamp(connection: &Connection) -> rusqlite::Result<(i32, i64, i64)> {
    connection.query_row(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema)
         FROM pragma_application_id, pragma_user_version",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
    )
}

/// Turns on the write-ahead log. SQLite does not call the busy handler here, so this retries itself.
fn use_wal(connection: &Connection) -> rusqlite::Result<()> {
    let mut asked = 0;
    loop {
        let mode: rusqlite::Result<String> =
            connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
        match mode {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(_) => {
                let error = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CANTOPEN);
                let said = "the write-ahead log cannot be used here: is this a network file system?";
                return Err(rusqlite::Error::SqliteFailure(error, Some(said.to_owned())));
            }
            Err(error)
                if asked < BUSY_RETRIES && error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) =>
            {
                asked += 1;
                thread::park_timeout(Duration::from_millis(1));
            }
            Err(error) => return Err(error),
        }
    }
}

/// Applies the missing steps, all or none, even if several processes open the database at once.
fn migrate(connection: &mut Connection, path: &Path) -> Result<()> {
    let now = stamp(connection).map_err(|error| at(path, explain(&error)))?;
    if (now.0, now.1) == (APPLICATION_ID, NEWEST) {
        return Ok(());
    }
    let mut steps = || -> Result<(), Failure> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        // Another process may have migrated while this one waited for the lock.
        check_stamp(&transaction, path)?;
        let (_, version, _) = stamp(&transaction)?;
        for step in STEPS.iter().skip(usize::try_from(version).unwrap_or(0)) {
            transaction.execute_batch(step)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", NEWEST)?;
        Ok(transaction.commit()?)
    };
    steps().map_err(|failure| at(path, failure.into()))
}

/// Adds the path to an error that does not name it.
fn at(path: &Path, error: Error) -> Error {
    let said = error.to_string();
    let path = path.display().to_string();
    if said.contains(&path) { error } else { Error::new(error.kind(), format!("{path}: {said}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_can_damage_the_database_is_refused() {
        let error = check_library(3_051_002).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("3.51.2"), "{error}");
        assert!(error.to_string().contains("3.51.3"), "{error}");
        assert!(check_library(3_051_003).is_ok());
    }
}
