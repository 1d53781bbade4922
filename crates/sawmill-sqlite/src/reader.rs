//! The threads that read, each with a connection of its own, so that readers wait neither for the writer nor, much, for
//! one another, and no caller's thread ever waits for the disk.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
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

type Read = Box<dyn FnOnce(&Connection) + Send>;

/// The way to the threads that read. They end when this is dropped.
pub(crate) struct Readers {
    reads: Option<Sender<Read>>,
    room: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
}

impl Readers {
    pub(crate) fn start(path: &Path) -> Result<Self> {
        let (reads, received) = channel::<Read>();
        let received = Arc::new(Mutex::new(received));
        let mut readers =
            Self { reads: Some(reads), room: Arc::new(Semaphore::new(QUEUE)), threads: Vec::new() };
        for _ in 0..THREADS {
            let connection = schema::open_reader(path)?;
            let received = received.clone();
            let thread = thread::Builder::new()
                .name("sawmill-sqlite-reader".to_owned())
                .spawn(move || {
                    while let Some(read) = next(&received) {
                        read(&connection);
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
        let gone = || Error::new(ErrorKind::Unavailable, "the database is closed: open it again");
        let _room = self.room.clone().acquire_owned().await.map_err(|_| gone())?;
        let (caller, answer) = oneshot::channel();
        let read = move |connection: &Connection| {
            if !caller.is_closed() {
                // A caller who goes away meanwhile does not want it.
                let _ = caller.send(at_one_moment(connection, work).map_err(Error::from));
            }
        };
        let reads = self.reads.as_ref().ok_or_else(gone)?;
        reads.send(Box::new(read)).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.reads = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn next(reads: &Mutex<Receiver<Read>>) -> Option<Read> {
    reads.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).recv().ok()
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
