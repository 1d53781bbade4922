//! How a command fails: the exit code that scripts rely on, and a message that says what to do.

use std::fmt;
use std::io;
use std::process::ExitCode;

use sawmill::ErrorKind;

/// The exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    /// The reader of our output has closed it: no message, and success.
    Quiet = 0,
    /// The operation failed.
    Failed = 1,
    /// Wrong usage or configuration.
    Usage = 2,
    /// The store could not be reached.
    Unreachable = 3,
    /// The named thing does not exist.
    NotFound = 4,
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) struct Failure {
    code: Code,
    message: String,
    /// The store caused it, so the message should name the store.
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

    /// Puts the place before the message.
    pub(crate) fn at(mut self, place: impl fmt::Display) -> Self {
        self.message = format!("{place}: {}", self.message);
        self
    }

    /// Marks a failure of another store than the main one, and puts its name before the message.
    #[cfg(feature = "deliver")]
    pub(crate) fn of_other_store(mut self, place: impl fmt::Display) -> Self {
        self.is_of_store = false;
        self.at(place)
    }

    /// Appends to the message.
    pub(crate) fn and(mut self, more: &str) -> Self {
        self.message += more;
        self
    }

    /// Prints the message on stderr and returns the exit code.
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

/// An I/O error of our output. Input errors need a message that says which input.
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
