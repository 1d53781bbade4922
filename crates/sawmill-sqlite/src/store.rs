//! An open database and the threads that work on it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sawmill_engine::Result;
use sawmill_engine::storage::{Namespace, Notifications};

use crate::error::in_doubt;
use crate::log::tail::Tail;
use crate::notify::notifier::{Notifier, subscribe};
use crate::threads::reader::Readers;
use crate::threads::writer::{Shared, Writer};
use crate::{file, schema};

/// A log and a ledger in a SQLite database. Clones share it. Dropping the last clone finishes the queued
/// work, waits for that, and closes the database. A closed database is a single file, without the files that
/// SQLite keeps beside an open one.
///
/// ```
/// use sawmill::Timestamp;
/// use sawmill_engine::storage::{Log, Position, ReadRequest, Record};
/// use sawmill::TopicSpec;
/// use sawmill::{Message, MessageId};
/// use sawmill_sqlite::Sqlite;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> sawmill::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("jobs.db");
/// let sqlite = Sqlite::open(&path, &Default::default())?;
/// let topic = sqlite.create_topic(&TopicSpec::new("emails".parse()?)).await?;
///
/// let now = Timestamp::from_millis(1_800_000_000_000);
/// let message = Message {
///     id: MessageId::from_u128(1),
///     key: None,
///     payload: "hello".into(),
///     headers: Default::default(),
///     due: None,
///     created: now,
/// };
/// sqlite.append(&topic, now, vec![Record::once(3, message.clone())]).await?;
///
/// let want = ReadRequest { shard: 3, after: Position::default(), limit: 10 };
/// let blocks = sqlite.read(&topic, &[want]).await?;
/// assert_eq!(blocks[0].messages, [message]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sqlite {
    open: Arc<Open>,
}

struct Open {
    path: PathBuf,
    namespace: Arc<str>,
    notifier: Notifier,
    tally: Arc<Tally>,
    tail: Arc<Tail>,
    in_doubt: Arc<AtomicBool>,
    // Dropped in this order: the writer closes the last connection.
    readers: Readers,
    writer: Writer,
}

impl Sqlite {
    /// Opens the database at this path, creating or migrating it first. Blocks on the disk.
    ///
    /// Refuses files that are not Sawmill's or have a newer schema, and leaves them unchanged.
    ///
    /// ```
    /// use sawmill::ErrorKind;
    /// use sawmill_sqlite::Sqlite;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// let path = folder.path().join("letter.txt");
    /// std::fs::write(&path, "Dear Alice, this is no database.").unwrap();
    /// let error = Sqlite::open(&path, &Default::default()).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Corrupt);
    /// ```
    pub fn open(path: impl AsRef<Path>, namespace: &Namespace) -> Result<Sqlite> {
        let path = path.as_ref();
        let connection = schema::open(path)?;
        let path = file::canonical(path)?;
        let tally = Arc::new(Tally::default());
        let readers = Readers::start(&path)?;
        let (notifier, tail, in_doubt) =
            (Notifier::default(), Arc::<Tail>::default(), Arc::<AtomicBool>::default());
        let shared = Shared {
            notifier: notifier.clone(),
            tally: tally.clone(),
            tail: tail.clone(),
            in_doubt: in_doubt.clone(),
        };
        let writer = Writer::start(connection, &path, namespace.as_str(), shared)?;
        let open = Open {
            path,
            namespace: namespace.as_str().into(),
            notifier,
            tally,
            tail,
            in_doubt,
            readers,
            writer,
        };
        Ok(Sqlite { open: Arc::new(open) })
    }

    /// The canonical path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.open.path
    }

    pub(crate) fn namespace(&self) -> Arc<str> {
        self.open.namespace.clone()
    }

    /// Counts the calls since this database was opened here.
    pub fn activity(&self) -> Activity {
        let tally = &self.open.tally;
        Activity {
            reads: tally.reads.load(Ordering::Relaxed),
            writes: tally.writes.load(Ordering::Relaxed),
            looks: tally.looks.load(Ordering::Relaxed),
        }
    }

    /// Fails while committed writes may not be on disk: nothing may be decided by ledger entries that could
    /// be lost.
    pub(crate) fn check_certain(&self) -> Result<()> {
        match self.open.in_doubt.load(Ordering::Relaxed) {
            true => Err(in_doubt("a ledger entry could still be lost")),
            false => Ok(()),
        }
    }

    pub(crate) fn tail(&self) -> &Tail {
        &self.open.tail
    }

    pub(crate) fn readers(&self) -> &Readers {
        self.open.tally.reads.fetch_add(1, Ordering::Relaxed);
        &self.open.readers
    }

    pub(crate) fn writer(&self) -> &Writer {
        self.open.tally.writes.fetch_add(1, Ordering::Relaxed);
        &self.open.writer
    }

    /// Subscribes to messages written by this process or others.
    pub(crate) fn message_notifications(&self) -> Notifications {
        let notifications = subscribe(&self.open.notifier.messages);
        self.open.writer.listen();
        notifications
    }

    /// Notifies subscribers of messages that a user's own connection has written.
    pub(crate) fn announce_messages(&self) {
        self.open.writer.notify();
    }

    /// Subscribes to ledger entries written by this process or others.
    pub(crate) fn entry_notifications(&self) -> Notifications {
        let notifications = subscribe(&self.open.notifier.entries);
        self.open.writer.listen();
        notifications
    }
}

/// Counts the use of a database through one [`Sqlite`] and its clones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// Calls that read.
    pub reads: u64,
    /// Calls that write. Concurrent ones share a transaction.
    pub writes: u64,
    /// Timed polls for writes of other processes.
    pub looks: u64,
}

/// The counters behind [`Activity`].
#[derive(Default)]
pub(crate) struct Tally {
    reads: AtomicU64,
    writes: AtomicU64,
    pub(crate) looks: AtomicU64,
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("namespace", &self.open.namespace).finish_non_exhaustive()
    }
}
