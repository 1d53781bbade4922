//! One error type for the library: what kind of thing went wrong, whether trying again may help, and a
//! message that says what to do.

use std::fmt;

/// What the library's functions return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What kind of thing went wrong, for callers that decide by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller passed something that can never work: a broken name, a wrong URL, settings that contradict.
    Invalid,
    /// A payload, key or set of headers is over the engine's limit.
    TooLarge,
    /// The topic, message or dead letter that was named does not exist.
    NotFound,
    /// It exists already, with other settings.
    Exists,
    /// Another uses it, and only one can: a journal belongs to one worker at a time.
    InUse,
    /// The engine cannot do this at all; see [`Capabilities`](crate::Capabilities).
    Unsupported,
    /// The store could not be reached, or is busy. Nothing was written.
    Unavailable,
    /// The request was sent and no answer came back. It may or may not have taken effect.
    Unknown,
    /// The store has no room left. Nothing was written.
    Full,
    /// What is stored is not what this version can read: a foreign or damaged file, or a newer schema.
    Corrupt,
    /// The stored data has a newer format than this program understands. Upgrade the program.
    Outdated,
    /// Messages that are to be read again are no longer in the log.
    Gone,
    /// A hook of the program's own failed.
    Hook,
    /// The answer to a job came when it was not wanted any more.
    Late,
}

/// Something that went wrong, said so that the reader knows what to do about it.
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// An error of this kind. The message says what was wrong and what to do.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error, with what caused it.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// True if the same call may succeed later without anybody changing anything.
    pub fn may_pass(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Unknown | ErrorKind::Full | ErrorKind::InUse)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
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

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}
