//! The write-ahead log as a file: synced here, after the commit, and not by SQLite within it.
//!
//! SQLite commits with `synchronous = NORMAL`: that writes the log and leaves it to the system to bring it to the disk.
//! Whoever waits for a write that must last is answered when the file was synced, so the promise is the same. But what was
//! committed can be seen meanwhile, and a worker can get ready for a message while the disk is at it. A power failure undoes
//! what was not synced from its end, never something in the middle: so what was written because of it goes with it.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The write-ahead log of a database that is open. SQLite keeps the file as long as somebody has the database open, and
/// has no locks on it that closing it here could drop.
pub(crate) struct Wal {
    path: PathBuf,
    file: Option<File>,
}

impl Wal {
    /// That of the database at this path.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        // As SQLite does it: by the file itself, wherever the process goes and whatever links lead there.
        let mut path = OsString::from(path.canonicalize()?);
        path.push("-wal");
        Ok(Self { path: path.into(), file: None })
    }

    /// Has the disk keep everything that was committed.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(OpenOptions::new().read(true).write(true).open(&self.path)?),
        };
        file.sync_data()
    }
}
