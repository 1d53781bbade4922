//! A message as it is printed.

use std::collections::BTreeMap;

use sawmill::engine::model::Failure;
use sawmill::{Message, Timestamp};
use serde::Serialize;

use crate::terminal::text::{self, text_or_base64};

/// The fields that every command prints for a message.
#[derive(Debug, Serialize)]
pub(crate) struct MessageShown {
    pub(crate) id: String,
    pub(crate) topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    pub(crate) payload_bytes: u64,
    pub(crate) pushed_at: String,
    pub(crate) due_at: Option<String>,
    #[serde(skip)]
    message: Message,
}

impl MessageShown {
    /// The message as it was pushed, even if `message` is a copy of it (a retry or a dead letter).
    pub(crate) fn new(topic: impl ToString, message: Message) -> Self {
        let (key, key_base64) = message.key.as_ref().map_or((None, None), |key| text_or_base64(key));
        let (payload, payload_base64) = text_or_base64(&message.payload);
        let mut headers = BTreeMap::new();
        for (name, value) in message.own_headers().iter() {
            // If a name occurs several times, handlers get the first value, and so does the output.
            headers.entry(name.to_owned()).or_insert_with(|| String::from_utf8_lossy(value).into_owned());
        }
        let is_copy = message.origin() != message.id;
        Self {
            id: message.origin().to_string(),
            topic: topic.to_string(),
            key: key.map(str::to_owned),
            key_base64,
            headers,
            payload: payload.map(str::to_owned),
            payload_base64,
            payload_bytes: message.payload.len() as u64,
            pushed_at: text::rfc3339(message.created),
            // The due time of a copy is that of its retry, not of the message.
            due_at: message.due.filter(|_| !is_copy).map(text::rfc3339),
            message,
        }
    }

    /// The key for people; empty if the message has none.
    pub(crate) fn key_preview(&self, most: usize) -> String {
        self.message.key.as_ref().map_or_else(String::new, |key| text::preview(key, most))
    }

    pub(crate) fn payload_preview(&self, most: usize) -> String {
        text::preview(&self.message.payload, most)
    }

    pub(crate) fn pushed(&self) -> Timestamp {
        self.message.created
    }

    /// The fields as names and values for people.
    pub(crate) fn fields(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let mut rows = vec![("id", self.id.clone()), ("topic", self.topic.clone())];
        if self.message.key.is_some() {
            rows.push(("key", self.key_preview(200)));
        }
        rows.push(("pushed", text::date(self.message.created, now)));
        if let Some(due) = self.message.due.filter(|_| self.due_at.is_some()) {
            rows.push(("due", text::date(due, now)));
        }
        let header =
            |(name, value): (&String, &String)| format!("{name}={}", text::preview(value.as_bytes(), 200));
        if !self.headers.is_empty() {
            rows.push(("headers", self.headers.iter().map(header).collect::<Vec<_>>().join("\n")));
        }
        let size = text::size(self.payload_bytes);
        rows.push(("payload", format!("{} ({size})", self.payload_preview(500)).trim_start().to_owned()));
        rows
    }
}

/// A failed attempt as it is printed.
#[derive(Debug, Serialize)]
pub(crate) struct FailureShown {
    attempt: u32,
    at: String,
    worker: String,
    error: String,
    #[serde(skip)]
    time: Timestamp,
}

impl From<Failure> for FailureShown {
    fn from(failure: Failure) -> Self {
        Self {
            attempt: failure.attempt,
            at: text::rfc3339(failure.at),
            worker: failure.worker,
            error: failure.error,
            time: failure.at,
        }
    }
}

impl FailureShown {
    /// The whole failure for people: a heading, then the error text.
    pub(crate) fn for_people(&self, now: Timestamp) -> String {
        let what = match self.attempt {
            0 => "not the handler's fault".to_owned(),
            attempt => format!("attempt {attempt}"),
        };
        let mut lines = vec![format!("{what}, {}, by {}", text::date(self.time, now), self.worker)];
        lines.extend(self.error.lines().map(|line| format!("  {}", text::printable(line))));
        lines.join("\n")
    }

    pub(crate) fn error(&self) -> &str {
        &self.error
    }
}
