//! Handler for pushes: one message or many, each with key, due time, headers and a unique name. An
//! idempotency key makes a push safe to repeat.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use sawmill::engine::storage::Capabilities;
use sawmill::{Error, ErrorKind, MessageId, Producer, Push, Timestamp};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use crate::answer::{Answer, Problem, not_null, read, seconds};
use crate::body::Reservation;
use crate::guard::Caller;
use crate::{App, locked};

/// The maximum number of messages in one push.
const MAX_MESSAGES: usize = 10_000;
/// The maximum length of an idempotency key, and the maximum delay in seconds.
const LONGEST_KEY: usize = 128;
const LONGEST_DELAY: f64 = 100.0 * 365.25 * 86_400.0;

/// One message, or many.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(default, deserialize_with = "not_too_many")]
    messages: Option<Vec<Box<RawValue>>>,
    #[serde(default, deserialize_with = "not_null")]
    payload: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "not_null")]
    payload_base64: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    key: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    at: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    delay_seconds: Option<f64>,
    #[serde(default, deserialize_with = "not_null")]
    headers: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "not_null")]
    unique: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    unique_seconds: Option<f64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageBody {
    #[serde(default, deserialize_with = "not_null")]
    payload: Option<Box<RawValue>>,
    #[serde(default, deserialize_with = "not_null")]
    payload_base64: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    key: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    at: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    delay_seconds: Option<f64>,
    #[serde(default, deserialize_with = "not_null")]
    headers: Option<BTreeMap<String, String>>,
    #[serde(default, deserialize_with = "not_null")]
    unique: Option<String>,
    #[serde(default, deserialize_with = "not_null")]
    unique_seconds: Option<f64>,
}

impl Body {
    fn messages(self) -> Answer<Vec<MessageBody>> {
        let Body {
            messages,
            payload,
            payload_base64,
            key,
            at,
            delay_seconds,
            headers,
            unique,
            unique_seconds,
        } = self;
        let one =
            MessageBody { payload, payload_base64, key, at, delay_seconds, headers, unique, unique_seconds };
        let Some(messages) = messages else { return Ok(vec![one]) };
        if !one.is_empty() {
            return Err(Problem::bad(
                "there are \"messages\" and beside them fields of a single one",
                "put everything into \"messages\"",
            ));
        }
        if messages.is_empty() {
            return Err(Problem::bad("\"messages\" is empty", "push at least one"));
        }
        let read = |(nth, one): (usize, Box<RawValue>)| {
            read(one.get().as_bytes()).map_err(|problem| problem.of_message(nth))
        };
        messages.into_iter().enumerate().map(read).collect()
    }
}

/// Deserializes a list of messages. Stops at the limit: a body has space for millions of empty messages.
fn not_too_many<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<Box<RawValue>>>, D::Error> {
    struct Messages;

    impl<'de> Visitor<'de> for Messages {
        type Value = Vec<Box<RawValue>>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(out, "a list of at most {MAX_MESSAGES} messages")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
            let mut messages = Vec::new();
            while let Some(message) = list.next_element()? {
                if messages.len() == MAX_MESSAGES {
                    let many = format!("more than {MAX_MESSAGES} messages are too many at once");
                    return Err(A::Error::custom(many));
                }
                messages.push(message);
            }
            Ok(messages)
        }
    }

    from.deserialize_seq(Messages).map(Some)
}

impl MessageBody {
    fn is_empty(&self) -> bool {
        self.payload.is_none()
            && self.payload_base64.is_none()
            && self.key.is_none()
            && self.at.is_none()
            && self.delay_seconds.is_none()
            && self.headers.is_none()
            && self.unique.is_none()
            && self.unique_seconds.is_none()
    }

    fn push(self) -> Answer<Push> {
        let mut push = Push::new(payload(self.payload, self.payload_base64)?);
        if let Some(key) = self.key {
            push = push.key(key);
        }
        push = match (self.at, self.delay_seconds) {
            (None, None) => push,
            (Some(at), None) => push.at(time("at", &at)?),
            (None, Some(delay)) => push.after(seconds("delay_seconds", delay, LONGEST_DELAY)?),
            (Some(_), Some(_)) => {
                return Err(Problem::bad("it has both \"at\" and \"delay_seconds\"", "choose one"));
            }
        };
        push = match (self.unique, self.unique_seconds) {
            (None, None) => push,
            (Some(name), None) => push.unique(name),
            (Some(name), Some(period)) => {
                push.unique_for(name, seconds("unique_seconds", period, LONGEST_DELAY)?)
            }
            (None, Some(_)) => {
                return Err(Problem::bad(
                    "it has \"unique_seconds\" without \"unique\"",
                    "name it in \"unique\"",
                ));
            }
        };
        let headers = self.headers.unwrap_or_default();
        Ok(headers.into_iter().fold(push, |push, (name, value)| push.header(name, value)))
    }
}

impl Problem {
    fn of_message(self, nth: usize) -> Self {
        Self { error: format!("message {nth}: {}", self.error), ..self }
    }
}

/// Takes a JSON string as text, and any other value as its JSON source.
fn payload(json: Option<Box<RawValue>>, base64: Option<String>) -> Answer<Bytes> {
    match (json, base64) {
        (Some(json), None) if json.get().starts_with('"') => {
            let text = serde_json::from_str::<String>(json.get());
            text.map(Bytes::from).map_err(|error| {
                let what = format!("\"payload\" is no text: {error}");
                Problem::bad(what, "send text as Unicode, and bytes in \"payload_base64\"")
            })
        }
        (Some(json), None) => Ok(json.get().to_owned().into()),
        (None, Some(base64)) => BASE64_STANDARD.decode(base64).map(Bytes::from).map_err(|error| {
            Problem::bad(
                format!("\"payload_base64\" is no base64: {error}"),
                "use the standard alphabet, padded",
            )
        }),
        (None, None) => Err(Problem::bad("there is no \"payload\"", "send one; an empty one is \"\"")),
        (Some(_), Some(_)) => {
            Err(Problem::bad("there are both \"payload\" and \"payload_base64\"", "choose one"))
        }
    }
}

/// Parses an RFC 3339 time.
pub(crate) fn time(name: &str, text: &str) -> Answer<Timestamp> {
    let millis = text.parse::<jiff::Timestamp>().ok().and_then(|time| time.as_millisecond().try_into().ok());
    millis.map(Timestamp::from_millis).ok_or_else(|| {
        Problem::bad(
            format!("\"{name}\" is no time after 1970: {text:?}"),
            "write it like 2026-11-15T08:00:00Z",
        )
    })
}

/// Returns the idempotency key of a request, if there is one.
fn idempotency_key(headers: &HeaderMap) -> Answer<Option<&str>> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(None) };
    match key.to_str() {
        Ok(key)
            if (1..=LONGEST_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            Ok(Some(key))
        }
        _ => Err(Problem::bad(
            "the Idempotency-Key cannot be used",
            format!("use from 1 to {LONGEST_KEY} visible ASCII characters"),
        )),
    }
}

/// Derives the id that the ids of all messages of a push with this key follow from. The server therefore
/// stores nothing about the push: when it is repeated, its messages get the ids that are already in the log.
/// The caller is part of the id, so that callers do not share keys.
fn root(caller: &Caller, topic: &str, key: &str) -> MessageId {
    let holder = if let Caller::KeyHolder(access_key) = caller { access_key.id.as_str() } else { "" };
    let mut hash = Sha256::new();
    for part in ["sawmill", "idempotency", holder, topic, key] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    // The id begins with a zero timestamp, because nothing records when the key was first used.
    let bits = hash.finalize().iter().take(10).fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    MessageId::from_u128(bits)
}

/// Returns a problem if the store cannot detect that a message was already added.
fn check_idempotent(able: Capabilities) -> Answer<()> {
    if able.idempotent_append {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "this store cannot tell whether a push came before, so an Idempotency-Key would promise too much",
        "leave it out and have workers know what they have done, or make each message unique",
    ))
}

pub(crate) async fn push(
    State(app): State<Arc<App>>,
    Extension(caller): Extension<Caller>,
    Extension(reservation): Extension<Arc<Reservation>>,
    Path(topic): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Answer {
    let key = idempotency_key(&headers)?;
    if key.is_some() {
        check_idempotent(app.mill.capabilities())?;
    }
    let root = key.map(|key| root(&caller, &topic, key));
    let messages = read::<Body>(&body)?.messages()?;
    let mut pushes = Vec::with_capacity(messages.len());
    for (nth, one) in messages.into_iter().enumerate() {
        let is_unique = one.unique.is_some();
        let mut push = one.push().map_err(|problem| problem.of_message(nth))?;
        if let Some(root) = root {
            if is_unique {
                return Err(Problem::bad(
                    format!("message {nth} is unique, and the request has an Idempotency-Key"),
                    "choose one: a unique message is not added twice either",
                ));
            }
            // Each message has its own id, so that a repeated push adds the messages that an interrupted push
            // did not.
            push = push.follows(root, &nth.to_string());
        }
        pushes.push(push);
    }
    // A push that has begun goes on when the client hangs up. Its memory stays reserved until the store has
    // it. Otherwise, clients that repeat their requests while the store is stuck would fill the memory.
    let (answer, answered) = oneshot::channel();
    let doing = app.clone();
    app.env.spawn(async move {
        let ids = push_all(&doing, &topic, pushes).await;
        drop(reservation);
        // The receiver is gone if the client has hung up.
        let _ = answer.send(ids);
    });
    let stopped = |_| Error::new(ErrorKind::Unknown, "the server stopped before it was done");
    let ids = answered.await.map_err(stopped)??;
    Ok((StatusCode::CREATED, Json(json!({ "ids": ids }))).into_response())
}

async fn push_all(app: &App, topic: &str, mut pushes: Vec<Push>) -> sawmill::Result<Vec<MessageId>> {
    match pushes.len() {
        1 => Ok(vec![producer(app, topic).await?.push(pushes.remove(0)).await?]),
        _ => app.mill.push_many(topic, pushes).await,
    }
}

async fn producer(app: &App, topic: &str) -> sawmill::Result<Producer> {
    if let Some(producer) = locked(&app.producers).get(topic) {
        return Ok(producer.clone());
    }
    let producer = app.mill.producer(topic).await?;
    Ok(locked(&app.producers).entry(topic.to_owned()).or_insert(producer).clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_that_cannot_tell_takes_no_idempotency_key() {
        let able = sawmill::Sawmill::open("memory:").await.unwrap().capabilities();
        assert!(check_idempotent(able).is_ok());
        let refused = check_idempotent(Capabilities { idempotent_append: false, ..able }).unwrap_err();
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    }

    #[test]
    fn no_more_is_read_than_may_be_pushed_at_once() {
        let body =
            |count: usize| format!(r#"{{"messages":[{}]}}"#, vec![r#"{"payload":0}"#; count].join(","));
        let read = |count: usize| read::<Body>(body(count).as_bytes());
        assert_eq!(read(MAX_MESSAGES).unwrap().messages().unwrap().len(), MAX_MESSAGES);
        let problem = read(MAX_MESSAGES + 1).err().unwrap();
        assert_eq!(problem.status, StatusCode::BAD_REQUEST);
        assert!(problem.error.contains("more than 10000 messages"), "{}", problem.error);
    }
}
