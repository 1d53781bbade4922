//! Maps the driver's errors to Sawmill's: the kind, and what to do about it.

use std::error::Error as StdError;
use std::fmt::Display;

use sawmill_engine::{Error, ErrorKind};
use scylla::errors::{DbError, ExecutionError, NewSessionError, PrepareError, RequestAttemptError};

/// Why a statement failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was refused or never sent: it has changed nothing and will not.
    Refused(Error),
    /// The outcome is unknown: it may have been applied, may still be, or never.
    Unknown(String),
}

impl Failure {
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Failure::Unknown(_))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

/// Converts the failure of a write.
impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => error,
            Failure::Unknown(why) => unknown(why),
        }
    }
}

/// The error of a write whose outcome is unknown.
pub(crate) fn unknown(why: impl Display) -> Error {
    Error::new(
        ErrorKind::Unknown,
        format!("it is not certain whether the database has taken the write ({why})"),
    )
}

/// Converts the failure of a read: an unknown outcome changes nothing, so the read can be repeated.
pub(crate) fn of_read(failure: Failure) -> Error {
    match failure {
        Failure::Refused(error) => error,
        Failure::Unknown(why) => unavailable(why),
    }
}

fn unavailable(why: impl Display) -> Error {
    Error::new(ErrorKind::Unavailable, format!("the database could not be used just now; try again ({why})"))
}

/// The error of stored data that cannot be decoded.
pub(crate) fn corrupt(what: impl Display) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!("the database holds {what}, which this version did not write; restore it from a backup"),
    )
}

impl From<ExecutionError> for Failure {
    fn from(error: ExecutionError) -> Self {
        match &error {
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(said, why)) => {
                of_database(said, why)
            }
            ExecutionError::LastAttemptError(
                RequestAttemptError::UnableToAllocStreamId | RequestAttemptError::SerializationError(_),
            )
            | ExecutionError::EmptyPlan
            | ExecutionError::ConnectionPoolError(_)
            | ExecutionError::PrepareError(_) => Failure::Refused(unavailable(&error)),
            ExecutionError::BadQuery(_) => Failure::Refused(corrupt(format!("tables ({error})"))),
            _ => Failure::Unknown(error.to_string()),
        }
    }
}

/// Converts the error of a lightweight transaction. Its last step may report too few live nodes or an
/// overload after the transaction was decided, so these leave the outcome unknown.
pub(crate) fn of_transaction(error: ExecutionError) -> Failure {
    match &error {
        ExecutionError::LastAttemptError(RequestAttemptError::DbError(
            DbError::Unavailable { .. } | DbError::Overloaded | DbError::RateLimitReached { .. },
            _,
        )) => Failure::Unknown(error.to_string()),
        _ => error.into(),
    }
}

/// Returns whether the connection broke before the answer arrived.
pub(crate) fn is_cut(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::LastAttemptError(RequestAttemptError::BrokenConnectionError(_)))
}

impl From<PrepareError> for Failure {
    fn from(error: PrepareError) -> Self {
        match &error {
            PrepareError::AllAttemptsFailed { first_attempt: RequestAttemptError::DbError(said, why) } => {
                of_database(said, why)
            }
            _ => Failure::Refused(unavailable(&error)),
        }
    }
}

fn of_database(said: &DbError, why: &str) -> Failure {
    let (kind, advice) = match said {
        DbError::Unauthorized => (
            ErrorKind::Invalid,
            "the user may not do this; grant CREATE, SELECT and MODIFY on the keyspace, or let a user with these rights open the store first",
        ),
        DbError::AuthenticationError => {
            (ErrorKind::Invalid, "the server refuses the user or the password; check both in the store's URL")
        }
        DbError::Invalid if why.to_lowercase().contains("keyspace") && why.contains("exist") => (
            ErrorKind::Invalid,
            "the keyspace does not exist; create it, correct its name in the store's URL, or add ?replication=3 to have it made",
        ),
        DbError::ConfigError => (
            ErrorKind::Invalid,
            "the server refuses the settings of the keyspace; correct `replication` in the store's URL",
        ),
        DbError::Invalid if why.contains("too large") => {
            (ErrorKind::TooLarge, "this is more than the server takes at once; raise its max_mutation_size")
        }
        DbError::Invalid if why.to_lowercase().contains("guardrail") => {
            (ErrorKind::Invalid, "the server's operator has set a limit that forbids this; have it raised")
        }
        DbError::Unavailable { .. } => (
            ErrorKind::Unavailable,
            "too few nodes are alive for the consistency that is asked for; try again",
        ),
        DbError::Overloaded | DbError::IsBootstrapping | DbError::RateLimitReached { .. } => {
            (ErrorKind::Unavailable, "the node is busy; try again")
        }
        DbError::WriteTimeout { .. }
        | DbError::WriteFailure { .. }
        | DbError::ReadTimeout { .. }
        | DbError::ReadFailure { .. }
        | DbError::ServerError
        | DbError::Other(_) => return Failure::Unknown(format!("{said}: {why}")),
        // All other errors mean that the tables are not those that this version created.
        _ => (ErrorKind::Corrupt, "the keyspace does not hold what it should; restore it from a backup"),
    };
    Failure::Refused(Error::new(kind, format!("{advice} ({why})")))
}

/// Converts the error of a session that could not be opened.
pub(crate) fn of_session(error: &NewSessionError) -> Error {
    let mut said = error.to_string();
    let mut cause: Option<&dyn StdError> = error.source();
    while let Some(inner) = cause {
        if let Some(RequestAttemptError::DbError(db, why)) = inner.downcast_ref() {
            return of_read(of_database(db, why));
        }
        said = inner.to_string();
        cause = inner.source();
    }
    let lower = format!("{error} {said}").to_lowercase();
    if lower.contains("authenticat") || lower.contains("credentials") {
        return Error::new(
            ErrorKind::Invalid,
            format!(
                "the server refuses the user or the password, or wants one; check both in the store's URL ({said})"
            ),
        );
    }
    if lower.contains("certificate") {
        return Error::new(
            ErrorKind::Invalid,
            format!("the server's certificate is refused; check ssl-ca and the host's name ({said})"),
        );
    }
    Error::new(
        ErrorKind::Unavailable,
        format!("no node of the database can be reached; check hosts and ports, and that they run ({error})"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_has_its_kind() {
        let timeout = ExecutionError::RequestTimeout(std::time::Duration::from_secs(1));
        assert!(Failure::from(timeout).is_unknown());
        for (said, why, kind) in [
            (DbError::Unauthorized, "no", ErrorKind::Invalid),
            (DbError::Invalid, "Keyspace 'x' does not exist", ErrorKind::Invalid),
            (DbError::Invalid, "Mutation is too large", ErrorKind::TooLarge),
            (DbError::Invalid, "Guardrail tables violated: too many", ErrorKind::Invalid),
            (DbError::Overloaded, "", ErrorKind::Unavailable),
            (DbError::SyntaxError, "", ErrorKind::Corrupt),
            (DbError::ServerError, "", ErrorKind::Unknown),
        ] {
            let error: Error = of_database(&said, why).into();
            assert_eq!(error.kind(), kind, "{said:?} {why}");
        }
    }

    #[test]
    fn a_lightweight_transaction_may_be_done_though_the_answer_is_a_refusal() {
        let of = |said| ExecutionError::LastAttemptError(RequestAttemptError::DbError(said, "no".to_owned()));
        let unavailable = || DbError::Unavailable {
            consistency: scylla::frame::types::Consistency::Quorum,
            required: 2,
            alive: 1,
        };
        assert!(
            !Failure::from(of(unavailable())).is_unknown(),
            "a plain write is refused before it is sent on"
        );
        for said in [unavailable(), DbError::Overloaded] {
            assert!(of_transaction(of(said)).is_unknown());
        }
        assert!(!of_transaction(of(DbError::Unauthorized)).is_unknown());
    }
}
