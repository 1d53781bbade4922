//! The single writer thread. It runs all queued work in one transaction and answers each caller after the
//! commit, so many small concurrent writes share one transaction and one sync.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use sawmill_engine::runtime::{Clock, SystemClock};
use sawmill_engine::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use crate::error::{Failure, explain, explain_commit, in_doubt, unknown};
use crate::log::tail::Tail;
use crate::log::topics;
use crate::notify::notifier::{ChangePoller, Notifier, Written};
use crate::notify::touch::{Listener, Toucher};
use crate::store::Tally;
use crate::threads::batch::Batch;
use crate::threads::syncer::{self, Syncer};
use crate::threads::wal::{self, Checkpoint, Length};
use crate::threads::work::{FnWork, Work};

/// Work items that may be queued. Further callers wait before queueing.
const QUEUE: usize = 1024;
/// A transaction takes no more work once its estimated size reaches this many bytes.
const MAX_BATCH_BYTES: usize = 8 << 20;

/// Handle to the writer thread. Dropping it ends the thread after the queued work.
pub(crate) struct Writer {
    commands: Option<Sender<Command>>,
    room: Arc<Semaphore>,
    toucher: Toucher,
    /// Started by the first subscriber. `None` inside if the system cannot report touches.
    listener: OnceLock<Option<Listener>>,
    thread: Option<JoinHandle<()>>,
}

/// State that the writer thread shares with [`Sqlite`](crate::Sqlite).
pub(crate) struct Shared {
    pub(crate) notifier: Notifier,
    pub(crate) tally: Arc<Tally>,
    pub(crate) tail: Arc<Tail>,
    /// True while a committed write may not be on disk because a sync failed.
    pub(crate) in_doubt: Arc<AtomicBool>,
}

/// A message to the writer thread.
enum Command {
    Work(Box<dyn Work>),
    /// There is a subscriber: also wait for changes, not for work alone.
    Listen {
        /// True if a [`Listener`] reports touches.
        has_listener: bool,
    },
    /// A process, possibly this one, has touched the files.
    Touched(Written),
    /// A connection outside of Sawmill has written messages; notify this process and others.
    Announce,
}

impl Writer {
    pub(crate) fn start(
        mut connection: Connection,
        path: &Path,
        namespace: &str,
        shared: Shared,
    ) -> Result<Self> {
        let (commands, received) = channel();
        let length = Length::default();
        length.follow(&mut connection).map_err(|error| explain(&error))?;
        let syncer = Syncer::start(path, shared.in_doubt.clone())?;
        let poller = ChangePoller::new(&connection).map_err(|error| explain(&error))?;
        let toucher = Toucher::new(path).map_err(|error| crate::no_thread(path, error))?;
        let touches = toucher.clone();
        let writer = WriterThread {
            connection,
            namespace: namespace.to_owned(),
            shared,
            poller,
            toucher: touches,
            unannounced: Written::default(),
            postponed: false,
            leftovers: true,
            syncs_itself: true,
            length,
            syncer,
        };
        let thread = thread::Builder::new()
            .name("sawmill-sqlite-writer".to_owned())
            .spawn(move || writer.run(&received))
            .map_err(|error| crate::no_thread(path, error))?;
        Ok(Self {
            commands: Some(commands),
            room: Arc::new(Semaphore::new(QUEUE)),
            toucher,
            listener: OnceLock::new(),
            thread: Some(thread),
        })
    }

    /// Runs work in a transaction, possibly with other work. A failed transaction runs it again from the
    /// start, so it must not change its captured state. `weight` estimates the bytes it writes.
    pub(crate) async fn write<T, F>(&self, weight: usize, work: F) -> Result<T>
    where
        F: FnMut(&mut Batch<'_>) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        self.send(weight, true, work).await
    }

    /// Like [`Writer::write`], without waiting for a sync: a power failure may undo the write, with
    /// everything after it.
    pub(crate) async fn write_lightly<T, F>(&self, weight: usize, work: F) -> Result<T>
    where
        F: FnMut(&mut Batch<'_>) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        self.send(weight, false, work).await
    }

    async fn send<T, F>(&self, weight: usize, durable: bool, work: F) -> Result<T>
    where
        F: FnMut(&mut Batch<'_>) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        let gone = || Error::new(ErrorKind::Unavailable, "the database is closed: open it again");
        let room = self.room.clone().acquire_owned().await.map_err(|_| gone())?;
        let (piece, answer) = FnWork::new(weight, durable, room, work);
        let commands = self.commands.as_ref().ok_or_else(gone)?;
        commands.send(Command::Work(Box::new(piece))).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(unknown("because it was closed meanwhile")))
    }

    /// Notifies subscribers to messages, here and in other processes.
    pub(crate) fn notify(&self) {
        // Notifications may be lost.
        let _ = self.commands.as_ref().map(|commands| commands.send(Command::Announce));
    }

    /// Makes the thread watch for changes by other processes.
    pub(crate) fn listen(&self) {
        let Some(commands) = &self.commands else { return };
        let listener = self.listener.get_or_init(|| {
            let commands = commands.clone();
            // Sending fails only after the thread has ended. Notifications may be lost.
            let on_touch = move |written| drop(commands.send(Command::Touched(written)));
            Listener::start(&self.toucher, on_touch)
                .inspect_err(
                    |error| tracing::debug!(%error, "touches are not reported; polling at intervals"),
                )
                .ok()
        });
        let _ = commands.send(Command::Listen { has_listener: listener.is_some() });
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The listener also holds a sender to the thread.
        self.listener.take();
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // Closing the last connection checkpoints the write-ahead log into the file.
            let _ = thread.join();
        }
    }
}

/// State of the writer thread.
struct WriterThread {
    // Dropped before the connection, whose closing removes the log.
    syncer: Syncer,
    length: Length,
    connection: Connection,
    namespace: String,
    shared: Shared,
    poller: ChangePoller,
    toucher: Toucher,
    /// Writes that other processes have not been notified of.
    unannounced: Written,
    /// True if the touch was postponed once to run queued work first.
    postponed: bool,
    /// True while SQLite syncs within each commit, because the ledger may be in another database.
    syncs_itself: bool,
    /// True if messages of deleted topics may remain.
    leftovers: bool,
}

/// The step at which a transaction failed.
enum Broken {
    Begin(rusqlite::Error),
    Work(rusqlite::Error),
    Commit(rusqlite::Error),
}

impl WriterThread {
    fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let mut inbox = Inbox {
                commands,
                written: Written::default(),
                has_listener: false,
                announced: Written::default(),
            };
            match self.next(commands).map(|command| inbox.accept(command)) {
                Ok(Some(first)) => {
                    let works = std::iter::once(first).chain(inbox.all_work()).collect();
                    self.commit(works, Some(&mut inbox));
                    self.poller.reset_pause();
                }
                Ok(None) => {}
                // The timeout was zero because leftovers are to be removed.
                Err(RecvTimeoutError::Timeout) if self.leftovers => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.shared.tally.looks.fetch_add(1, Ordering::Relaxed);
                    inbox.written = Written::ANYTHING;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.leftovers {
                self.leftovers = topics::sweep(&self.connection).unwrap_or_else(|error| {
                    tracing::warn!(%error, "leftovers of deleted topics could not be removed; the next start tries again");
                    false
                });
            }
            if inbox.has_listener {
                self.poller.listener_started();
            }
            self.unannounced.add(inbox.announced);
            let asked = if self.poller.must_poll() { Written::ANYTHING } else { inbox.written };
            if asked != Written::default() && self.shared.notifier.has_subscribers() {
                self.shared.notifier.notify(self.poller.poll(&self.connection, asked));
            }
        }
    }

    /// Waits for the next command, or until other work is due.
    fn next(&mut self, commands: &Receiver<Command>) -> Result<Command, RecvTimeoutError> {
        // The claim of a message just pushed is usually queued by now. One command may run before the touch,
        // not more.
        self.postponed = self.unannounced != Written::default() && !self.postponed;
        if self.postponed
            && let Ok(command) = commands.try_recv()
        {
            return Ok(command);
        }
        self.postponed = false;
        self.toucher.touch(std::mem::take(&mut self.unannounced));
        let checkpoint = self.length.checkpoint_due();
        if checkpoint == Checkpoint::WhenIdle
            && let Ok(command) = commands.try_recv()
        {
            return Ok(command);
        }
        if checkpoint != Checkpoint::No {
            self.length.checkpoint_begun();
        }
        match checkpoint {
            Checkpoint::No => {}
            Checkpoint::WhenIdle => self.syncer.checkpoint(),
            Checkpoint::Now => wal::checkpoint(&self.connection),
        }
        if self.leftovers {
            commands.recv_timeout(std::time::Duration::ZERO)
        } else if self.shared.notifier.has_subscribers() {
            commands.recv_timeout(self.poller.pause())
        } else {
            commands.recv().map_err(|_| RecvTimeoutError::Disconnected)
        }
    }

    /// Runs this work and what arrives meanwhile, and answers the callers. If it cannot be committed
    /// together, each item is tried alone, so that no item fails because of another.
    fn commit(&mut self, mut works: Vec<Box<dyn Work>>, inbox: Option<&mut Inbox<'_>>) {
        if let Err(error) = syncer::resolve_doubt(&self.connection, &self.shared.in_doubt) {
            works.into_iter().for_each(|work| work.fail(in_doubt(&error)));
            return;
        }
        let broken = match self.transact(&mut works, inbox) {
            Ok(written) => {
                self.answer(works);
                self.unannounced.add(written);
                return;
            }
            Err(broken) => broken,
        };
        if !self.connection.is_autocommit()
            && let Err(error) = self.connection.execute_batch("ROLLBACK")
        {
            tracing::error!(%error, "a transaction could not be rolled back");
        }
        let error = || match &broken {
            Broken::Begin(error) | Broken::Work(error) => explain(error),
            Broken::Commit(error) => explain_commit(error),
        };
        let once_only = matches!(broken, Broken::Begin(_)) || error().kind() == ErrorKind::Unknown;
        if once_only || works.len() == 1 {
            works.into_iter().for_each(|work| work.fail(error()));
        } else {
            works.into_iter().for_each(|work| self.commit(vec![work], None));
        }
    }

    /// Answers the callers of committed work. Durable work is answered after the sync.
    fn answer(&mut self, works: Vec<Box<dyn Work>>) {
        let (durable, light): (Vec<_>, Vec<_>) = works.into_iter().partition(|work| work.is_durable());
        light.into_iter().for_each(|work| work.answer());
        if durable.is_empty() {
            return;
        }
        if self.syncs_itself {
            durable.into_iter().for_each(|work| work.answer());
        } else {
            self.syncer.sync_then_answer(durable);
        }
    }

    fn transact(
        &mut self,
        works: &mut Vec<Box<dyn Work>>,
        mut inbox: Option<&mut Inbox<'_>>,
    ) -> Result<Written, Broken> {
        let run = |sql| self.connection.prepare_cached(sql)?.execute([]);
        run("BEGIN IMMEDIATE").map_err(Broken::Begin)?;
        let mut batch = Batch::new(&self.connection, &self.namespace);
        let (mut done, mut weight) = (0, 0usize);
        while let Some(work) = works.get_mut(done) {
            work.attempt(&mut batch).map_err(Broken::Work)?;
            weight = weight.saturating_add(work.weight());
            done += 1;
            if done == works.len() && weight < MAX_BATCH_BYTES {
                works.extend(inbox.as_mut().and_then(|inbox| inbox.more_work()));
            }
        }
        let written = Written { messages: batch.messages_changed, entries: batch.entries_changed };
        let leftovers = batch.leftovers;
        let changes = batch.finish().map_err(Broken::Work)?;
        run("COMMIT").map_err(Broken::Commit)?;
        self.leftovers |= leftovers;
        if written.entries && self.syncs_itself {
            // If the pragma fails, every commit is still synced.
            self.syncs_itself = self.connection.pragma_update(None, "synchronous", "NORMAL").is_err();
        }
        self.shared.tail.add(changes, SystemClock.now());
        self.shared.notifier.notify(written);
        Ok(written)
    }
}

/// Received commands. Everything except work is recorded and handled afterwards.
struct Inbox<'a> {
    commands: &'a Receiver<Command>,
    written: Written,
    has_listener: bool,
    announced: Written,
}

impl Inbox<'_> {
    /// Returns the work of a command, or records what it says.
    fn accept(&mut self, command: Command) -> Option<Box<dyn Work>> {
        match command {
            Command::Work(work) => return Some(work),
            Command::Touched(written) => self.written.add(written),
            Command::Announce => {
                self.written.add(Written::MESSAGES);
                self.announced.add(Written::MESSAGES);
            }
            Command::Listen { has_listener } => {
                self.written = Written::ANYTHING;
                self.has_listener |= has_listener;
            }
        }
        None
    }

    /// Takes queued work, up to the size limit of a transaction.
    fn all_work(&mut self) -> Vec<Box<dyn Work>> {
        let (mut works, mut weight) = (Vec::new(), 0usize);
        while weight < MAX_BATCH_BYTES
            && let Some(work) = self.more_work()
        {
            weight = weight.saturating_add(work.weight());
            works.push(work);
        }
        works
    }

    /// Takes the next queued work.
    fn more_work(&mut self) -> Option<Box<dyn Work>> {
        while let Ok(command) = self.commands.try_recv() {
            if let Some(work) = self.accept(command) {
                return Some(work);
            }
        }
        None
    }
}
