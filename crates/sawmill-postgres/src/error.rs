//! What PostgreSQL answers, said in Sawmill's words: of what kind it is, and what to do about it.

use sawmill::{Error, ErrorKind};
use tokio_postgres::error::{Severity, SqlState};

/// Why a call was not done.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was refused, and nothing was written.
    Refused(Error),
    /// The server, or the way to it, failed.
    Database(tokio_postgres::Error),
    /// No answer came in time.
    Silence,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Failure::Database(error)
    }
}

/// Whether a call changes anything: then its end may be uncertain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
}

impl Failure {
    /// The error of a call that failed like this.
    pub(crate) fn explain(self, effect: Effect) -> Error {
        let unknown = |why: &str| {
            Error::new(
                ErrorKind::Unknown,
                format!("it is not certain whether the database has taken the write: {why}"),
            )
        };
        match (self, effect) {
            (Failure::Refused(error), _) => error,
            (Failure::Silence, Effect::Writes) => unknown("no answer came in time"),
            (Failure::Silence, Effect::Reads) => {
                Error::new(ErrorKind::Unavailable, "the database gave no answer in time; try again")
            }
            (Failure::Database(error), effect) => match (state_of(&error), effect) {
                (Some(state), _) => explain_state(state, &said(&error)),
                // The connection ended, with or without a last word: it may have ended after the commit.
                (None, Effect::Writes) => unknown(&said(&error)),
                (None, Effect::Reads) => Error::new(
                    ErrorKind::Unavailable,
                    format!("the connection to the database was lost; try again ({})", said(&error)),
                ),
            },
        }
    }

    /// True if the server says that a table or a function of ours is not there.
    pub(crate) fn is_missing(&self) -> bool {
        let missing = [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION];
        self.state().is_some_and(|state| missing.contains(state))
    }

    /// True if the connection is gone. An idle one may have been cut long ago: what only reads may be asked again.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self, Self::Database(error) if error.is_closed())
    }

    /// True if others held a lock for too long.
    pub(crate) fn is_locked(&self) -> bool {
        self.state().is_some_and(|state| *state == SqlState::LOCK_NOT_AVAILABLE)
    }

    fn state(&self) -> Option<&SqlState> {
        match self {
            Failure::Database(error) => state_of(error),
            _ => None,
        }
    }
}

/// The code of an error after which the connection lives, so that the transaction is certainly undone. Not one of class 08:
/// by these a pooler says that its own connection to the server has ended.
fn state_of(error: &tokio_postgres::Error) -> Option<&SqlState> {
    let error = error.as_db_error()?;
    match error.parsed_severity() {
        Some(Severity::Fatal | Severity::Panic) => None,
        _ if error.code().code().starts_with("08") => None,
        _ => Some(error.code()),
    }
}

/// What went wrong, without the statement and its values.
fn said(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} [{}]", error.message(), error.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// The error of a statement that the server answered with this code, and said this.
pub(crate) fn explain_state(state: &SqlState, said: &str) -> Error {
    let (kind, advice) = match *state {
        SqlState::DISK_FULL | SqlState::OUT_OF_MEMORY => {
            (ErrorKind::Full, "there is no room left for the database; make room, then try again")
        }
        SqlState::INSUFFICIENT_PRIVILEGE => (
            ErrorKind::Invalid,
            "the user may not do this; grant it CREATE on the database, or the rights to the schema and its tables",
        ),
        SqlState::IN_FAILED_SQL_TRANSACTION => {
            (ErrorKind::Invalid, "the transaction has failed before this; roll it back")
        }
        SqlState::READ_ONLY_SQL_TRANSACTION => {
            (ErrorKind::Unavailable, "the server takes no writes: it is a standby, or set to read only")
        }
        SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::LOCK_NOT_AVAILABLE
        | SqlState::QUERY_CANCELED
        | SqlState::TOO_MANY_CONNECTIONS
        | SqlState::CONFIGURATION_LIMIT_EXCEEDED => {
            (ErrorKind::Unavailable, "the database could not do it just now; try again")
        }
        SqlState::UNDEFINED_TABLE | SqlState::INVALID_SCHEMA_NAME | SqlState::UNDEFINED_COLUMN => (
            ErrorKind::Corrupt,
            "a table of Sawmill's is not there or is another version's; restore it, or open a new namespace",
        ),
        SqlState::PROGRAM_LIMIT_EXCEEDED => {
            (ErrorKind::TooLarge, "this is more than PostgreSQL can take at once")
        }
        ref other if other.code().starts_with("53") || other.code().starts_with("57") => {
            (ErrorKind::Unavailable, "the database could not do it just now; try again")
        }
        _ => (
            ErrorKind::Corrupt,
            "the database does not hold what it should, or lacks something that is needed",
        ),
    };
    Error::new(kind, format!("{advice} ({said})"))
}

/// The error of a connection that could not be made.
pub(crate) fn explain_connect(error: &tokio_postgres::Error, place: &str) -> Error {
    let state = error.as_db_error().map(|error| error.code().clone());
    let (kind, advice) = match state {
        Some(SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
            (ErrorKind::Invalid, "the server refuses the user: check the user, the password, and pg_hba.conf")
        }
        Some(SqlState::INVALID_CATALOG_NAME) => {
            (ErrorKind::Invalid, "there is no such database: create it, or name another one in the URL")
        }
        Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
            (ErrorKind::Invalid, "the user may not connect to this database: grant it CONNECT")
        }
        Some(_) => (ErrorKind::Unavailable, "the server takes no connection just now; try again"),
        // The driver has no code of its own for a password that was asked for and not given.
        None if said(error).contains("password missing") => {
            (ErrorKind::Invalid, "the server wants a password: write it in the URL after the user")
        }
        None if said(error).contains("does not support TLS") => (
            ErrorKind::Invalid,
            "the server does not encrypt: set ssl = on there, or choose another sslmode if the way to it is safe",
        ),
        None if said(error).contains("certificate") => (
            ErrorKind::Invalid,
            "the server's certificate is not one to trust: check the host, and sslrootcert in the URL",
        ),
        None => (
            ErrorKind::Unavailable,
            "the server cannot be reached: check that it runs, its host and its port",
        ),
    };
    Error::new(kind, format!("{place}: {advice} ({})", said(error)))
}

/// The error of something stored that cannot be understood.
pub(crate) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("the database holds {what}, which this version did not write; restore it from a backup"),
    )
}
