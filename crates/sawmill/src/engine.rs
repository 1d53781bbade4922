//! Engines: how a store is found by its URL, and what it says it can do.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Error, ErrorKind, Result};
use crate::ledger::Ledger;
use crate::log::Log;
use crate::message::{MAX_HEADER_BYTES, MAX_KEY_BYTES, Message};
use crate::topic::check_name;

/// A kind of store that can be opened by URL.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    /// What the engine is called, for messages to people.
    fn name(&self) -> &'static str;

    /// What its URLs begin with, without the colon.
    fn scheme(&self) -> &'static str;

    /// What its logs can do.
    fn capabilities(&self) -> Capabilities;

    /// Opens the store, creating or migrating what it needs.
    async fn open(&self, url: &StoreUrl, namespace: &Namespace) -> Result<Store>;
}

/// An open store: a log, a ledger, or both.
#[derive(Clone, Default)]
pub struct Store {
    /// Where messages live, if the engine can keep them.
    pub log: Option<Arc<dyn Log>>,
    /// Who has done what, if the engine can keep it.
    pub ledger: Option<Arc<dyn Ledger>>,
}

/// What an engine's log can do, and its limits. Asking for more is refused before the engine is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The most bytes a payload may have.
    pub max_payload_bytes: usize,
    /// Appending a message whose id is there already changes nothing.
    pub idempotent_append: bool,
    /// A handler's own writes and the mark that its message is done can be one transaction.
    pub exactly_once: bool,
    /// How often a worker with nothing to do should look for messages nevertheless, unless it is told otherwise: seldom
    /// where hints of new messages can be relied on.
    pub idle_poll: Duration,
}

impl Capabilities {
    /// Refuses a message that is over a limit, naming the limit.
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

/// Keeps installations apart that share one store: letters, digits, `.`, `_` and `-`. The default is `default`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Namespace(String);

impl Namespace {
    /// The name.
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

/// Where a store is: `scheme:rest`. Shown without its password.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    colon: usize,
}

impl StoreUrl {
    /// What stands before the colon.
    pub fn scheme(&self) -> &str {
        &self.text[..self.colon]
    }

    /// What stands after the colon.
    pub fn rest(&self) -> &str {
        &self.text[self.colon + 1..]
    }

    /// The whole text, password and all: for the engine's driver, not for people.
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

/// A part of a URL with `***` in place of what may be a password: all between the first `:` and the last `@`, also where neither
/// should be, and the values of settings whose names sound like secrets.
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

/// Finds the engine for this URL and opens it.
pub(crate) async fn open(engines: &[Arc<dyn Engine>], url: &str, namespace: &Namespace) -> Result<Store> {
    let known: Vec<String> = engines.iter().map(|engine| format!("{}:", engine.scheme())).collect();
    let advice = format!("URLs may begin with {}", known.join(", "));
    let url: StoreUrl = url.parse().map_err(|error| Error::invalid(format!("{error} ({advice})")))?;
    match engines.iter().find(|engine| engine.scheme() == url.scheme()) {
        Some(engine) => engine.open(&url, namespace).await,
        None => Err(Error::invalid(format!("no engine here opens {url}: {advice}"))),
    }
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
