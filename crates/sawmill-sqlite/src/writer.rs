//! The one thread that writes. It takes everything that is queued, does it in one transaction, and answers each caller
//! when that is committed: many small writes at once cost one transaction together, and one sync of the disk.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;
use sawmill::clock::{Clock, SystemClock};
use sawmill::{Error, ErrorKind, Result};
use tokio::sync::Semaphore;

use crate::batch::Batch;
use crate::error::{Failure, explain, explain_commit, in_doubt, unknown};
use crate::keeper::{self, Keeper};
use crate::news::{Bells, Ear, Written};
use crate::store::Tally;
use crate::tail::Tail;
use crate::topics;
use crate::touch::{Listener, Toucher};
use crate::wal::{self, Fold, Length};
use crate::work::{Piece, Work};

/// How many pieces of work may wait. Who comes later waits before queueing.
const QUEUE: usize = 1024;
/// A transaction takes no more work once it weighs this much, in bytes.
const HEAVY: usize = 8 << 20;

/// The way to the thread that writes. It ends when this is dropped, having done what was queued.
pub(crate) struct Writer {
    letters: Option<Sender<Letter>>,
    room: Arc<Semaphore>,
    toucher: Toucher,
    /// Hears of other processes, since somebody wants to; none if the system cannot tell.
    listener: OnceLock<Option<Listener>>,
    thread: Option<JoinHandle<()>>,
}

/// Who is told of what is written.
pub(crate) struct Told {
    pub(crate) bells: Bells,
    pub(crate) tally: Arc<Tally>,
    pub(crate) tail: Arc<Tail>,
    /// Something was committed, and the disk has not said that it keeps it.
    pub(crate) in_doubt: Arc<AtomicBool>,
}

/// What the thread is sent.
enum Letter {
    Work(Box<dyn Work>),
    /// Somebody wants to hear of news: do not wait for work alone.
    Listen {
        /// Touches are heard.
        hears: bool,
    },
    /// Somebody, perhaps this process, has written.
    Heard(Written),
    /// Somebody has written messages who cannot tell other processes.
    Announce,
}

impl Writer {
    pub(crate) fn start(
        mut connection: Connection,
        path: &Path,
        namespace: &str,
        told: Told,
    ) -> Result<Self> {
        let (letters, received) = channel();
        let length = Length::default();
        length.follow(&mut connection).map_err(|error| explain(&error))?;
        let keeper = Keeper::start(path, told.in_doubt.clone())?;
        let ear = Ear::new(&connection).map_err(|error| explain(&error))?;
        let toucher = Toucher::new(path).map_err(|error| crate::no_thread(path, error))?;
        let touches = toucher.clone();
        let desk = Desk {
            connection,
            namespace: namespace.to_owned(),
            told,
            ear,
            toucher: touches,
            untold: Written::default(),
            hurries: false,
            leftovers: true,
            syncs_itself: true,
            length,
            keeper,
        };
        let thread = thread::Builder::new()
            .name("sawmill-sqlite-writer".to_owned())
            .spawn(move || desk.work_off(&received))
            .map_err(|error| crate::no_thread(path, error))?;
        Ok(Self {
            letters: Some(letters),
            room: Arc::new(Semaphore::new(QUEUE)),
            toucher,
            listener: OnceLock::new(),
            thread: Some(thread),
        })
    }

    /// Does a piece of work in a transaction, perhaps with others. It is done again from the start if the transaction
    /// breaks, so it must not change what it holds. `weight` is about how many bytes it writes.
    pub(crate) async fn write<T, F>(&self, weight: usize, work: F) -> Result<T>
    where
        F: FnMut(&mut Batch<'_>) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        self.send(weight, true, work).await
    }

    /// The same for what a power failure may undo, with all that came after it: the disk need not be synced for it.
    pub(crate) async fn write_lightly<T, F>(&self, weight: usize, work: F) -> Result<T>
    where
        F: FnMut(&mut Batch<'_>) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        self.send(weight, false, work).await
    }

    async fn send<T, F>(&self, weight: usize, lasting: bool, work: F) -> Result<T>
    where
        F: FnMut(&mut Batch<'_>) -> Result<T, Failure> + Send + 'static,
        T: Send + 'static,
    {
        let gone = || Error::new(ErrorKind::Unavailable, "the database is closed: open it again");
        let room = self.room.clone().acquire_owned().await.map_err(|_| gone())?;
        let (piece, answer) = Piece::new(weight, lasting, room, work);
        let letters = self.letters.as_ref().ok_or_else(gone)?;
        letters.send(Letter::Work(Box::new(piece))).map_err(|_| gone())?;
        answer.await.unwrap_or_else(|_| Err(unknown("because it was closed meanwhile")))
    }

    /// Has everybody look for messages, here and in other processes.
    pub(crate) fn announce(&self) {
        // A hint may be lost.
        let _ = self.letters.as_ref().map(|letters| letters.send(Letter::Announce));
    }

    /// Has the thread look for what other processes write.
    pub(crate) fn listen(&self) {
        let Some(letters) = &self.letters else { return };
        let listener = self.listener.get_or_init(|| {
            let letters = letters.clone();
            // A thread that has ended hears nothing; hints may be lost.
            let heard = move |written| drop(letters.send(Letter::Heard(written)));
            Listener::start(&self.toucher, heard)
                .inspect_err(|error| tracing::debug!(%error, "others are not heard; asking at intervals"))
                .ok()
        });
        let _ = letters.send(Letter::Listen { hears: listener.is_some() });
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // The listener has a way to the thread, too.
        self.listener.take();
        self.letters = None;
        if let Some(thread) = self.thread.take() {
            // Waits for the last connection to close, which folds the write-ahead log into the file.
            let _ = thread.join();
        }
    }
}

/// What the thread has before it.
struct Desk {
    // Closed before the connection, which removes the log.
    keeper: Keeper,
    length: Length,
    connection: Connection,
    namespace: String,
    told: Told,
    ear: Ear,
    toucher: Toucher,
    /// What was written and other processes were not told of.
    untold: Written,
    /// True if something was done before telling them.
    hurries: bool,
    /// SQLite syncs within each commit, since the ledger may be in another database.
    syncs_itself: bool,
    /// True if there may be messages of deleted topics to remove.
    leftovers: bool,
}

/// Where a transaction broke.
enum Broken {
    Begin(rusqlite::Error),
    Work(rusqlite::Error),
    Commit(rusqlite::Error),
}

impl Desk {
    fn work_off(mut self, letters: &Receiver<Letter>) {
        loop {
            let mut inbox =
                Inbox { letters, heard: Written::default(), hears: false, announced: Written::default() };
            match self.next(letters).map(|letter| inbox.open(letter)) {
                Ok(Some(first)) => {
                    let works = std::iter::once(first).chain(inbox.all_work()).collect();
                    self.commit(works, Some(&mut inbox));
                    self.ear.stay_awake();
                }
                Ok(None) => {}
                // It did not wait: there is something else to do.
                Err(RecvTimeoutError::Timeout) if self.leftovers => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.told.tally.looks.fetch_add(1, Ordering::Relaxed);
                    inbox.heard = Written::ANYTHING;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if self.leftovers {
                self.leftovers = topics::sweep(&self.connection).unwrap_or_else(|error| {
                    tracing::warn!(%error, "what deleted topics have left could not be removed; the next start tries again");
                    false
                });
            }
            if inbox.hears {
                self.ear.hears();
            }
            self.untold.add(inbox.announced);
            let heard = if self.ear.must_ask() { Written::ANYTHING } else { inbox.heard };
            if heard != Written::default() && self.told.bells.are_heard() {
                self.told.bells.ring(self.ear.ask(&self.connection, heard));
            }
        }
    }

    /// Waits for the next letter, no longer than until there is something else to do.
    fn next(&mut self, letters: &Receiver<Letter>) -> Result<Letter, RecvTimeoutError> {
        // Most often the claim of what was just pushed is here by now: it goes before telling others, but not more than that.
        self.hurries = self.untold != Written::default() && !self.hurries;
        if self.hurries
            && let Ok(letter) = letters.try_recv()
        {
            return Ok(letter);
        }
        self.hurries = false;
        self.toucher.touch(std::mem::take(&mut self.untold));
        let fold = self.length.wants_fold();
        if fold == Fold::WhenIdle
            && let Ok(letter) = letters.try_recv()
        {
            return Ok(letter);
        }
        if fold != Fold::No {
            self.length.folds();
        }
        match fold {
            Fold::No => {}
            Fold::WhenIdle => self.keeper.fold(),
            Fold::Now => wal::fold(&self.connection),
        }
        if self.leftovers {
            letters.recv_timeout(std::time::Duration::ZERO)
        } else if self.told.bells.are_heard() {
            letters.recv_timeout(self.ear.pause())
        } else {
            letters.recv().map_err(|_| RecvTimeoutError::Disconnected)
        }
    }

    /// Does these pieces of work, and what comes meanwhile, and answers their callers. If they cannot be committed
    /// together, each is tried alone, so that nobody fails because of another.
    fn commit(&mut self, mut works: Vec<Box<dyn Work>>, inbox: Option<&mut Inbox<'_>>) {
        if let Err(error) = keeper::settle(&self.connection, &self.told.in_doubt) {
            works.into_iter().for_each(|work| work.fail(in_doubt(&error)));
            return;
        }
        let broken = match self.transact(&mut works, inbox) {
            Ok(written) => {
                self.answer(works);
                self.untold.add(written);
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

    /// Answers the callers of what is committed, those of what must last when it is on the disk.
    fn answer(&mut self, works: Vec<Box<dyn Work>>) {
        let (lasting, light): (Vec<_>, Vec<_>) = works.into_iter().partition(|work| work.is_lasting());
        light.into_iter().for_each(|work| work.answer());
        if lasting.is_empty() {
            return;
        }
        if self.syncs_itself {
            lasting.into_iter().for_each(|work| work.answer());
        } else {
            self.keeper.keep(lasting);
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
            if done == works.len() && weight < HEAVY {
                works.extend(inbox.as_mut().and_then(|inbox| inbox.more_work()));
            }
        }
        let written = Written { messages: batch.messages_changed, entries: batch.entries_changed };
        let leftovers = batch.leftovers;
        let changes = batch.finish().map_err(Broken::Work)?;
        run("COMMIT").map_err(Broken::Commit)?;
        self.leftovers |= leftovers;
        if written.entries && self.syncs_itself {
            // If it cannot be changed, every commit is synced as before.
            self.syncs_itself = self.connection.pragma_update(None, "synchronous", "NORMAL").is_err();
        }
        self.told.tail.add(changes, SystemClock.now());
        self.told.bells.ring(written);
        Ok(written)
    }
}

/// What has arrived, and what of it is not work, for afterwards.
struct Inbox<'a> {
    letters: &'a Receiver<Letter>,
    heard: Written,
    hears: bool,
    announced: Written,
}

impl Inbox<'_> {
    /// The work in a letter, if it is about work.
    fn open(&mut self, letter: Letter) -> Option<Box<dyn Work>> {
        match letter {
            Letter::Work(work) => return Some(work),
            Letter::Heard(written) => self.heard.add(written),
            Letter::Announce => {
                self.heard.add(Written::MESSAGES);
                self.announced.add(Written::MESSAGES);
            }
            Letter::Listen { hears } => {
                self.heard = Written::ANYTHING;
                self.hears |= hears;
            }
        }
        None
    }

    /// All work that is queued now, as much as a transaction may take.
    fn all_work(&mut self) -> Vec<Box<dyn Work>> {
        let (mut works, mut weight) = (Vec::new(), 0usize);
        while weight < HEAVY
            && let Some(work) = self.more_work()
        {
            weight = weight.saturating_add(work.weight());
            works.push(work);
        }
        works
    }

    /// The next piece of work that is queued.
    fn more_work(&mut self) -> Option<Box<dyn Work>> {
        while let Ok(letter) = self.letters.try_recv() {
            if let Some(work) = self.open(letter) {
                return Some(work);
            }
        }
        None
    }
}
