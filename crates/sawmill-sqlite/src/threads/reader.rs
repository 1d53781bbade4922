//! The reader threads. Each has its own connection, so readers do not wait for the writer, rarely wait for
//! one another, and no caller's thread waits for the disk.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::{Semaphore, oneshot};

use crate::error::Failure;
use crate::schema;

const THREADS: usize = 2;
/// Reads that may be queued. Further callers wait before queueing.
const QUEUE: usize = 64;

/// A queued read.
struct Read {
    /// True if it usually takes less time than waking a second thread.
    light: bool,
    run: Box<dyn FnOnce(&Connection) + Send>,
}

/// Handle to the reader threads. Dropping it ends them after the queued reads.
pub(crate) struct Readers {
    queue: Arc<ReadQueue>,
    room: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(path: &Path) -> Result<Self> {
        let queue = Arc::new(ReadQueue::default());
        let mut readers =
            Self { queue: queue.clone(), room: Arc::new(Semaphore::new(QUEUE)), threads: Vec::new() };
        for _ in 0..THREADS {
            let connection = schema::open_reader(path)?;
            let queue = queue.clone();
            let thread = thread::Builder::new()
                .name("sawmill-sqlite-reader".to_owned())
                .spawn(move || {
                    while let Some(reads) = queue.next() {
                        reads.into_iter().for_each(|read| (read.run)(&connection));
                    }
                })
                .map_err(|error| crate::no_thread(path, error))?;
            readers.threads.push(thread);
        }
        Ok(readers)
    }

    /// Reads from a snapshot that includes every commit before this call.
    pub(crate) async fn read<T, F>(&self, work: F) -> Result<T>
    where
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        self.send(false, work).await
    }

    /// Like [`Readers::read`], for reads that usually take no longer than waking a thread. One thread runs
    /// several of them together.
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
                // The caller may have stopped waiting.
                let _ = caller.send(at_one_moment(connection, work).map_err(Error::from));
            }
        };
        self.queue.push(Read { light, run: Box::new(read) });
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// The queue that the threads share.
#[derive(Default)]
struct ReadQueue {
    state: Mutex<QueueState>,
    available: Condvar,
}

#[derive(Default)]
struct QueueState {
    reads: VecDeque<Read>,
    /// Threads that wait for a read.
    waiting: usize,
    /// True if a thread was woken and has not taken anything yet.
    woken: bool,
    closed: bool,
}

impl ReadQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn push(&self, read: Read) {
        let mut state = self.lock();
        // A woken thread also takes queued light reads.
        let wanted = !(read.light && state.woken);
        state.reads.push_back(read);
        if wanted {
            self.wake_one(state);
        }
    }

    /// Wakes a waiting thread, if there is one, after unlocking the queue.
    fn wake_one(&self, mut state: MutexGuard<'_, QueueState>) {
        if state.waiting > 0 {
            state.woken = true;
            drop(state);
            self.available.notify_one();
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.available.notify_all();
    }

    /// Waits for reads. Returns `None` when the queue is closed and empty.
    fn next(&self) -> Option<Vec<Read>> {
        let mut state = self.lock();
        loop {
            let reads = state.take();
            if !reads.is_empty() {
                if !state.reads.is_empty() {
                    self.wake_one(state);
                }
                return Some(reads);
            }
            if state.closed {
                return None;
            }
            state.waiting += 1;
            state = self.available.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            state.waiting -= 1;
        }
    }
}

impl QueueState {
    /// Takes the light reads at the front, or a single other read.
    fn take(&mut self) -> Vec<Read> {
        self.woken = false;
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

    fn fill(state: &mut QueueState, kinds: &str) {
        let read = |kind| Read { light: kind == 'l', run: Box::new(|_| ()) };
        state.reads.extend(kinds.chars().map(read));
    }

    #[test]
    fn light_reads_are_taken_together_and_others_alone() {
        let mut state = QueueState::default();
        assert!(state.take().is_empty());
        fill(&mut state, "llhhl");
        let taken: Vec<usize> = std::iter::from_fn(|| Some(state.take().len()).filter(|n| *n > 0)).collect();
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
