//! Engines: the trait by which a store is opened, its URL, and the capabilities and limits of an engine.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::model::{MAX_HEADER_BYTES, MAX_KEY_BYTES, Message, check_name};
use crate::storage::{Ledger, Log};
use crate::{Error, ErrorKind, Result};

/// A kind of store that can be opened by URL.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// Returns the engine's name, for messages to people.
    fn name(&self) -> &'static str;

    /// Returns the scheme of the engine's URLs, without the colon.
    fn scheme(&self) -> &'static str;

    /// Returns the capabilities of the engine's logs.
    fn capabilities(&self) -> Capabilities;

    /// Opens the store, and creates or migrates whatever it needs.
    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<OpenedStore>;
}

/// An open store: a log, a ledger, or both.
#[derive(Clone, Default)]
pub struct OpenedStore {
    /// The log, if the engine can keep messages.
    pub log: Option<Arc<dyn Log>>,
    /// The ledger, if the engine can record the progress of workers.
    pub ledger: Option<Arc<dyn Ledger>>,
}

/// The abilities and limits of an engine's log. A request that exceeds them is refused before the engine is
/// called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The maximum size of a payload in bytes.
    pub max_payload_bytes: usize,
    /// Appending a message whose id is in the topic already changes nothing.
    pub idempotent_append: bool,
    /// A handler's own writes and the mark that its message is done can be committed in one transaction.
    pub exactly_once: bool,
    /// The interval at which an idle worker polls for messages, unless it is configured otherwise. It is long
    /// where notifications of new messages are reliable.
    pub idle_poll: Duration,
}

impl Capabilities {
    /// Returns an error that names the limit if the message exceeds one.
    pub fn check(&self, message: &Message) -> Result<()> {
        let key = message.key.as_ref().map_or(0, |key| key.len());
        for (what, size, limit) in [
            ("payload", message.payload.len(), self.max_payload_bytes),
            ("key", key, MAX_KEY_BYTES),
            ("set of headers", message.headers.size(), MAX_HEADER_BYTES),
        ] {
            if size > limit {
                return Err(Error::new(
                    ErrorKind::TooLarge,
                    format!(
                        "the {what} has {size} bytes, and the limit is {limit}: store it elsewhere and push a reference to it"
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// The namespace that separates installations in a shared store. It consists of letters, digits, `.`, `_` and
/// `-`. The default is `default`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace(String);

impl Namespace {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl FromStr for Namespace {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        check_name("namespace", text, 40)?;
        Ok(Self(text.to_owned()))
    }
}

/// The URL of a store: `scheme:rest`. It is displayed without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    colon: usize,
}

impl StoreUrl {
    /// Returns the part before the colon.
    pub fn scheme(&self) -> &str {
        &self.text[..self.colon]
    }

    /// Returns the part after the colon.
    pub fn rest(&self) -> &str {
        &self.text[self.colon + 1..]
    }

    /// Returns the whole text including the password. For the engine's driver, not for display.
    pub fn with_password(&self) -> &str {
        &self.text
    }
}

impl FromStr for StoreUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let colon = text.find(':').filter(|colon| {
            let scheme = &text[..*colon];
            !scheme.is_empty()
                && scheme.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '+')
        });
        match colon {
            Some(colon) => Ok(Self { text: text.to_owned(), colon }),
            None => Err(Error::invalid(
                "the store's URL does not begin with the name of an engine and a colon: write it like memory: or ENGINE:PLACE",
            )),
        }
    }
}

/// Replaces possible passwords in a part of a URL by `***`: everything between the first `:` and the last
/// `@`, even where neither belongs, and the values of settings whose names suggest a secret.
fn without_secrets(rest: &str) -> String {
    let (place, settings) =
        rest.split_once('?').map_or((rest, None), |(place, settings)| (place, Some(settings)));
    let password = place.rfind('@').and_then(|at| Some((place[..at].find(':')?, at)));
    let place = password
        .map_or_else(|| place.to_owned(), |(colon, at)| format!("{}:***{}", &place[..colon], &place[at..]));
    let Some(settings) = settings else { return place };
    let is_secret =
        |name: &str| ["pass", "secret", "token", "key"].iter().any(|part| name.to_lowercase().contains(part));
    let shown = settings.split('&').map(|setting| match setting.split_once('=') {
        Some((name, _)) if is_secret(name) => format!("{name}=***"),
        _ => setting.to_owned(),
    });
    format!("{place}?{}", shown.collect::<Vec<_>>().join("&"))
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scheme(), without_secrets(self.rest()))
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Decodes the percent-encoding of a part of a URL. Not by the crate `percent-encoding`, which lets malformed text pass.
///
/// ```
/// use sawmill_engine::storage::percent_decode;
///
/// assert_eq!(percent_decode("p%40ss")?, "p@ss");
/// assert!(percent_decode("50%").is_err());
/// # Ok::<(), sawmill_engine::Error>(())
/// ```
pub fn percent_decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        match (digit(), digit()) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => {
                return Err(Error::invalid(
                    "after % two hexadecimal digits are needed: write % itself as %25",
                ));
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid("percent-encoded text must be UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("postgres://me:secret@host/db", "postgres://me:***@host/db"),
            ("postgres://me:se@cret@host:1/db", "postgres://me:***@host:1/db"),
            ("postgres://me@host/db", "postgres://me@host/db"),
            ("postgres://u:se/cret@h/db", "postgres://u:***@h/db"),
            ("postgres:u:secret@h/db", "postgres:u:***@h/db"),
            ("postgres:/u:secret@h/db", "postgres:/u:***@h/db"),
            ("postgres://u@h/db?a=1&password=secret", "postgres://u@h/db?a=1&password=***"),
            ("postgres://u@h/db?sslpassword=secret", "postgres://u@h/db?sslpassword=***"),
            ("sqlite:/srv/a@b.db", "sqlite:/srv/a@b.db"),
        ] {
            let url: StoreUrl = text.parse().unwrap();
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), shown);
            assert_eq!(url.with_password(), text);
        }
    }

    #[test]
    fn what_is_no_url_is_refused_without_repeating_it() {
        for text in ["", "jobs.db", ":x", "my:pass word@host", "C:\\jobs"] {
            match text.parse::<StoreUrl>() {
                Ok(url) => {
                    assert_eq!((text, url.scheme()), ("my:pass word@host", "my"), "only this looks like one")
                }
                Err(error) => assert!(error.to_string().contains("ENGINE:PLACE"), "{error}"),
            }
        }
    }
}
