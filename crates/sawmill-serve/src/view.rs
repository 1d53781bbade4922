//! JSON views of messages, dead letters, workers and topics. The fields are the same as in the program's
//! `--json` output.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use sawmill::Message;
use sawmill::admin::{DeadLetter, WorkerInfo};
use sawmill::engine::model::{Failure, RunningMessage, Topic};
use serde::Serialize;

/// The number of characters of a payload that a list shows.
const PREVIEW: usize = 200;

#[derive(Debug, Serialize)]
pub(crate) struct TopicView {
    topic: String,
    shards: u16,
    retention_seconds: f64,
    drops_unread: bool,
}

impl From<Topic> for TopicView {
    fn from(topic: Topic) -> Self {
        Self {
            topic: topic.name.to_string(),
            shards: topic.shards,
            retention_seconds: topic.retention.as_secs_f64(),
            drops_unread: topic.drops_unread,
        }
    }
}

/// A message as it was pushed, even if this is a copy of it.
#[derive(Debug, Serialize)]
pub(crate) struct MessageView {
    pub(crate) id: String,
    topic: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    headers: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) payload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    payload_bytes: u64,
    pushed_at: String,
    due_at: Option<String>,
}

impl MessageView {
    pub(crate) fn new(topic: &str, message: &Message) -> Self {
        let (key, key_base64) = message.key.as_ref().map_or((None, None), |key| text_or_base64(key));
        let (payload, payload_base64) = text_or_base64(&message.payload);
        let mut headers = BTreeMap::new();
        for (name, value) in message.own_headers().iter() {
            // Handlers also get the first value of a name.
            headers.entry(name.to_owned()).or_insert_with(|| String::from_utf8_lossy(value).into_owned());
        }
        let is_copy = message.origin() != message.id;
        Self {
            id: message.origin().to_string(),
            topic: topic.to_owned(),
            key,
            key_base64,
            headers,
            payload,
            payload_base64,
            payload_bytes: message.payload.len() as u64,
            pushed_at: message.created.to_string(),
            // The due time of a copy is the time of its retry; the message itself has none.
            due_at: message.due.filter(|_| !is_copy).map(|due| due.to_string()),
        }
    }

    /// Cuts a long payload down to its beginning.
    pub(crate) fn shortened(mut self) -> Self {
        for text in [&mut self.payload, &mut self.payload_base64].into_iter().flatten() {
            if let Some((end, _)) = text.char_indices().nth(PREVIEW) {
                // Copies the beginning instead of truncating, which would keep the memory of the whole
                // payload.
                *text = text[..end].to_owned();
            }
        }
        self
    }
}

/// Returns bytes as text, or as base64 if they are not UTF-8.
pub(crate) fn text_or_base64(bytes: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(BASE64_STANDARD.encode(bytes))),
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct DeadLetterView {
    #[serde(flatten)]
    pub(crate) message: MessageView,
    group: String,
    pub(crate) reason: String,
    failed_attempts: u32,
    died_at: String,
    failures: Vec<FailureView>,
}

impl DeadLetterView {
    pub(crate) fn new(topic: &str, group: &str, letter: &DeadLetter) -> Self {
        let failures = letter.message.failures();
        // A dead letter has no time of its own. It is written when the last attempt ends.
        let died = failures.last().map_or(letter.message.created, |failure| failure.at);
        Self {
            message: MessageView::new(topic, &letter.message),
            group: group.to_owned(),
            reason: letter.reason().to_owned(),
            failed_attempts: letter.message.failed_attempts(),
            died_at: died.to_string(),
            failures: failures.into_iter().map(FailureView::from).collect(),
        }
    }

    pub(crate) fn shortened(mut self) -> Self {
        self.message = self.message.shortened();
        self
    }

    /// Returns true if the text occurs in the id, key, payload or reason.
    pub(crate) fn contains_text(&self, text: &str) -> bool {
        let text = text.to_lowercase();
        let message = &self.message;
        [Some(&message.id), message.key.as_ref(), message.payload.as_ref(), Some(&self.reason)]
            .into_iter()
            .flatten()
            .any(|field| field.to_lowercase().contains(&text))
    }
}

#[derive(Debug, Serialize)]
struct FailureView {
    attempt: u32,
    at: String,
    worker: String,
    error: String,
}

impl From<Failure> for FailureView {
    fn from(failure: Failure) -> Self {
        Self {
            attempt: failure.attempt,
            at: failure.at.to_string(),
            worker: failure.worker,
            error: failure.error,
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct WorkerView {
    worker: String,
    group: String,
    topics: Vec<String>,
    concurrency: u32,
    claimed: u64,
    last_heartbeat_at: Option<String>,
    ttl_seconds: f64,
    running: Vec<RunningView>,
}

#[derive(Debug, Serialize)]
struct RunningView {
    id: String,
    topic: String,
    since: String,
    note: String,
}

impl From<RunningMessage> for RunningView {
    fn from(running: RunningMessage) -> Self {
        Self {
            id: running.id.to_string(),
            topic: running.topic,
            since: running.since.to_string(),
            note: running.note,
        }
    }
}

impl From<WorkerInfo> for WorkerView {
    fn from(member: WorkerInfo) -> Self {
        Self {
            worker: member.id.to_string(),
            group: member.group.to_string(),
            topics: member.topics,
            concurrency: member.concurrency,
            claimed: member.claimed,
            last_heartbeat_at: member.last_heartbeat.map(|heartbeat| heartbeat.to_string()),
            ttl_seconds: member.ttl.as_secs_f64(),
            running: member.running.into_iter().map(RunningView::from).collect(),
        }
    }
}
