//! Maps errors of PostgreSQL to Sawmill's errors: their kind, and advice on what to do.

use sawmill_engine::{Error, ErrorKind};
use tokio_postgres::error::{Severity, SqlState};

/// The reason why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The call was refused, and nothing was written.
    Refused(Error),
    /// The server or the connection to it failed.
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

/// The effect of a call. The outcome of one that writes may be unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
}

impl Failure {
    /// Returns the error for this failure.
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
                (Some(state), _) => explain_state(state, &describe(&error)),
                // The connection ended, with or without a last message. It may have ended after the commit.
                (None, Effect::Writes) => unknown(&describe(&error)),
                (None, Effect::Reads) => Error::new(
                    ErrorKind::Unavailable,
                    format!("the connection to the database was lost; try again ({})", describe(&error)),
                ),
            },
        }
    }

    /// Returns true if the server reports that one of our tables or functions is missing.
    pub(crate) fn is_missing(&self) -> bool {
        let missing = [SqlState::UNDEFINED_TABLE, SqlState::UNDEFINED_FUNCTION];
        self.state().is_some_and(|state| missing.contains(state))
    }

    /// Returns true if the connection is lost. An idle one may have been lost long ago, so reads may be tried
    /// again.
    pub(crate) fn is_disconnected(&self) -> bool {
        matches!(self, Self::Database(error) if error.is_closed())
    }

    /// Returns true if others held a lock for too long.
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

/// Returns the code of an error after which the connection is still alive, so the transaction is certainly
/// rolled back. Class 08 is excluded: a pooler uses it to report that its own connection to the server was
/// lost.
fn state_of(error: &tokio_postgres::Error) -> Option<&SqlState> {
    let error = error.as_db_error()?;
    match error.parsed_severity() {
        Some(Severity::Fatal | Severity::Panic) => None,
        _ if error.code().code().starts_with("08") => None,
        _ => Some(error.code()),
    }
}

/// Describes the error without the statement and its values.
fn describe(error: &tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(error) => format!("{} [{}]", error.message(), error.code().code()),
        None => match std::error::Error::source(error) {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// Returns the error for a statement that the server rejected with this code and message.
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

/// Returns the error for a failed connection attempt.
pub(crate) fn explain_connect(error: &tokio_postgres::Error, redacted_url: &str) -> Error {
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
        // The driver has no code for a missing password.
        None if describe(error).contains("password missing") => {
            (ErrorKind::Invalid, "the server wants a password: write it in the URL after the user")
        }
        None if describe(error).contains("does not support TLS") => (
            ErrorKind::Invalid,
            "the server does not encrypt: set ssl = on there, or choose another sslmode if the way to it is safe",
        ),
        None if describe(error).contains("certificate") => (
            ErrorKind::Invalid,
            "the server's certificate is not one to trust: check the host, and sslrootcert in the URL",
        ),
        None => (
            ErrorKind::Unavailable,
            "the server cannot be reached: check that it runs, its host and its port",
        ),
    };
    Error::new(kind, format!("{redacted_url}: {advice} ({})", describe(error)))
}

/// Returns the error for stored data that cannot be decoded.
pub(crate) fn corrupt(what: impl std::fmt::Display) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("the database holds {what}, which this version did not write; restore it from a backup"),
    )
}
