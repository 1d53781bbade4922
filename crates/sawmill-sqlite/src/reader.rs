//! The threads that read, each with a connection of its own, so that readers wait neither for the writer nor, much, for
//! one another, and no caller's thread ever waits for the disk.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use sawmill::{Error, ErrorKind, Result};
use tokio::sync::{Semaphore, oneshot};

use crate::error::Failure;
use crate::schema;

/// How many threads read.
const THREADS: usize = 2;
/// How many reads may wait. Who comes later waits before queueing.
const QUEUE: usize = 64;

/// A read that waits for a thread.
struct Read {
    /// Most often it takes less time than to wake a second thread for it.
    light: bool,
    run: Box<dyn FnOnce(&Connection) + Send>,
}

/// The way to the threads that read. They end when this is dropped, having done what was queued.
pub(crate) struct Readers {
    desk: Arc<Desk>,
    room: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(path: &Path) -> Result<Self> {
        let desk = Arc::new(Desk::default());
        let mut readers =
            Self { desk: desk.clone(), room: Arc::new(Semaphore::new(QUEUE)), threads: Vec::new() };
        for _ in 0..THREADS {
            let connection = schema::open_reader(path)?;
            let desk = desk.clone();
            let thread = thread::Builder::new()
                .name("sawmill-sqlite-reader".to_owned())
                .spawn(move || {
                    while let Some(reads) = desk.next() {
                        reads.into_iter().for_each(|read| (read.run)(&connection));
                    }
                })
                .map_err(|error| crate::no_thread(path, error))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Reads, seeing the database as it is at one moment: everything that was committed before this call.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T>
    where
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        self.send(false, work).await
    }

    /// The same for what most often takes no longer than waking a thread does: several that come together are read by one
    /// thread.
    pub(crate) async fn read_lightly<T, F>(&self, work: F) -> Result<T>
    where
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        self.send(true, work).await
    }

    async fn send<T, F>(&self, light: bool, work: F) -> Result<T>
    where
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        let gone = || Error::new(ErrorKind::Unavailable, "the database is closed: open it again");
        let _room = self.room.clone().acquire_owned().await.map_err(|_| gone())?;
        let (caller, answer) = oneshot::channel();
        let read = move |connection: &Connection| {
            if !caller.is_closed() {
                // A caller who goes away meanwhile does not want it.
                let _ = caller.send(at_one_moment(connection, work).map_err(Error::from));
            }
        };
        self.desk.put(Read { light, run: Box::new(read) });
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.desk.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What the threads have before them.
#[derive(Default)]
struct Desk {
    pile: Mutex<Pile>,
    call: Condvar,
}

#[derive(Default)]
struct Pile {
    reads: VecDeque<Read>,
    /// Threads that wait to be called.
    waiting: usize,
    /// One was called, and nothing was taken from the pile since.
    called: bool,
    closed: bool,
}

impl Desk {
    fn pile(&self) -> MutexGuard<'_, Pile> {
        self.pile.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn put(&self, read: Read) {
        let mut pile = self.pile();
        // Who was called takes a light one along.
        let wanted = !(read.light && pile.called);
        pile.reads.push_back(read);
        if wanted {
            self.call(pile);
        }
    }

    /// Calls a thread, if one waits. It finds the pile unlocked.
    fn call(&self, mut pile: MutexGuard<'_, Pile>) {
        if pile.waiting > 0 {
            pile.called = true;
            drop(pile);
            self.call.notify_one();
        }
    }

    fn close(&self) {
        self.pile().closed = true;
        self.call.notify_all();
    }

    /// Waits for something to read; `None` at the end.
    fn next(&self) -> Option<Vec<Read>> {
        let mut pile = self.pile();
        loop {
            let reads = pile.take();
            if !reads.is_empty() {
                if !pile.reads.is_empty() {
                    self.call(pile);
                }
                return Some(reads);
            }
            if pile.closed {
                return None;
            }
            pile.waiting += 1;
            pile = self.call.wait(pile).unwrap_or_else(|poisoned| poisoned.into_inner());
            pile.waiting -= 1;
        }
    }
}

impl Pile {
    /// The light reads on top, or the one read that is not.
    fn take(&mut self) -> Vec<Read> {
        self.called = false;
        let light = self.reads.iter().take_while(|read| read.light).count();
        self.reads.drain(..light.max(1).min(self.reads.len())).collect()
    }
}

fn at_one_moment<T>(
    connection: &Connection,
    work: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    connection.prepare_cached("BEGIN")?.execute([])?;
    let result = work(connection);
    let ended = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
    if ended.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(pile: &mut Pile, kinds: &str) {
        let read = |kind| Read { light: kind == 'l', run: Box::new(|_| ()) };
        pile.reads.extend(kinds.chars().map(read));
    }

    #[test]
    fn light_reads_are_taken_together_and_others_alone() {
        let mut pile = Pile::default();
        assert!(pile.take().is_empty());
        put(&mut pile, "llhhl");
        let taken: Vec<usize> = std::iter::from_fn(|| Some(pile.take().len()).filter(|n| *n > 0)).collect();
        assert_eq!(taken, [2, 1, 1, 1]);
    }

    #[test]
    fn every_read_is_answered_however_many_come_at_once_and_the_threads_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        drop(schema::open(&path).unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let readers = Readers::start(&path).unwrap();
            let reads = (0..500).map(|nth| {
                let readers = &readers;
                async move {
                    match nth % 3 {
                        0 => readers.read(move |_| Ok(nth)).await,
                        _ => readers.read_lightly(move |_| Ok(nth)).await,
                    }
                }
            });
            let answers: Result<Vec<i32>> = futures_util::future::join_all(reads).await.into_iter().collect();
            assert_eq!(answers.unwrap(), (0..500).collect::<Vec<_>>());
        });
    }
}
