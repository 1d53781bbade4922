//! The thread that syncs committed writes to disk while the writer goes on.
//!
//! SQLite commits with `synchronous = NORMAL`, which writes the write-ahead log without syncing it. This
//! thread syncs the file and then answers the callers of durable writes, so acknowledged writes are still
//! durable. Until then a commit is already visible: a worker can claim and start a message during the sync. A
//! power failure undoes unsynced commits from the end of the log, never from the middle. A write in this
//! database is therefore lost together with everything in it that depended on it. The ledger may be in
//! another database until this process has written to the ledger here. Until then SQLite syncs within each
//! commit.
//!
//! After a failed sync, the kernel treats the unwritten pages as written, and the next sync reports no error.
//! The whole log is then checkpointed into the database file, which is synced on its own. Until that
//! succeeds, no write is accepted and no ledger entry is read.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use sawmill_engine::Result;

use crate::error::unknown;
use crate::threads::wal;
use crate::threads::work::Work;
use crate::{no_thread, schema};

/// Handle to the thread. Dropping it ends the thread after its queued tasks.
pub(crate) struct Syncer {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

enum Task {
    /// Sync committed work, then answer its callers.
    Sync(Vec<Box<dyn Work>>),
    /// Checkpoint the write-ahead log.
    Checkpoint,
}

impl Syncer {
    /// Starts the thread for the database at this path, which contains no links. `in_doubt` is true while a
    /// committed write may not be on disk.
    pub(crate) fn start(path: &Path, in_doubt: Arc<AtomicBool>) -> Result<Self> {
        let syncer =
            SyncThread { log: LogFile::of_database(path), connection: schema::connect(path)?, in_doubt };
        let (tasks, received) = channel();
        let thread = thread::Builder::new()
            .name("sawmill-sqlite-syncer".to_owned())
            .spawn(move || syncer.run(&received))
            .map_err(|error| no_thread(path, error))?;
        Ok(Self { tasks: Some(tasks), thread: Some(thread) })
    }

    /// Syncs the log, then answers the callers of this committed work.
    pub(crate) fn sync_then_answer(&self, works: Vec<Box<dyn Work>>) {
        self.send(Task::Sync(works));
    }

    /// Requests a checkpoint in the background.
    pub(crate) fn checkpoint(&self) {
        self.send(Task::Checkpoint);
    }

    fn send(&self, task: Task) {
        // If the thread has ended, the dropped work reports an unknown outcome to its callers.
        let _ = self.tasks.as_ref().map(|tasks| tasks.send(task));
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct SyncThread {
    log: LogFile,
    connection: Connection,
    in_doubt: Arc<AtomicBool>,
}

impl SyncThread {
    fn run(mut self, tasks: &Receiver<Task>) {
        while let Ok(first) = tasks.recv() {
            let (mut committed, mut checkpoint) = (Vec::new(), false);
            for task in std::iter::once(first).chain(tasks.try_iter()) {
                match task {
                    Task::Sync(works) => committed.extend(works),
                    Task::Checkpoint => checkpoint = true,
                }
            }
            if !committed.is_empty() {
                self.sync_then_answer(committed);
            }
            if checkpoint {
                wal::checkpoint(&self.connection);
            }
        }
    }

    fn sync_then_answer(&mut self, works: Vec<Box<dyn Work>>) {
        if let Err(error) = self.log.sync() {
            tracing::warn!(%error, "the write-ahead log could not be synced to the disk");
            self.in_doubt.store(true, Ordering::Relaxed);
        }
        // A successful sync says nothing about pages that an earlier one failed to write.
        match resolve_doubt(&self.connection, &self.in_doubt) {
            Ok(()) => works.into_iter().for_each(|work| work.answer()),
            Err(error) => {
                let why = format!("for good: it could not be synced to the disk ({error})");
                works.into_iter().for_each(|work| work.fail(unknown(&why)));
            }
        }
    }
}

/// If the log may not be on disk, checkpoints it into the database file.
pub(crate) fn resolve_doubt(connection: &Connection, in_doubt: &AtomicBool) -> Result<(), String> {
    if !in_doubt.load(Ordering::Relaxed) {
        return Ok(());
    }
    match wal::checkpoint_all(connection) {
        Ok(true) => {
            in_doubt.store(false, Ordering::Relaxed);
            Ok(())
        }
        Ok(false) => Err("others are reading from its write-ahead log".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The file of the write-ahead log. SQLite keeps it while the database is open, and holds no locks on it that
/// closing it here could drop.
struct LogFile {
    path: PathBuf,
    file: Option<File>,
}

impl LogFile {
    /// The log file of the database at this path.
    fn of_database(path: &Path) -> Self {
        let mut path = OsString::from(path);
        path.push("-wal");
        Self { path: path.into(), file: None }
    }

    /// Syncs everything that was committed.
    fn sync(&mut self) -> io::Result<()> {
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
#[path = "syncer_tests.rs"]
mod tests;
