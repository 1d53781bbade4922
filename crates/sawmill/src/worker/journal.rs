//! The journal: which messages an at-most-once worker has started, on its machine's own disk.
//!
//! Under at-most-once no other worker can know which messages of its claims a dead worker had started, so all
//! unfinished ones are lost. A worker with a journal writes a line before each start. When it crashes and is
//! started again with the same file, it takes over the claims of its previous run, runs messages that were
//! never started, and gives up only those that were.
//!
//! Why nothing is started twice:
//! - *A message starts only after its line is written.* If the line cannot be written, the worker stops, and
//!   the message stays untouched. The line is not synced: it survives the end of the process but not of the
//!   machine. So a journal counts only as long as the machine has not been restarted since, which the
//!   system's boot id shows.
//! - *The previous run can start nothing more.* Its process held the file's lock until it ended, even while
//!   frozen, and a worker that has closed its journal starts nothing. The holder of the lock may therefore
//!   act for the previous run without waiting for a TTL.
//! - *The journal's knowledge goes into the ledger with the claim.* One write makes the claim the new
//!   worker's and records which of its messages were started; see
//!   [`ShardState::recover`](sawmill_engine::model::ShardState::recover). From then on the old lines are not
//!   needed: not if the claim is given back, and not if this worker dies too. If another worker was faster,
//!   the messages are lost as without a journal.
//! - *The file names the workers whose claims can be recovered, and has every line of theirs that matters.* A
//!   worker that was declared dead while its process lived on is not among them: it may have been in the
//!   middle of a start.
//!
//! A journal uses two files in turn, so that it does not grow for ever. When one is long enough, lines go to
//! the other, which is emptied first. That must wait until every claim is closed that was open when the other
//! was last written to. The lock is on the first file, which is never replaced.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind as IoErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use sawmill_engine::model::{GroupName, MessageId, Topic, WorkerId};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::worker::inflight::message::Ticket;

/// The first word of every file of a journal.
const MAGIC: &str = "sawmill-journal-1";
/// The first words of lines: for a message that was about to start, and for the complete list of workers
/// whose claims can be recovered.
const STARTED: &str = "started";
const WORKERS: &str = "workers";
/// The length in bytes from which on the other file is used.
const LONG: u64 = 1 << 20;
/// The file in which Linux identifies this start of the machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Identifies this start of the machine.
pub(super) fn boot_id() -> Result<String> {
    let read = std::fs::read_to_string(BOOT_ID).map(|id| id.trim().to_owned());
    match read {
        Ok(id) if !id.is_empty() && !id.contains(char::is_whitespace) => Ok(id),
        _ => Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "a journal must know whether the machine was restarted, and this system does not say ({BOOT_ID} cannot be \
                 read): start the worker without one"
            ),
        )),
    }
}

/// The previous run of the worker: the workers whose claims can be recovered, and the messages they had
/// started.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct PreviousRun {
    pub(super) workers: BTreeSet<WorkerId>,
    /// The ids of messages, each with the pass over its shard in which it was started.
    pub(super) started: BTreeSet<(MessageId, u32)>,
}

/// The journal of one running worker.
pub(super) struct Journal {
    path: PathBuf,
    /// The end of the first line of its files: the machine's start, the group, the topics.
    about: String,
    open: Mutex<Option<Open>>,
}

/// The files, as long as this worker may write to them.
struct Open {
    /// The first always exists.
    files: [Option<File>; 2],
    /// The index of the file that is written to, its number and its length.
    current: usize,
    number: u64,
    length: u64,
    /// The length from which on the other file is used.
    most: u64,
    /// The other file is needed as long as claims up to this ticket are in hand.
    needed_for: Ticket,
    me: Option<WorkerId>,
    /// The previous run, until it is recovered.
    previous: Option<Arc<PreviousRun>>,
    /// A line could not be written: no more are written.
    broken: bool,
}

impl Journal {
    /// Opens the journal at this path for a worker of this group and these topics, and reads its previous
    /// run.
    pub(super) fn open(path: &Path, group: &GroupName, topics: &[Arc<Topic>], boot: &str) -> Result<Self> {
        let mut topics: Vec<String> =
            topics.iter().map(|topic| format!("{}:{}", topic.name, topic.uid)).collect();
        topics.sort();
        let about = format!("{boot} {group} {}", topics.join(" "));
        let journal = Self { path: path.to_owned(), about, open: Mutex::new(None) };
        let first = journal.file(0)?;
        let files = [Some(first), journal.path_of(1).exists().then(|| journal.file(1)).transpose()?];
        let (mut parts, mut damaged) = (Vec::new(), false);
        for (index, file) in files.iter().enumerate() {
            match file.as_ref().map_or(Ok(Content::Nothing), |file| journal.read(index, file))? {
                Content::Nothing => {}
                Content::Part(part) => parts.push((index, part)),
                Content::Damaged => damaged = true,
            }
        }
        if damaged {
            // Lines may be missing, so the others prove nothing.
            parts.clear();
        }
        parts.sort_by_key(|(_, part)| part.number);
        let last = parts.last().map(|(index, part)| (*index, part.number, part.length));
        let (current, number, length) = last.unwrap_or_default();
        let previous = PreviousRun::of(parts.into_iter().map(|(_, part)| part)).map(Arc::new);
        let (me, most, needed_for, broken) = (None, LONG, 0, false);
        let mut open = Open { files, current, number, length, most, needed_for, me, previous, broken };
        let ready = match last {
            // An unfinished line is cut off: the next line must not be read as its end.
            Some(_) => open.cut(),
            None => open.empty().and_then(|()| open.begin(0, &journal.about)),
        };
        ready.map_err(|error| journal.io_error("cannot be written", error))?;
        *journal.lock() = Some(open);
        Ok(journal)
    }

    /// Names the worker whose starts are written from now on. Must be called before it becomes a member of
    /// its group.
    pub(super) fn join(&self, me: &WorkerId) -> Result<()> {
        self.write(|open| {
            open.me = Some(me.clone());
            open.workers()
        })
    }

    /// Writes that these messages are about to start. After an error they must not start.
    pub(super) fn started(&self, messages: impl Iterator<Item = (MessageId, u32)>) -> Result<()> {
        self.write(|_| messages.map(|(id, pass)| format!("{STARTED} {id} {pass}\n")).collect())
    }

    fn write(&self, lines: impl FnOnce(&mut Open) -> String) -> Result<()> {
        let mut open = self.lock();
        let open = open.as_mut().filter(|open| !open.broken).ok_or_else(|| {
            let what = format!("journal {} is closed: nothing more is started", self.path.display());
            Error::new(ErrorKind::Unavailable, what)
        })?;
        let lines = lines(open);
        open.append(&lines)
            .map_err(|error| self.io_error("cannot be written, and without that no message may start", error))
    }

    /// Returns the previous run until it is recovered.
    pub(super) fn previous(&self) -> Option<Arc<PreviousRun>> {
        self.lock().as_ref().and_then(|open| open.previous.clone())
    }

    /// Notes that no claim of the previous run is left.
    pub(super) fn recovered(&self) {
        if let Some(open) = &mut *self.lock() {
            open.previous = None;
        }
    }

    /// Switches to the other file if this one is long and the other is no longer needed. Called by the task
    /// that takes claims in hand, with the oldest ticket in hand and the last one issued.
    pub(super) fn tidy(&self, oldest: Option<Ticket>, last: Ticket) {
        let mut open = self.lock();
        let Some(open) = open.as_mut().filter(|open| open.length >= open.most && !open.broken) else {
            return;
        };
        let is_needed = open.previous.is_some() || oldest.is_some_and(|oldest| oldest <= open.needed_for);
        if is_needed {
            return;
        }
        let other = 1 - open.current;
        let begun = match &open.files[other] {
            Some(_) => Ok(()),
            None => self.file(other).map(|file| open.files[other] = Some(file)),
        };
        let io_error = |error| self.io_error("cannot be made shorter", error);
        match begun.and_then(|()| open.begin(other, &self.about).map_err(io_error)) {
            Ok(()) => open.needed_for = last,
            Err(error) => {
                // The file goes on growing, which does no harm for a while.
                tracing::warn!(%error, "the journal keeps growing for now");
                open.most = open.length.saturating_mul(2);
            }
        }
    }

    /// Empties the journal, unless there is still something to recover. Every claim is closed or given back.
    pub(super) fn finish(&self) {
        if let Some(open) = self.lock().as_mut().filter(|open| open.previous.is_none()) {
            // If this fails, the next run finds no claims to recover.
            let _ = open.empty();
        }
    }

    /// Closes the files. Nothing can be started after this.
    pub(super) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Open>> {
        self.open.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn path_of(&self, index: usize) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        if index > 0 {
            path.push(".2");
        }
        path.into()
    }

    /// Opens one of the two files, and makes sure that no other worker uses it.
    fn file(&self, index: usize) -> Result<File> {
        let opened = OpenOptions::new().read(true).append(true).create(true).open(self.path_of(index));
        let file = opened.map_err(|error| {
            let what = match error.kind() {
                IoErrorKind::NotFound => "cannot be created: the folder it is in must be there",
                _ => "cannot be opened",
            };
            self.io_error(what, error)
        })?;
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let what = format!("journal {} is not a plain file: name one", self.path.display());
            return Err(Error::invalid(what));
        }
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::Error(error)) => Err(self.io_error("cannot be locked", error)),
            Err(TryLockError::WouldBlock) => {
                let path = self.path.display();
                Err(Error::new(
                    ErrorKind::InUse,
                    format!("journal {path} is used by another worker: each needs a file of its own"),
                ))
            }
        }
    }

    /// Reads a file. A file that is not a journal, or has the claims of another group or topics, is an error
    /// and is not changed.
    fn read(&self, index: usize, mut file: &File) -> Result<Content> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| self.io_error("cannot be read", error))?;
        let path = self.path_of(index);
        let path = path.display();
        if !bytes.contains(&b'\n') && MAGIC.as_bytes().starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
            // Not even the first line was finished, so nothing was started under it.
            return Ok(Content::Nothing);
        }
        // An unfinished last line belongs to a start that did not happen.
        let length = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let text = String::from_utf8_lossy(&bytes[..length]);
        let (header, lines) = text.split_once('\n').unwrap_or_default();
        let mut words = header.splitn(3, ' ');
        let mut next = || words.next().unwrap_or_default();
        let (magic, number, about) = (next(), next().parse(), next());
        let (true, Ok(number)) = (magic == MAGIC, number) else {
            let what =
                format!("{path} is no journal that this version can read: name another file, or remove it");
            return Err(Error::new(ErrorKind::Corrupt, what));
        };
        if first_word(about) != first_word(&self.about) {
            tracing::warn!(%path, "the machine was restarted since this journal was written: it does not count");
            return Ok(Content::Nothing);
        }
        let Some(part) = Part::of(number, length as u64, lines) else {
            tracing::warn!(%path, "this journal is damaged: it does not count");
            return Ok(Content::Damaged);
        };
        match (about == self.about, &part.workers) {
            (true, _) => Ok(Content::Part(part)),
            (false, None) => Ok(Content::Nothing),
            (false, Some(_)) => Err(Error::invalid(format!(
                "journal {path} is of another group or of other topics ({about}), and its worker has not ended well: start \
                 that one again, name another file, or remove this one and what it knows is lost"
            ))),
        }
    }

    fn io_error(&self, what: &str, error: std::io::Error) -> Error {
        let kind = match error.kind() {
            IoErrorKind::StorageFull | IoErrorKind::QuotaExceeded => ErrorKind::Full,
            IoErrorKind::NotFound | IoErrorKind::IsADirectory | IoErrorKind::PermissionDenied => {
                ErrorKind::Invalid
            }
            _ => ErrorKind::Unavailable,
        };
        Error::new(kind, format!("journal {} {what}", self.path.display())).caused_by(error)
    }
}

fn first_word(text: &str) -> Option<&str> {
    text.split(' ').next()
}

impl Open {
    /// Adds lines to the current file: all or none. After a failure no more are ever added.
    fn append(&mut self, lines: &str) -> io::Result<()> {
        let Some(mut file) = self.files[self.current].as_ref() else { return Ok(()) };
        match file.write_all(lines.as_bytes()) {
            Ok(()) => {
                self.length += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.broken = true;
                // Lines that were written in part would name messages that are not started.
                let _ = self.cut();
                Err(error)
            }
        }
    }

    /// Cuts off an unfinished line at the end of the current file.
    fn cut(&self) -> io::Result<()> {
        self.files[self.current].as_ref().map_or(Ok(()), |file| file.set_len(self.length))
    }

    fn empty(&self) -> io::Result<()> {
        self.files.iter().flatten().try_for_each(|file| file.set_len(0))
    }

    /// Starts one of the files over and switches to it.
    fn begin(&mut self, index: usize, about: &str) -> io::Result<()> {
        let Some(mut file) = self.files[index].as_ref() else { return Ok(()) };
        let number = self.number + 1;
        let lines = format!("{MAGIC} {number} {about}\n{}", self.workers());
        file.set_len(0)?;
        file.write_all(lines.as_bytes()).inspect_err(|_| _ = file.set_len(0))?;
        (self.current, self.number, self.length) = (index, number, lines.len() as u64);
        Ok(())
    }

    /// Makes the line that names the workers whose claims can be recovered.
    fn workers(&self) -> String {
        let previous = self.previous.iter().flat_map(|previous| &previous.workers);
        let names: String = previous.chain(&self.me).map(|worker| format!(" {worker}")).collect();
        if names.is_empty() { names } else { format!("{WORKERS}{names}\n") }
    }
}

/// The content of one of the files.
enum Content {
    /// Nothing that counts.
    Nothing,
    Part(Part),
    /// The file has lines that cannot be read.
    Damaged,
}

struct Part {
    number: u64,
    /// The length of its finished lines.
    length: u64,
    /// The list of workers that was written last.
    workers: Option<BTreeSet<WorkerId>>,
    started: Vec<(MessageId, u32)>,
}

impl Part {
    fn of(number: u64, length: u64, lines: &str) -> Option<Self> {
        let mut part = Self { number, length, workers: None, started: Vec::new() };
        for line in lines.lines() {
            match line.split_once(' ')? {
                (STARTED, start) => {
                    let (id, pass) = start.split_once(' ')?;
                    part.started.push((id.parse().ok()?, pass.parse().ok()?));
                }
                (WORKERS, names) => part.workers = Some(names.split(' ').map(WorkerId::new).collect()),
                _ => return None,
            }
        }
        Some(part)
    }
}

impl PreviousRun {
    /// Combines these parts, given in the order in which they were written. `None` if they name no workers.
    fn of(parts: impl Iterator<Item = Part>) -> Option<Self> {
        let mut previous = Self::default();
        for part in parts {
            previous.workers = part.workers.unwrap_or(previous.workers);
            previous.started.extend(part.started);
        }
        (!previous.workers.is_empty()).then_some(previous)
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
