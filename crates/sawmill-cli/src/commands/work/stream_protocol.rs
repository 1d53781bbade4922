//! The protocol of a worker with a streaming command: one JSON object per line.

use std::collections::BTreeMap;

use sawmill::{Context, Outcome};
use serde::{Deserialize, Serialize};

use crate::terminal::text::text_or_base64;

/// A message for the command. Values that are not text are sent in base64 in other fields.
#[derive(Debug, Serialize)]
struct Sent<'a> {
    id: &'a str,
    topic: &'a str,
    group: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    attempt: u32,
    token: u64,
    headers: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers_base64: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// Returns the line for a message.
pub(crate) fn request(context: &Context) -> Vec<u8> {
    let (id, group, all) = (context.id().to_string(), context.group().to_string(), context.headers());
    let (mut headers, mut headers_base64) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in all.iter() {
        match std::str::from_utf8(value) {
            Ok(text) => drop(headers.insert(name, text)),
            Err(_) => drop(headers_base64.insert(name, crate::terminal::text::base64(value))),
        }
    }
    let (key, key_base64) = context.key().map_or((None, None), |key| text_or_base64(key));
    let (payload, payload_base64) = text_or_base64(context.payload());
    let sent = Sent {
        id: &id,
        topic: context.topic(),
        group: &group,
        key,
        key_base64,
        attempt: context.attempt(),
        token: context.token().0,
        headers,
        headers_base64,
        payload,
        payload_base64,
    };
    let mut line = serde_json::to_vec(&sent).expect("its keys are names, and its values text and numbers");
    line.push(b'\n');
    line
}

/// An answer from the command.
#[derive(Debug, Deserialize)]
struct Answer {
    id: String,
    #[serde(default)]
    ok: bool,
    error: Option<String>,
    #[serde(default = "yes")]
    retry: bool,
}

fn yes() -> bool {
    true
}

/// Parses the answer to the message with this id; an error if it is not a valid answer.
pub(crate) fn answer(line: &[u8], id: &str) -> Result<Outcome, String> {
    let shown = || crate::terminal::text::preview(line, 200);
    let answer: Answer = serde_json::from_slice(line)
        .map_err(|error| format!("its answer is not valid ({error}): {}", shown()))?;
    if answer.id != id {
        return Err(format!(
            "its answer is to message {}, and it was given {id}",
            crate::terminal::text::preview(answer.id.as_bytes(), 100)
        ));
    }
    match (answer.ok, answer.error) {
        (true, None) => Ok(Outcome::Done),
        (false, Some(error)) if answer.retry => Ok(Outcome::retry(error)),
        (false, Some(error)) => Ok(Outcome::dead(error)),
        (true, Some(_)) => Err(format!("its answer says both ok and an error: {}", shown())),
        (false, None) => Err(format!("its answer says neither ok nor an error: {}", shown())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let read = |line: &str| answer(line.as_bytes(), "1");
        assert_eq!(read(r#"{"id":"1","ok":true}"#), Ok(Outcome::Done));
        assert_eq!(read(r#"{"id":"1","error":"no"}"#), Ok(Outcome::retry("no")));
        assert_eq!(read(r#"{"id":"1","error":"no","retry":true,"more":[1]}"#), Ok(Outcome::retry("no")));
        assert_eq!(read(r#"{"id":"1","ok":false,"error":"no","retry":false}"#), Ok(Outcome::dead("no")));
        for (line, said) in [
            ("hello", "hello"),
            (r#"{"ok":true}"#, "id"),
            (r#"{"id":"2","ok":true}"#, "message 2"),
            (r#"{"id":"1"}"#, "neither"),
            (r#"{"id":"1","ok":true,"error":"x"}"#, "both"),
            (r#"{"id":1,"ok":true}"#, "string"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
