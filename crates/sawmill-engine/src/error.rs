//! The error type of the library. An error has a kind, says whether a retry may help, and has a message that
//! says what to do.

use std::fmt;

/// The result type of the library's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kind of an error, for callers that handle kinds differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed a value that can never work: a malformed name, a wrong URL, contradictory settings.
    Invalid,
    /// A payload, key or set of headers exceeds the engine's limit.
    TooLarge,
    /// The named topic, message or dead letter does not exist.
    NotFound,
    /// The object exists already, with other settings.
    Exists,
    /// The object is in use, and only one can use it at a time: a journal belongs to one worker, for example.
    InUse,
    /// The engine does not support this at all; see [`Capabilities`](crate::storage::Capabilities).
    Unsupported,
    /// The store could not be reached, or is busy. Nothing was written.
    Unavailable,
    /// The request was sent and no answer came back. It may or may not have taken effect.
    Unknown,
    /// The store has no room left. Nothing was written.
    Full,
    /// This version cannot read the stored data: a foreign or damaged file, or a newer schema.
    Corrupt,
    /// The stored data has a newer format than this program understands. Upgrade the program.
    Outdated,
    /// Messages that should be read again are no longer in the log.
    Gone,
    /// A hook that the program provided failed.
    Hook,
    /// The answer to a job came too late: it no longer counts.
    Late,
}

/// An error: its kind, a message that says what to do about it, and its cause if there is one.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// Creates an error of this kind. The message should say what was wrong and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// Adds the cause of the error.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns true if the same call may succeed later although nobody changes anything.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Full | ErrorKind::InUse)
    }

    /// Returns the error that caused this one, if there is one.
    pub fn get_ref(&self) -> Option<&(dyn std::error::Error + Send + Sync + 'static)> {
        self.source.as_deref()
    }

    /// Creates an error of kind [`Invalid`](ErrorKind::Invalid).
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.kind)
    }
}

/// As [`std::io::Error`] does: its text names the cause, so that the cause itself is not reported once more. Use
/// [`get_ref`](Error::get_ref) to look at it.
impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().and_then(|source| source.source())
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::io;

    use super::*;

    #[test]
    fn a_report_of_an_error_says_each_thing_once() {
        let root = Error::new(ErrorKind::Unavailable, "the disk is gone");
        let middle = io::Error::other(root);
        let error = Error::new(ErrorKind::Unavailable, "nothing was written").caused_by(middle);
        assert_eq!(error.to_string(), "nothing was written: the disk is gone");
        assert!(error.source().is_none(), "the text has named every cause");
        assert_eq!(error.get_ref().map(ToString::to_string).as_deref(), Some("the disk is gone"));
    }
}
