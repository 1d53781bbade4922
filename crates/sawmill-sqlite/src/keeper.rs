//! The thread that has the disk keep what was committed, while the one that writes goes on.
//!
//! SQLite commits with `synchronous = NORMAL`: that writes the write-ahead log and leaves it to the system to bring it to the
//! disk. Whoever waits for a write that must last is answered when the file was synced, which is done here, so the promise is
//! the same. But what was committed can be seen meanwhile, and a worker can claim and start a message while the disk is at it.
//! A power failure undoes what was not synced from its end, never something in the middle: so what was written because of it
//! goes with it, if it was written here. Until this process has written to the ledger of this very database, its ledger may be
//! another one, and SQLite syncs within the commit.
//!
//! When a sync fails, the system takes what it could not write for written, and the next sync says nothing of it. Then the log is
//! folded into the database, which is synced by itself; until that has worked, nothing is written and no ledger entry is read.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use sawmill::Result;

use crate::error::unknown;
use crate::work::Work;
use crate::{no_thread, schema, wal};

/// The way to the thread. It ends when this is dropped, having done what it was given.
pub(crate) struct Keeper {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
}

enum Task {
    /// These are committed; answer them when they are kept.
    Keep(Vec<Box<dyn Work>>),
    /// Fold the write-ahead log into the database.
    Fold,
}

impl Keeper {
    /// For the database at this path, which no link leads to. `in_doubt` is true while something was committed that the disk may not keep.
    pub(crate) fn start(path: &Path, in_doubt: Arc<AtomicBool>) -> Result<Self> {
        let desk = Desk { log: LogFile::beside(path), connection: schema::connect(path)?, in_doubt };
        let (tasks, received) = channel();
        let thread = thread::Builder::new()
            .name("sawmill-sqlite-keeper".to_owned())
            .spawn(move || desk.work_off(&received))
            .map_err(|error| no_thread(path, error))?;
        Ok(Self { tasks: Some(tasks), thread: Some(thread) })
    }

    /// Answers these, which are committed, when the disk keeps them.
    pub(crate) fn keep(&self, works: Vec<Box<dyn Work>>) {
        self.send(Task::Keep(works));
    }

    /// Folds the write-ahead log by the way.
    pub(crate) fn fold(&self) {
        self.send(Task::Fold);
    }

    fn send(&self, task: Task) {
        // A thread that is gone answers nobody, and whoever waits hears that it is not certain.
        let _ = self.tasks.as_ref().map(|tasks| tasks.send(task));
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What the thread has before it.
struct Desk {
    log: LogFile,
    connection: Connection,
    in_doubt: Arc<AtomicBool>,
}

impl Desk {
    fn work_off(mut self, tasks: &Receiver<Task>) {
        while let Ok(first) = tasks.recv() {
            let (mut committed, mut folds) = (Vec::new(), false);
            for task in std::iter::once(first).chain(tasks.try_iter()) {
                match task {
                    Task::Keep(works) => committed.extend(works),
                    Task::Fold => folds = true,
                }
            }
            if !committed.is_empty() {
                self.keep(committed);
            }
            if folds {
                wal::fold(&self.connection);
            }
        }
    }

    fn keep(&mut self, works: Vec<Box<dyn Work>>) {
        if let Err(error) = self.log.sync() {
            tracing::warn!(%error, "the write-ahead log could not be synced to the disk");
            self.in_doubt.store(true, Ordering::Relaxed);
        }
        // A sync that worked says nothing of what an earlier one has left.
        match settle(&self.connection, &self.in_doubt) {
            Ok(()) => works.into_iter().for_each(|work| work.answer()),
            Err(error) => {
                let why = format!("for good: it could not be synced to the disk ({error})");
                works.into_iter().for_each(|work| work.fail(unknown(&why)));
            }
        }
    }
}

/// If the disk may not keep what is in the log, has the database itself keep it.
pub(crate) fn settle(connection: &Connection, in_doubt: &AtomicBool) -> Result<(), String> {
    if !in_doubt.load(Ordering::Relaxed) {
        return Ok(());
    }
    match wal::fold_whole(connection) {
        Ok(true) => {
            in_doubt.store(false, Ordering::Relaxed);
            Ok(())
        }
        Ok(false) => Err("others are reading from its write-ahead log".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The file of the write-ahead log. SQLite keeps it as long as somebody has the database open, and has no locks on it
/// that closing it here could drop.
struct LogFile {
    path: PathBuf,
    file: Option<File>,
}

impl LogFile {
    /// That of the database at this path.
    fn beside(path: &Path) -> Self {
        let mut path = OsString::from(path);
        path.push("-wal");
        Self { path: path.into(), file: None }
    }

    /// Has the disk keep everything that was committed.
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
#[path = "keeper_tests.rs"]
mod tests;
