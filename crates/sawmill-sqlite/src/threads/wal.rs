//! Tracks the length of the write-ahead log and decides when to checkpoint it.
//!
//! By default, SQLite checkpoints a long log inside a commit and delays that commit by some milliseconds.
//! Here the checkpoint runs when no work is queued. Only a log that outgrows this is checkpointed between two
//! commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::Connection;

/// Pages of growth after which an idle checkpoint is due, and the length at which one runs immediately.
const LONG: i32 = 1_000;
const TOO_LONG: i32 = 4_000;

/// The length of the write-ahead log, as reported to the connection that writes.
#[derive(Default)]
pub(crate) struct Length {
    /// Pages after the last commit.
    pages: Arc<AtomicI32>,
    /// Pages when a checkpoint was last requested.
    pages_at_checkpoint: i32,
}

/// The decision about a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Checkpoint {
    No,
    WhenIdle,
    Now,
}

impl Length {
    /// Follows the log length through a hook on this connection. The hook replaces SQLite's automatic
    /// checkpoint.
    pub(crate) fn follow(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let pages = self.pages.clone();
        connection.wal_hook(Some(move |_: &mut _, count| {
            pages.store(count, Ordering::Relaxed);
            Ok(())
        }))
    }

    pub(crate) fn checkpoint_due(&mut self) -> Checkpoint {
        let pages = self.pages.load(Ordering::Relaxed);
        if pages < self.pages_at_checkpoint {
            // SQLite has restarted the log.
            self.pages_at_checkpoint = 0;
        }
        match pages {
            TOO_LONG.. => Checkpoint::Now,
            _ if pages - self.pages_at_checkpoint >= LONG => Checkpoint::WhenIdle,
            _ => Checkpoint::No,
        }
    }

    /// Records that a checkpoint begins. If pages remain, the next one is due after further growth.
    pub(crate) fn checkpoint_begun(&mut self) {
        self.pages_at_checkpoint = self.pages.load(Ordering::Relaxed);
        if self.pages_at_checkpoint >= TOO_LONG {
            self.pages.store(0, Ordering::Relaxed);
        }
    }
}

/// Checkpoints as much of the log as its readers allow.
pub(crate) fn checkpoint(connection: &Connection) {
    if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
        tracing::debug!(%error, "the write-ahead log could not be checkpointed; it is tried again later");
    }
}

/// Checkpoints and truncates the whole log, and syncs the database. Returns false if readers still use the
/// log.
pub(crate) fn checkpoint_all(connection: &Connection) -> rusqlite::Result<bool> {
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
        assert_eq!(length.checkpoint_due(), Checkpoint::No);
        grow(1_000);
        assert_eq!(length.checkpoint_due(), Checkpoint::WhenIdle);
        length.checkpoint_begun();
        grow(10);
        assert_eq!(
            length.checkpoint_due(),
            Checkpoint::No,
            "a checkpoint was requested, and the log has grown little since"
        );
        grow(1_000);
        assert_eq!(length.checkpoint_due(), Checkpoint::WhenIdle);
        grow(2_000);
        assert_eq!(length.checkpoint_due(), Checkpoint::Now);
        let checkpointed = || std::fs::metadata(&path).unwrap().len() > 4_000 * 4_000;
        assert!(!checkpointed());
        length.checkpoint_begun();
        checkpoint(&connection);
        assert!(checkpointed());
        assert_eq!(length.checkpoint_due(), Checkpoint::No);
        grow(1);
        assert_eq!(length.checkpoint_due(), Checkpoint::No, "SQLite has restarted the log");
    }
}
