//! How long the write-ahead log is, and folding it into the database.
//!
//! SQLite by itself folds a long log within a commit, and whoever waits for that commit waits some milliseconds longer.
//! Here it is done by the way, when nobody waits for anything; only a log that outgrows that is folded between two commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::Connection;

/// By how many pages the log may grow before it is folded by the way, and how long it may be before it is folded at once.
const LONG: i32 = 1_000;
const TOO_LONG: i32 = 4_000;

/// The length of the write-ahead log, as those hear of it who write through one connection.
#[derive(Default)]
pub(crate) struct Length {
    /// How many pages it had after the last commit.
    pages: Arc<AtomicI32>,
    /// How many it had when folding it was last asked for.
    folded: i32,
}

/// Whether the log should be folded into the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    No,
    WhenIdle,
    Now,
}

impl Length {
    /// Hears how long this connection makes the log. SQLite does not fold it any more.
    pub(crate) fn follow(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let pages = self.pages.clone();
        connection.wal_hook(Some(move |_: &mut _, count| {
            pages.store(count, Ordering::Relaxed);
            Ok(())
        }))
    }

    pub(crate) fn wants_fold(&mut self) -> Fold {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.folded {
            // It has begun anew.
            self.folded = 0;
        }
        match pages {
            TOO_LONG.. => Fold::Now,
            _ if pages - self.folded >= LONG => Fold::WhenIdle,
            _ => Fold::No,
        }
    }

    /// It is being folded. Whatever of it is left is tried again when it has grown.
    pub(crate) fn folds(&mut self) {
        self.folded = self.pages.load(Ordering::Relaxed);
        if self.folded >= TOO_LONG {
            self.pages.store(0, Ordering::Relaxed);
        }
    }
}

/// Folds as much of the log into the database as its readers allow.
pub(crate) fn fold(connection: &Connection) {
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        tracing::debug!(%error, "the write-ahead log was not folded into the database; it is tried again later");
    }
}

/// Folds all of the log into the database, and has the disk keep that. False if others read from the log.
pub(crate) fn fold_whole(connection: &Connection) -> rusqlite::Result<bool> {
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
        .map(|busy| busy == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_log_is_folded_when_it_is_asked_for_and_not_by_commits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.execute_batch("CREATE TABLE a (b)").unwrap();
        let mut length = Length::default();
        length.follow(&mut connection).unwrap();
        let grow = |pages: u32| {
            let insert = "INSERT INTO a VALUES (zeroblob(4096 * ?1))";
            connection.execute(insert, [pages]).unwrap();
        };
        grow(10);
        assert_eq!(length.wants_fold(), Fold::No);
        grow(1_000);
        assert_eq!(length.wants_fold(), Fold::WhenIdle);
        length.folds();
        grow(10);
        assert_eq!(length.wants_fold(), Fold::No, "it was asked for, and has not grown much");
        grow(1_000);
        assert_eq!(length.wants_fold(), Fold::WhenIdle);
        grow(2_000);
        assert_eq!(length.wants_fold(), Fold::Now);
        let folded = || std::fs::metadata(&path).unwrap().len() > 4_000 * 4_000;
        assert!(!folded());
        length.folds();
        fold(&connection);
        assert!(folded());
        assert_eq!(length.wants_fold(), Fold::No);
        grow(1);
        assert_eq!(length.wants_fold(), Fold::No, "the log begins anew");
    }
}
