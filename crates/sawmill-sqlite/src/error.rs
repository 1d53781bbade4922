//! Maps SQLite errors to Sawmill errors, with their kind and what to do about them.

use rusqlite::ErrorCode;
use rusqlite::ffi::SQLITE_IOERR_SHMSIZE;
use sawmill_engine::{Error, ErrorKind};

/// Why work failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Refused before any write: the transaction may continue without it.
    Refused(Error),
    /// SQLite failed, possibly after some writes: the transaction must not be committed.
    Storage(rusqlite::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Failure::Storage(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => error,
            Failure::Storage(error) => explain(&error),
        }
    }
}

/// Explains the error of a call that failed and has written nothing.
pub(crate) fn explain(error: &rusqlite::Error) -> Error {
    const NO_ROOM: &str = "there is no room left for the database; make room, then try again";
    let (kind, said) = match error.sqlite_error_code() {
        // The shared-memory file could not grow.
        Some(_) if extended_code(error) == Some(SQLITE_IOERR_SHMSIZE) => (ErrorKind::Full, NO_ROOM),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            (ErrorKind::Unavailable, "the database is in use by another process; try again")
        }
        Some(ErrorCode::DiskFull) => (ErrorKind::Full, NO_ROOM),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            (ErrorKind::Corrupt, "the file is damaged, or is no SQLite database; restore it from a backup")
        }
        Some(
            ErrorCode::ReadOnly | ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied,
        ) => (ErrorKind::Invalid, "the database cannot be written; allow writing to the file and its folder"),
        Some(ErrorCode::CannotOpen) => (
            ErrorKind::Invalid,
            "the database cannot be opened; check that the file and its folder exist and may be written",
        ),
        Some(ErrorCode::TooBig) => (ErrorKind::TooLarge, "this is more than SQLite can store in one row"),
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::OutOfMemory
            | ErrorCode::OperationInterrupted
            | ErrorCode::OperationAborted
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::SchemaChanged,
        ) => (ErrorKind::Unavailable, "the database could not be used just now; try again"),
        // All other codes mean that tables or values are not those that this version made.
        _ => (ErrorKind::Corrupt, "the database does not hold what it should; restore it from a backup"),
    };
    Error::new(kind, format!("{said} ({error})"))
}

fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}

/// Explains the error of a failed `COMMIT`.
///
/// If the last write or sync of the write-ahead log fails, a crash may still leave the commit there. All
/// other failures come before the commit is complete.
pub(crate) fn explain_commit(error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure) => unknown(&format!("({error})")),
        _ => explain(error),
    }
}

/// The error of a write whose outcome is unknown.
pub(crate) fn unknown(why: &str) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!("it is not certain whether the database has taken the write {why}"),
    )
}

/// The error of a database whose last commits may not be on disk.
pub(crate) fn in_doubt(why: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the last writes are not safely on disk, and the database is blocked until they are ({why}): check the disk"
        ),
    )
}

/// The error of stored data that cannot be decoded.
pub(crate) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("the database holds {what}, which this version did not write; restore it from a backup"),
    )
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn each_answer_of_sqlite_has_its_kind() {
        for (code, kind) in [
            (ffi::SQLITE_BUSY, ErrorKind::Unavailable),
            (ffi::SQLITE_BUSY_SNAPSHOT, ErrorKind::Unavailable),
            (ffi::SQLITE_LOCKED, ErrorKind::Unavailable),
            (ffi::SQLITE_FULL, ErrorKind::Full),
            (ffi::SQLITE_IOERR_SHMSIZE, ErrorKind::Full),
            (ffi::SQLITE_CORRUPT, ErrorKind::Corrupt),
            (ffi::SQLITE_NOTADB, ErrorKind::Corrupt),
            (ffi::SQLITE_READONLY, ErrorKind::Invalid),
            (ffi::SQLITE_CANTOPEN, ErrorKind::Invalid),
            (ffi::SQLITE_TOOBIG, ErrorKind::TooLarge),
            (ffi::SQLITE_IOERR_READ, ErrorKind::Unavailable),
            (ffi::SQLITE_CONSTRAINT_PRIMARYKEY, ErrorKind::Corrupt),
            (ffi::SQLITE_ERROR, ErrorKind::Corrupt),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(explain(&error).kind(), kind, "{error}");
        }
    }

    #[test]
    fn only_a_commit_that_broke_while_writing_is_unknown() {
        for (code, kind) in [
            (ffi::SQLITE_IOERR_FSYNC, ErrorKind::Unknown),
            (ffi::SQLITE_FULL, ErrorKind::Full),
            (ffi::SQLITE_BUSY, ErrorKind::Unavailable),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            assert_eq!(explain_commit(&error).kind(), kind, "{error}");
        }
    }
}
