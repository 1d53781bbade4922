//! How a command fails: the exit code that scripts rely on, and a message that says what to do.

use std::fmt;
use std::io;
use std::process::ExitCode;

use sawmill::ErrorKind;

/// What scripts can tell from the exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// Whoever read our output has gone: there is nothing to say, and nobody to say it to.
    Quiet = 0,
    /// The operation failed.
    Failed = 1,
    /// Wrong usage or configuration.
    Usage = 2,
    /// The store could not be reached.
    Unreachable = 3,
    /// What was named does not exist.
    NotFound = 4,
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    /// It is the store's, and people want to know which one's.
    is_of_store: bool,
}

impl Failure {
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { code: Code::Failed, message: message.into(), is_of_store: false }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { code: Code::Usage, message: message.into(), is_of_store: false }
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self { code: Code::NotFound, message: message.into(), is_of_store: false }
    }

    pub(crate) fn is_of_store(&self) -> bool {
        self.is_of_store
    }

    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// The same failure, and where it happened.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// The same failure, which another store than the usual one has to answer for.
    #[cfg(feature = "deliver")]
    pub(crate) fn of_other_store(mut self, place: impl fmt::Display) -> Self {
        self.is_of_store = false;
        self.at(place)
    }

    /// The same failure, and what else is to be said of it.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.message += more;
        self
    }

    /// Says why on stderr, and gives the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        if self.code != Code::Quiet {
            let red = anstyle::AnsiColor::Red.on_default().bold();
            anstream::eprintln!("{red}error{red:#}: {}", self.message);
        }
        ExitCode::from(self.code as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<sawmill::Error> for Failure {
    fn from(error: sawmill::Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Invalid | ErrorKind::Unsupported => Code::Usage,
            ErrorKind::NotFound => Code::NotFound,
            ErrorKind::Unavailable | ErrorKind::Unknown => Code::Unreachable,
            _ => Code::Failed,
        };
        let is_of_store = matches!(
            error.kind(),
            ErrorKind::Unavailable
                | ErrorKind::Unknown
                | ErrorKind::Full
                | ErrorKind::Corrupt
                | ErrorKind::Outdated
        );
        Self { code, message: error.to_string(), is_of_store }
    }
}

/// Something went wrong with our output: with input, say which.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => {
                Self { code: Code::Quiet, message: String::new(), is_of_store: false }
            }
            _ => Self::failed(format!("the output could not be written: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_an_error_tells_the_exit_code() {
        for (kind, code) in [
            (ErrorKind::Invalid, Code::Usage),
            (ErrorKind::Unsupported, Code::Usage),
            (ErrorKind::NotFound, Code::NotFound),
            (ErrorKind::Unavailable, Code::Unreachable),
            (ErrorKind::Unknown, Code::Unreachable),
            (ErrorKind::Full, Code::Failed),
            (ErrorKind::Corrupt, Code::Failed),
            (ErrorKind::Outdated, Code::Failed),
            (ErrorKind::TooLarge, Code::Failed),
            (ErrorKind::InUse, Code::Failed),
        ] {
            assert_eq!(Failure::from(sawmill::Error::new(kind, "x")).code(), code, "{kind:?}");
        }
    }
}
