//! Pushes: the builder by which a program says what to push, and its conversion to a message.

use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::headers::RESERVED_HEADER_PREFIX;
use super::unique::Unique;
use super::{Headers, Message, MessageId};
use crate::runtime::Timestamp;
use crate::{Error, Result};

/// A message to push: a payload and its settings.
///
/// ```
/// use std::time::Duration;
/// use sawmill::Push;
///
/// let reminder = Push::new("call Alice").key("alice").header("lang", "en").after(Duration::from_secs(3600));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Push {
    /// The key, if the message has one.
    pub key: Option<Bytes>,
    /// The payload.
    pub payload: Bytes,
    /// The headers.
    pub headers: Headers,
    /// The time from which the message may be started.
    pub due: Due,
    /// The unique name of the message, if it has one.
    pub unique: Option<Unique>,
    /// The id of the message; `None` to give it a new one.
    pub id: Option<MessageId>,
}

/// The time from which a message may be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// At once.
    Now,
    /// Not before this time.
    At(Timestamp),
    /// Not before this much time has passed since the push.
    After(Duration),
}

impl Push {
    /// Creates a message with this payload, due at once.
    pub fn new(payload: impl Into<Bytes>) -> Self {
        let (payload, headers) = (payload.into(), Headers::default());
        Self { key: None, payload, headers, due: Due::Now, unique: None, id: None }
    }

    /// Sets the key. Messages with the same key keep together, and in ordered groups keep their order.
    #[must_use]
    pub fn key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Adds a header. Names that begin with `sawmill-` are refused when the message is pushed.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.0.push((name.into(), value.into()));
        self
    }

    /// Sets the time before which the message must not be started.
    #[must_use]
    pub fn at(mut self, due: Timestamp) -> Self {
        self.due = Due::At(due);
        self
    }

    /// Sets the time that must pass after the push before the message may be started.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Due::After(delay);
        self
    }

    /// Makes the message unique: it is not added while a message with this name is live in the topic. The
    /// push then returns the id of the live message and drops the new one. A message is live until every
    /// group of the topic has settled it: it is done, or dead, or dropped. A message that waits for its next
    /// attempt is live. A dead letter that is retried is not unique again.
    ///
    /// Names are independent of [keys](Push::key). Each such push costs two small writes to the ledger.
    ///
    /// ```
    /// use sawmill::{Push, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("reports").await?;
    /// let first = mill.push("reports", Push::new("customer 7").unique("report-7")).await?;
    /// let second = mill.push("reports", Push::new("customer 7").unique("report-7")).await?;
    /// assert_eq!(first, second, "it waits already");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn unique(mut self, name: impl Into<String>) -> Self {
        self.unique = Some(Unique { name: name.into(), period: None });
        self
    }

    /// Makes the message unique for a period: it is not added within this time after a push with this name,
    /// whether or not that message is done by then. The push returns the id of the earlier message. The time
    /// is told by the pushers' clocks.
    #[must_use]
    pub fn unique_for(mut self, name: impl Into<String>, period: Duration) -> Self {
        self.unique = Some(Unique { name: name.into(), period: Some(period) });
        self
    }

    /// Derives the id of the message from another message and a purpose, so that it is the same message
    /// however often it is pushed. If a handler is run again, it pushes the message again, and the message is
    /// added once where the engine [can tell](crate::storage::Capabilities::idempotent_append). The topic
    /// knows the message until it is trimmed.
    ///
    /// The message cannot be [unique](Push::unique) as well.
    ///
    /// ```
    /// use sawmill::{Push, Sawmill};
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> sawmill::Result<()> {
    /// # let mill = Sawmill::open("memory:").await?;
    /// # mill.create_topic("orders").await?;
    /// # mill.create_topic("invoices").await?;
    /// let order = mill.push("orders", "3 planks").await?;
    /// let invoice = || Push::new("for 3 planks").follows(order, "invoice");
    /// let first = mill.push("invoices", invoice()).await?;
    /// assert_eq!(mill.push("invoices", invoice()).await?, first);
    /// assert_eq!(mill.admin().peek("invoices", "default", 10).await?.len(), 1, "it was added once");
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn follows(mut self, id: MessageId, purpose: &str) -> Self {
        // The prefix keeps these purposes apart from those of copies on lanes.
        self.id = Some(id.derive(&format!("follows: {purpose}")));
        self
    }

    /// Makes the message to append. Returns an error if its headers are not allowed.
    pub fn into_message(self, id: MessageId, now: Timestamp) -> Result<Message> {
        if let Some((name, _)) =
            self.headers.0.iter().find(|(name, _)| name.starts_with(RESERVED_HEADER_PREFIX))
        {
            return Err(Error::invalid(format!(
                "header {name:?}: names that begin with {RESERVED_HEADER_PREFIX:?} are the library's own; choose another name"
            )));
        }
        if self.headers.0.iter().any(|(name, _)| name.is_empty()) {
            return Err(Error::invalid("a header has an empty name; give it one"));
        }
        let due = match self.due {
            Due::Now => None,
            Due::At(due) => Some(due),
            Due::After(delay) => Some(now + delay),
        };
        Ok(Message { id, key: self.key, payload: self.payload, headers: self.headers, due, created: now })
    }
}

/// Payloads of typed values.
impl Push {
    /// Returns a message whose payload is this value as JSON. Handlers read it with `Json`.
    pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<Self> {
        let payload = serde_json::to_vec(value).map_err(|error| {
            let name = std::any::type_name::<T>();
            Error::invalid(format!("this {name} cannot be written as JSON")).caused_by(error)
        })?;
        Ok(Push::new(payload))
    }

    /// Returns a message whose payload is this protocol buffer. Handlers read it with `Proto`.
    #[cfg(feature = "prost")]
    pub fn proto<T: prost::Message>(message: &T) -> Self {
        Push::new(message.encode_to_vec())
    }
}

impl<T: Into<Bytes>> From<T> for Push {
    fn from(payload: T) -> Self {
        Push::new(payload)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn g18_a_value_is_pushed_as_json() {
        let push = Push::json(&vec![1, 2]).unwrap().key("k");
        assert_eq!(push, Push::new("[1,2]").key("k"));
        let error = Push::json(&BTreeMap::from([(vec![1], 2)])).unwrap_err().to_string();
        assert!(error.contains("cannot be written as JSON: key must be a string"), "{error}");
    }
}
