//! The journal: which messages an at-most-once worker has started, on its machine's own disk.
//!
//! Under at-most-once nobody can know what a dead worker had started of its claims, so all that is not done is lost. A worker
//! with a journal writes a line before each start. When it crashes and is started again with the same file, it takes over what
//! its former life had claimed, runs what was never started, and gives up only what was.
//!
//! Why nothing is started twice:
//! - *A message starts only after its line is written.* If the line cannot be written, the worker stops, and the message is as
//!   untouched as before. The line is not synced: what was written outlives the process, not the machine. So a journal counts
//!   only as long as the machine has not been restarted since, which the system's boot id tells.
//! - *The former life can start nothing more.* It held the file's lock as long as it lived, dead or frozen, and a worker that
//!   has let go of its journal finds it closed. Whoever holds the lock now may therefore speak for it, without waiting for a TTL.
//! - *What is known goes into the ledger with the claim.* One write makes the claim the new worker's and says which of its
//!   messages were started; see [`ShardState::recover`](crate::shard::ShardState::recover). From then on nobody needs the old
//!   lines: not if the claim is given back, not if this worker dies too. If another worker was faster, all is lost as ever.
//! - *The file names the workers that it speaks for, and of these it has every line that matters.* One that was declared dead
//!   while its process lived on is not among them: it may have been in the middle of a start.
//!
//! A journal is two files in turn, so that it does not grow for ever. When one is long enough, lines go to the other, which is
//! emptied first; and that must wait until every claim is closed that was open when it was written to last. The lock is on
//! the first, which stays in its place.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind as IoErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use super::item::Ticket;
use crate::claim::WorkerId;
use crate::error::{Error, ErrorKind, Result};
use crate::message::MessageId;
use crate::topic::{GroupName, Topic};

/// What every file of a journal begins with.
const MAGIC: &str = "sawmill-journal-1";
/// How lines begin: a message that was about to start; and the workers whose claims can be recovered, all of them each time.
const STARTED: &str = "started";
const WORKERS: &str = "workers";
/// How long a file may get before the other is used.
const LONG: u64 = 1 << 20;
/// Where Linux says which start of the machine this is.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Which start of the machine this is.
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

/// What a former life of the worker has left: whose claims can be recovered, and what they had started.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Past {
    pub(super) workers: BTreeSet<WorkerId>,
    /// Messages by their ids, and in which reading of their shard.
    pub(super) started: BTreeSet<(MessageId, u32)>,
}

/// The journal of one running worker.
pub(super) struct Journal {
    path: PathBuf,
    /// What its files say of themselves after their number: the machine's start, the group, the topics.
    about: String,
    open: Mutex<Option<Open>>,
}

/// The files, as long as this worker may write to them.
struct Open {
    /// The first is always there.
    files: [Option<File>; 2],
    /// Which of them is written to, which number it has, and how long it is.
    current: usize,
    number: u64,
    length: u64,
    /// How long it may get before the other is used.
    most: u64,
    /// The other one is needed as long as claims up to this ticket are in hand.
    needed_for: Ticket,
    me: Option<WorkerId>,
    /// What is still to be recovered.
    past: Option<Arc<Past>>,
    /// A line could not be written: there will be no other.
    broken: bool,
}

impl Journal {
    /// Opens the journal at this path for a worker of this group and these topics, and reads what a former life has left.
    pub(super) fn open(path: &Path, group: &GroupName, topics: &[Topic], boot: &str) -> Result<Self> {
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
            // Lines may be missing: nothing can be told from those that are there.
            parts.clear();
        }
        parts.sort_by_key(|(_, part)| part.number);
        let last = parts.last().map(|(index, part)| (*index, part.number, part.length));
        let (current, number, length) = last.unwrap_or_default();
        let past = Past::of(parts.into_iter().map(|(_, part)| part)).map(Arc::new);
        let (me, most, needed_for, broken) = (None, LONG, 0, false);
        let mut open = Open { files, current, number, length, most, needed_for, me, past, broken };
        let ready = match last {
            // A line that was never finished is cut off: what follows must not be read as its end.
            Some(_) => open.cut(),
            None => open.empty().and_then(|()| open.begin(0, &journal.about)),
        };
        ready.map_err(|error| journal.trouble("cannot be written", error))?;
        *journal.lock() = Some(open);
        Ok(journal)
    }

    /// Names the worker whose starts are written from now on. Before it is a member of its group.
    pub(super) fn join(&self, me: &WorkerId) -> Result<()> {
        self.write(|open| {
            open.me = Some(me.clone());
            open.workers()
        })
    }

    /// Says that these messages are about to start. An error means that they must not.
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
            .map_err(|error| self.trouble("cannot be written, and without that no message may start", error))
    }

    /// What a former life has left, until it is recovered.
    pub(super) fn past(&self) -> Option<Arc<Past>> {
        self.lock().as_ref().and_then(|open| open.past.clone())
    }

    /// Nothing is left of what a former life had claimed.
    pub(super) fn recovered(&self) {
        if let Some(open) = &mut *self.lock() {
            open.past = None;
        }
    }

    /// Goes on in the other file if this one is long and nobody needs the other any more. To be called by who takes claims in
    /// hand, with the oldest ticket in hand and the last one given.
    pub(super) fn tidy(&self, oldest: Option<Ticket>, last: Ticket) {
        let mut open = self.lock();
        let Some(open) = open.as_mut().filter(|open| open.length >= open.most && !open.broken) else {
            return;
        };
        let is_needed = open.past.is_some() || oldest.is_some_and(|oldest| oldest <= open.needed_for);
        if is_needed {
            return;
        }
        let other = 1 - open.current;
        let begun = match &open.files[other] {
            Some(_) => Ok(()),
            None => self.file(other).map(|file| open.files[other] = Some(file)),
        };
        let trouble = |error| self.trouble("cannot be made shorter", error);
        match begun.and_then(|()| open.begin(other, &self.about).map_err(trouble)) {
            Ok(()) => open.needed_for = last,
            Err(error) => {
                // It goes on growing, which is no harm for a while.
                tracing::warn!(%error, "the journal keeps growing for now");
                open.most = open.length.saturating_mul(2);
            }
        }
    }

    /// Everything that was claimed is closed or given back: there is nothing to be known any more.
    pub(super) fn finish(&self) {
        if let Some(open) = self.lock().as_mut().filter(|open| open.past.is_none()) {
            // If that fails, the next life finds that it has nothing to recover.
            let _ = open.empty();
        }
    }

    /// Lets go of the files. Nothing can be started after this.
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
            self.trouble(what, error)
        })?;
        if !file.metadata().is_ok_and(|metadata| metadata.is_file()) {
            let what = format!("journal {} is not a plain file: name one", self.path.display());
            return Err(Error::invalid(what));
        }
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::Error(error)) => Err(self.trouble("cannot be locked", error)),
            Err(TryLockError::WouldBlock) => {
                let path = self.path.display();
                Err(Error::new(
                    ErrorKind::InUse,
                    format!("journal {path} is used by another worker: each needs a file of its own"),
                ))
            }
        }
    }

    /// What a file says. One that is not a journal, or another's, is an error, and stays as it is.
    fn read(&self, index: usize, mut file: &File) -> Result<Content> {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| self.trouble("cannot be read", error))?;
        let path = self.path_of(index);
        let path = path.display();
        if !bytes.contains(&b'\n') && MAGIC.as_bytes().starts_with(&bytes[..bytes.len().min(MAGIC.len())]) {
            // Not even its first line was finished, so that nothing was started under it.
            return Ok(Content::Nothing);
        }
        // A last line that was not finished belongs to a start that never was.
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

    fn trouble(&self, what: &str, error: std::io::Error) -> Error {
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
    /// Adds lines to the current file: all of them, or none, and then never any again.
    fn append(&mut self, lines: &str) -> io::Result<()> {
        let Some(mut file) = self.files[self.current].as_ref() else { return Ok(()) };
        match file.write_all(lines.as_bytes()) {
            Ok(()) => {
                self.length += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                self.broken = true;
                // What did get there would speak of messages that are not started.
                let _ = self.cut();
                Err(error)
            }
        }
    }

    /// Cuts off what is not a finished line of the current file.
    fn cut(&self) -> io::Result<()> {
        self.files[self.current].as_ref().map_or(Ok(()), |file| file.set_len(self.length))
    }

    fn empty(&self) -> io::Result<()> {
        self.files.iter().flatten().try_for_each(|file| file.set_len(0))
    }

    /// Begins one of the files anew, and goes on there.
    fn begin(&mut self, index: usize, about: &str) -> io::Result<()> {
        let Some(mut file) = self.files[index].as_ref() else { return Ok(()) };
        let number = self.number + 1;
        let lines = format!("{MAGIC} {number} {about}\n{}", self.workers());
        file.set_len(0)?;
        file.write_all(lines.as_bytes()).inspect_err(|_| _ = file.set_len(0))?;
        (self.current, self.number, self.length) = (index, number, lines.len() as u64);
        Ok(())
    }

    /// The line that names the workers whose claims can be recovered by what the journal says.
    fn workers(&self) -> String {
        let past = self.past.iter().flat_map(|past| &past.workers);
        let names: String = past.chain(&self.me).map(|worker| format!(" {worker}")).collect();
        if names.is_empty() { names } else { format!("{WORKERS}{names}\n") }
    }
}

/// What one of the files says.
enum Content {
    /// Nothing that counts.
    Nothing,
    Part(Part),
    /// It cannot be told what it said.
    Damaged,
}

struct Part {
    number: u64,
    /// How much of it is finished lines.
    length: u64,
    /// The last that were named.
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

impl Past {
    /// What these parts say together, in the order in which they were written; nothing if they speak for nobody.
    fn of(parts: impl Iterator<Item = Part>) -> Option<Self> {
        let mut past = Self::default();
        for part in parts {
            past.workers = part.workers.unwrap_or(past.workers);
            past.started.extend(part.started);
        }
        (!past.workers.is_empty()).then_some(past)
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
