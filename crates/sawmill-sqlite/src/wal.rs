//! The write-ahead log as a file: synced here, after the commit, and not by SQLite within it.
//!
//! SQLite commits with `synchronous = NORMAL`: that writes the log and leaves it to the system to bring it to the disk.
//! Whoever waits for a write that must last is answered when the file was synced, so the promise is the same. But what was
//! committed can be seen meanwhile, and a worker can get ready for a message while the disk is at it. A power failure undoes
//! what was not synced from its end, never something in the middle: so what was written because of it goes with it, if it was
//! written here. Until this process has written to the ledger of this very database, its ledger may be another one, and SQLite
//! syncs within the commit.
//!
//! When a sync fails, the system takes what it could not write for written, and the next sync says nothing of it. Then the log is
//! folded into the database, which is synced by itself; until that has worked, nothing is written and no ledger entry is read.
//!
//! Nor does SQLite fold the log into the database within a commit, which takes some milliseconds: that is done when nobody
//! waits for anything.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use rusqlite::Connection;

/// How many pages the log may have before it is folded when there is nothing else to do, and before it must be.
const LONG: i32 = 1_000;
const TOO_LONG: i32 = 4_000;

/// The write-ahead log of a database that is open. SQLite keeps the file as long as somebody has the database open, and
/// has no locks on it that closing it here could drop.
pub(crate) struct Wal {
    path: PathBuf,
    file: Option<File>,
    /// How many pages it had after the last commit.
    pages: Arc<AtomicI32>,
}

/// Whether the log should be folded into the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    No,
    WhenIdle,
    Now,
}

impl Wal {
    /// That of the database at this path.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        // As SQLite does it: by the file itself, wherever the process goes and whatever links lead there.
        let mut path = OsString::from(path.canonicalize()?);
        path.push("-wal");
        Ok(Self { path: path.into(), file: None, pages: Arc::default() })
    }

    /// Hears how long this connection makes the log, which is folded by [`fold`](Wal::fold) alone from now on.
    pub(crate) fn follow(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let pages = self.pages.clone();
        connection.wal_hook(Some(move |_: &mut _, count| {
            pages.store(count, Ordering::Relaxed);
            Ok(())
        }))
    }

    pub(crate) fn wants_fold(&self) -> Fold {
        match self.pages.load(Ordering::Relaxed) {
            TOO_LONG.. => Fold::Now,
            LONG.. => Fold::WhenIdle,
            _ => Fold::No,
        }
    }

    /// Folds as much of the log into the database as its readers allow. Whatever is left is tried again after the next commit.
    pub(crate) fn fold(&self, connection: &Connection) {
        self.pages.store(0, Ordering::Relaxed);
        if let Err(error) = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())) {
            tracing::debug!(%error, "the write-ahead log was not folded into the database; the next commit tries again");
        }
    }

    /// Folds all of the log into the database, and has the disk keep that.
    pub(crate) fn fold_whole(&self, connection: &Connection) -> rusqlite::Result<bool> {
        connection
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get::<_, i64>(0))
            .map(|busy| busy == 0)
    }

    /// Has the disk keep everything that was committed.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        #[cfg(test)]
        if tests::BROKEN_DISKS.lock().unwrap().contains(&self.path) {
            return Err(io::Error::other("the disk is broken"));
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().read(true).write(true).open(&self.path)?),
        };
        file.sync_data()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Mutex;

    use super::*;

    /// The logs that cannot be synced.
    pub(crate) static BROKEN_DISKS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

    #[test]
    fn a_long_log_is_folded_when_it_is_asked_for_and_not_by_commits() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let mut connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "WAL").unwrap();
        connection.execute_batch("CREATE TABLE a (b)").unwrap();
        let mut wal = Wal::new(&path).unwrap();
        wal.follow(&mut connection).unwrap();
        let grow = |pages: u32| {
            let insert = "INSERT INTO a VALUES (zeroblob(4096 * ?1))";
            connection.execute(insert, [pages]).unwrap();
        };
        grow(10);
        assert_eq!(wal.wants_fold(), Fold::No);
        grow(1_000);
        assert_eq!(wal.wants_fold(), Fold::WhenIdle);
        grow(3_000);
        assert_eq!(wal.wants_fold(), Fold::Now);
        let folded = || std::fs::metadata(&path).unwrap().len() > 4_000 * 4_000;
        wal.sync().unwrap();
        assert!(!folded());
        wal.fold(&connection);
        assert!(folded());
        grow(1);
        assert_eq!(wal.wants_fold(), Fold::No, "the log begins anew");
    }
}
