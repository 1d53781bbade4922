//! Checks the path and the file before SQLite opens it, and creates a new file with the right permissions. A
//! file that is not Sawmill's is refused without changing a byte.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use sawmill_engine::{Error, ErrorKind, Result};

use crate::error::explain;
use crate::schema::APPLICATION_ID;

/// SQLite's smallest page size in bytes; no database is smaller.
const SMALLEST_PAGE: u64 = 512;

/// Held while a file is created. Closing any handle on a file drops all locks of the process on it, so SQLite
/// must not open the new file before the creating handle is closed. For the same reason an existing file is
/// read through SQLite alone.
static CREATING: Mutex<()> = Mutex::new(());

/// Ensures that the path has a file that SQLite may open: an existing one of Sawmill's, or a new one.
pub(crate) fn prepare(path: &Path) -> Result<()> {
    let text = path.to_string_lossy();
    if text.is_empty() {
        return Err(Error::new(
            ErrorKind::Invalid,
            "the path of the database is empty: write sqlite:jobs.db",
        ));
    }
    if text == ":memory:" {
        return Err(Error::new(
            ErrorKind::Invalid,
            "SQLite is for durable stores: for one in memory, use memory:",
        ));
    }
    if text.starts_with("file:") {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{text}: SQLite's own URLs are not understood here: write the path of the file"),
        ));
    }
    let folder = folder_of(path);
    if !folder.is_dir() {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("there is no folder {} to keep the database in: create it first", folder.display()),
        ));
    }
    if path.is_dir() {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{} is a folder: name the file in it that is to be the database", path.display()),
        ));
    }
    if path.exists() && !path.is_file() {
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{} is no plain file: choose another path for the database", path.display()),
        ));
    }
    let _alone = CREATING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    create(path, &folder).map_err(|error| cannot(path, "created", error))?;
    refuse_foreign(path)
}

/// Returns the absolute path of an existing file, with links resolved.
pub(crate) fn canonical(path: &Path) -> Result<PathBuf> {
    path.canonicalize().map_err(|error| cannot(path, "found", error))
}

fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Creates the file with access for its owner only, unless it exists. SQLite gives its side files the same
/// permissions.
fn create(path: &Path, folder: &Path) -> io::Result<()> {
    if path.exists() {
        return Ok(());
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        // The directory entry must be as durable as the contents of the file.
        Ok(_) => File::open(folder)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn cannot(path: &Path, what: &str, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::Full,
        _ => ErrorKind::Invalid,
    };
    Error::new(
        kind,
        format!(
            "{} cannot be {what}: check that the file and its folder may be read and written",
            path.display()
        ),
    )
    .caused_by(error)
}

fn refuse_foreign(path: &Path) -> Result<()> {
    let no_database = || {
        Error::new(
            ErrorKind::Corrupt,
            format!(
                "{} is no SQLite database, and was left as it is: choose another path, or restore it from a backup",
                path.display()
            ),
        )
    };
    match fs::metadata(path).map_err(|error| cannot(path, "read", error))?.len() {
        0 => return Ok(()),
        // SQLite would treat some of these as empty.
        1..SMALLEST_PAGE => return Err(no_database()),
        _ => {}
    }
    match inspect(path) {
        Ok((APPLICATION_ID, _) | (0, 0)) => Ok(()),
        Ok(_) => Err(foreign(path)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => Err(no_database()),
        Err(error) => {
            let error = explain(&error);
            Err(Error::new(error.kind(), format!("{}: {error}", path.display())))
        }
    }
}

/// Reads the application id and the number of tables through a read-only connection.
fn inspect(path: &Path) -> rusqlite::Result<(i32, i64)> {
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.query_row(
        "SELECT application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id",
        [],
        |row| Ok((row.get(0)?, row.get(1)?)),
    )
}

/// The error of a database made by another program.
pub(crate) fn foreign(path: &Path) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{} is another program's database, and was left as it is: choose another path for Sawmill's",
            path.display()
        ),
    )
}
