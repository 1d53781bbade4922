//! An open database: the threads that work on it, shared by everybody who holds it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sawmill::Result;
use sawmill::engine::Namespace;
use sawmill::log::Hints;

use crate::error::in_doubt;
use crate::file;
use crate::news::{Bells, hints};
use crate::reader::Readers;
use crate::schema;
use crate::tail::Tail;
use crate::writer::{Told, Writer};

/// A log and a ledger in a SQLite database. Clones share it; it is closed when the last of them is dropped, after
/// what was asked of it is done. Dropping the last one waits for that; a closed database is one file again, without the
/// files that SQLite keeps beside an open one.
///
/// ```
/// use sawmill::clock::Timestamp;
/// use sawmill::log::{Log, Position, Record, Want};
/// use sawmill::topic::TopicSpec;
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
/// let want = Want { shard: 3, after: Position::default(), limit: 10 };
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
    bells: Bells,
    tally: Arc<Tally>,
    tail: Arc<Tail>,
    in_doubt: Arc<AtomicBool>,
    // Dropped in this order: the writer closes the last connection.
    readers: Readers,
    writer: Writer,
}

impl Sqlite {
    /// Opens the database at this path, creating or migrating it first. This waits for the disk.
    ///
    /// A file that is not Sawmill's is refused and left as it is, and so is one that a newer version has migrated.
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
        let path = file::whole(path)?;
        let tally = Arc::new(Tally::default());
        let readers = Readers::start(&path)?;
        let (bells, tail, in_doubt) =
            (Bells::default(), Arc::<Tail>::default(), Arc::<AtomicBool>::default());
        let told = Told {
            bells: bells.clone(),
            tally: tally.clone(),
            tail: tail.clone(),
            in_doubt: in_doubt.clone(),
        };
        let writer = Writer::start(connection, &path, namespace.as_str(), told)?;
        let open = Open {
            path,
            namespace: namespace.as_str().into(),
            bells,
            tally,
            tail,
            in_doubt,
            readers,
            writer,
        };
        Ok(Sqlite { open: Arc::new(open) })
    }

    /// The file, whatever links lead to it.
    pub(crate) fn path(&self) -> &Path {
        &self.open.path
    }

    pub(crate) fn namespace(&self) -> Arc<str> {
        self.open.namespace.clone()
    }

    /// What was done on this database since it was opened here.
    pub fn activity(&self) -> Activity {
        let tally = &self.open.tally;
        Activity {
            reads: tally.reads.load(Ordering::Relaxed),
            writes: tally.writes.load(Ordering::Relaxed),
            looks: tally.looks.load(Ordering::Relaxed),
        }
    }

    /// Refuses to read what decides who does what, while nobody knows whether the disk keeps it.
    pub(crate) fn check_certain(&self) -> Result<()> {
        match self.open.in_doubt.load(Ordering::Relaxed) {
            true => Err(in_doubt("it was asked for what may be lost")),
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

    /// Hints of messages that this process or others write.
    pub(crate) fn message_hints(&self) -> Hints {
        let hints = hints(&self.open.bells.messages);
        self.open.writer.listen();
        hints
    }

    /// Has everybody look for messages that a user's own connection has written.
    pub(crate) fn announce_messages(&self) {
        self.open.writer.announce();
    }

    /// Hints of ledger entries that this process or others write.
    pub(crate) fn entry_hints(&self) -> Hints {
        let hints = hints(&self.open.bells.entries);
        self.open.writer.listen();
        hints
    }
}

/// How often a database was used through one [`Sqlite`] and its clones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Activity {
    /// Calls that read.
    pub reads: u64,
    /// Calls that write. Those that come together share a transaction.
    pub writes: u64,
    /// How often it was looked, because some time had passed, whether other processes have written.
    pub looks: u64,
}

/// Where an [`Activity`] is counted.
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
