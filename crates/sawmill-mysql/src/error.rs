//! Maps errors of the server and of connections to Sawmill's errors: their kind, and advice on what to do.

use mysql_async::ServerError;
use sawmill_engine::{Error, ErrorKind};

/// Names for the relevant error codes of the server.
pub(crate) mod code {
    pub(crate) const TOO_MANY_CONNECTIONS: u16 = 1040;
    pub(crate) const NO_RIGHTS_TO_DATABASE: u16 = 1044;
    pub(crate) const WRONG_PASSWORD: u16 = 1045;
    pub(crate) const NO_SUCH_DATABASE: u16 = 1049;
    pub(crate) const DUPLICATE: u16 = 1062;
    pub(crate) const TABLE_FULL: u16 = 1114;
    pub(crate) const NO_RIGHTS_TO_TABLE: u16 = 1142;
    pub(crate) const NO_SUCH_TABLE: u16 = 1146;
    pub(crate) const PACKET_TOO_LARGE: u16 = 1153;
    pub(crate) const LOCK_WAIT: u16 = 1205;
    pub(crate) const DEADLOCK: u16 = 1213;
    pub(crate) const NO_RIGHTS_TO_SERVER: u16 = 1227;
}

/// The reason why a piece of work failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The work was refused: nothing was or will be written.
    Refused(Error),
    /// The server returned an error: nothing was or will be written.
    Server(ServerError),
    /// The connection broke or timed out before the work could be committed.
    Lost(String),
    /// The connection broke or timed out during the commit.
    Unknown(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Refused(error)
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(error) => error,
            Failure::Server(error) => explain(&error),
            Failure::Lost(why) => Error::new(
                ErrorKind::Unavailable,
                format!("the connection to the database was lost; try again ({why})"),
            ),
            Failure::Unknown(why) => Error::new(
                ErrorKind::Unknown,
                format!("it is not certain whether the database has taken the write ({why})"),
            ),
        }
    }
}

impl Failure {
    /// Returns the server's error code, if the server returned an error.
    pub(crate) fn code(&self) -> Option<u16> {
        match self {
            Failure::Server(error) => Some(error.code),
            _ => None,
        }
    }

    /// Returns true if two transactions collided, so trying again helps.
    pub(crate) fn is_collision(&self) -> bool {
        matches!(self.code(), Some(code::DEADLOCK | code::LOCK_WAIT))
    }

    /// Returns the failure of a commit. If the commit was killed or the connection broke, the server may have
    /// committed nevertheless.
    pub(crate) fn of_commit(self) -> Self {
        match self {
            Failure::Lost(why) => Failure::Unknown(why),
            Failure::Server(error) if !is_certain(error.code) => Failure::Unknown(error.to_string()),
            failure => failure,
        }
    }
}

/// Returns true if a statement with this error, even a commit, has certainly changed nothing.
fn is_certain(code: u16) -> bool {
    // Disk full, syntax, unknown column, read-only (three codes), value too long: all are reported before a
    // commit begins.
    const BEFORE: [u16; 8] = [1021, 1054, 1064, 1290, 1406, 1792, 1836, 3100];
    let known = [
        code::NO_RIGHTS_TO_DATABASE,
        code::DUPLICATE,
        code::TABLE_FULL,
        code::NO_RIGHTS_TO_TABLE,
        code::NO_SUCH_TABLE,
        code::PACKET_TOO_LARGE,
        code::LOCK_WAIT,
        code::DEADLOCK,
    ];
    BEFORE.contains(&code) || known.contains(&code)
}

/// Returns the error for an error code of the server.
pub(crate) fn explain(error: &ServerError) -> Error {
    let (kind, said) = match error.code {
        code::WRONG_PASSWORD | 1698 | 1862 | 3118 | 3955 => {
            (ErrorKind::Invalid, "the server refuses the user or the password; check both in the store's URL")
        }
        code::NO_SUCH_DATABASE => (
            ErrorKind::Invalid,
            "the database does not exist; create it, or correct its name in the store's URL",
        ),
        code::NO_RIGHTS_TO_DATABASE | code::NO_RIGHTS_TO_TABLE | 1143 | code::NO_RIGHTS_TO_SERVER | 1370 => (
            ErrorKind::Invalid,
            "the user may not do this; grant CREATE, ALTER, DROP, INDEX, SELECT, INSERT, UPDATE and DELETE on the database",
        ),
        code::DEADLOCK | code::LOCK_WAIT => {
            (ErrorKind::Unavailable, "the database is busy: others held what this needed; try again")
        }
        code::TOO_MANY_CONNECTIONS | 1203 | 1226 | 1129 => (
            ErrorKind::Unavailable,
            "the server takes no more connections; try again, or raise max_connections",
        ),
        1290 | 1792 | 1836 => (
            ErrorKind::Unavailable,
            "the database cannot be written just now; is this a replica, or set to read-only?",
        ),
        1021 | code::TABLE_FULL => {
            (ErrorKind::Full, "there is no room left for the database; make room, then try again")
        }
        code::PACKET_TOO_LARGE => {
            (ErrorKind::TooLarge, "this is more than the server takes at once; raise its max_allowed_packet")
        }
        // Shutting down, killed, interrupted, out of memory or time.
        1037
        | 1038
        | 1041
        | 1053
        | 1077
        | 1079
        | 1080
        | 1152
        | 1158..=1161
        | 1184
        | 1317
        | 1927
        | 1969
        | 3024 => (ErrorKind::Unavailable, "the database could not be used just now; try again"),
        1286 | 1289 => (
            ErrorKind::Unsupported,
            "the server has no InnoDB, and without transactions nothing is safe; turn it on",
        ),
        1665 => (
            ErrorKind::Unsupported,
            "the server logs statements, which does not go with READ COMMITTED; set binlog_format to ROW or MIXED",
        ),
        // All other codes mean tables or values that this version did not create.
        _ => (ErrorKind::Corrupt, "the database does not hold what it should; restore it from a backup"),
    };
    Error::new(kind, format!("{said} ({error})"))
}

/// Returns the error for a failed connection attempt.
pub(crate) fn explain_connect(error: &mysql_async::Error) -> Error {
    use mysql_async::{DriverError, IoError};
    match error {
        mysql_async::Error::Server(error) => explain(error),
        mysql_async::Error::Driver(DriverError::NoClientSslFlagFromServer) => Error::new(
            ErrorKind::Unsupported,
            "the server offers no encryption, and ssl-mode asks for it: set the server up for it, or leave ssl-mode out",
        ),
        mysql_async::Error::Io(IoError::Io(io)) => match refused_certificate(io) {
            Some(why) => Error::new(
                ErrorKind::Invalid,
                format!("the server's certificate is refused; check ssl-ca and the host's name ({why})"),
            ),
            None => unreachable(&io.to_string()),
        },
        error => unreachable(&error.to_string()),
    }
}

/// Returns why a certificate was rejected, if that is the error.
fn refused_certificate(io: &std::io::Error) -> Option<&rustls::CertificateError> {
    match io.get_ref()?.downcast_ref()? {
        rustls::Error::InvalidCertificate(why) => Some(why),
        _ => None,
    }
}

/// Returns the error for a server that does not answer.
pub(crate) fn unreachable(why: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!(
            "the database server cannot be reached; check the host and the port, and that it runs ({why})"
        ),
    )
}

/// Returns the error for stored data that cannot be decoded.
pub(crate) fn corrupt(what: impl std::fmt::Display) -> Failure {
    Failure::Refused(Error::new(
        ErrorKind::Corrupt,
        format!("the database holds {what}, which this version did not write; restore it from a backup"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16) -> ServerError {
        ServerError { code, message: "said".into(), state: "HY000".into() }
    }

    #[test]
    fn each_answer_of_the_server_has_its_kind() {
        for (code, kind) in [
            (code::WRONG_PASSWORD, ErrorKind::Invalid),
            (code::NO_SUCH_DATABASE, ErrorKind::Invalid),
            (code::NO_RIGHTS_TO_TABLE, ErrorKind::Invalid),
            (code::DEADLOCK, ErrorKind::Unavailable),
            (code::TOO_MANY_CONNECTIONS, ErrorKind::Unavailable),
            (1053, ErrorKind::Unavailable),
            (code::TABLE_FULL, ErrorKind::Full),
            (code::PACKET_TOO_LARGE, ErrorKind::TooLarge),
            (1286, ErrorKind::Unsupported),
            (1665, ErrorKind::Unsupported),
            (code::NO_SUCH_TABLE, ErrorKind::Corrupt),
        ] {
            assert_eq!(explain(&server(code)).kind(), kind, "{code}");
        }
    }

    #[test]
    fn a_commit_that_was_killed_is_unknown_and_one_that_was_refused_is_not() {
        for (code, unknown) in [(1317, true), (1927, true), (1180, true), (1213, false), (1062, false)] {
            let failure = Failure::Server(server(code)).of_commit();
            assert_eq!(matches!(failure, Failure::Unknown(_)), unknown, "{code}");
        }
        assert!(matches!(Failure::Lost(String::new()).of_commit(), Failure::Unknown(_)));
    }
}
