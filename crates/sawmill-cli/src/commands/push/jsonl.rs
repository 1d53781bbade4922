//! Messages as lines of JSON (`--jsonl`).

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use sawmill::Push;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::terminal::text;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    payload_base64: Option<String>,
    key: Option<String>,
    at: Option<String>,
    #[serde(rename = "in")]
    after: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    unique: Option<String>,
}

/// Builds the message of a line; the error says what is wrong with it.
pub(super) fn message(line: &Bytes) -> Result<Push, String> {
    let line: Line =
        serde_json::from_slice(line).map_err(|error| format!("it is no message as JSON: {error}"))?;
    let mut push = Push::new(payload(line.payload, line.payload_base64)?);
    if let Some(key) = line.key {
        push = push.key(key);
    }
    push = match (line.at, line.after) {
        (None, None) => push,
        (Some(at), None) => push.at(text::time(&at)?),
        (None, Some(after)) => push.after(text::duration(&after)?),
        (Some(_), Some(_)) => return Err("it has both \"at\" and \"in\": choose one".to_owned()),
    };
    if let Some(unique) = line.unique {
        push = push.unique(unique);
    }
    Ok(line.headers.into_iter().fold(push, |push, (name, value)| push.header(name, value)))
}

/// Takes a string as text, and any other value as JSON.
fn payload(json: Option<&RawValue>, base64: Option<String>) -> Result<Bytes, String> {
    match (json, base64) {
        (Some(json), None) => Ok(match serde_json::from_str::<String>(json.get()) {
            Ok(text) => text.into(),
            Err(_) => json.get().to_owned().into(),
        }),
        (None, Some(base64)) => {
            let bytes = BASE64_STANDARD.decode(base64);
            bytes.map(Bytes::from).map_err(|error| format!("\"payload_base64\" is no base64: {error}"))
        }
        (None, None) => Err("it has no \"payload\"".to_owned()),
        (Some(_), Some(_)) => Err("it has both \"payload\" and \"payload_base64\": choose one".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(line: &str) -> Result<Push, String> {
        message(&Bytes::copy_from_slice(line.as_bytes()))
    }

    #[test]
    fn a_line_says_all_of_a_message() {
        let line =
            r#"{"payload":"Hi","key":"a","at":"2026-11-15T08:00:00Z","headers":{"lang":"en"},"unique":"u"}"#;
        let at = text::time("2026-11-15T08:00:00Z").unwrap();
        assert_eq!(read(line), Ok(Push::new("Hi").key("a").at(at).header("lang", "en").unique("u")));
        assert_eq!(read(r#"{"payload":"x","in":"5s"}"#), Ok(Push::new("x").after(Duration::from_secs(5))));
        assert_eq!(read(r#"{"payload_base64":"/wA="}"#), Ok(Push::new(&b"\xff\0"[..])));
    }

    #[test]
    fn a_payload_that_is_no_string_stays_the_json_it_is() {
        for json in [r#"{"b":1,  "a":[2.50,null]}"#, "7", "true", r#"["x"]"#] {
            assert_eq!(read(&format!("{{\"payload\":{json}}}")), Ok(Push::new(json.to_owned())));
        }
        assert_eq!(read(r#"{"payload":"say \"é\""}"#), Ok(Push::new("say \"é\"")));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, said) in [
            ("", "EOF"),
            ("hello", "JSON"),
            ("{}", "no \"payload\""),
            (r#"{"payload":null}"#, "no \"payload\""),
            (r#"{"payload":"x","kye":"a"}"#, "kye"),
            (r#"{"payload":"x","key":7}"#, "string"),
            (r#"{"payload":"x","at":"noon"}"#, "noon"),
            (r#"{"payload":"x","in":"5"}"#, "30s"),
            (r#"{"payload":"x","in":"5s","at":"2026-11-15T08:00:00Z"}"#, "choose one"),
            (r#"{"payload":"x","payload_base64":"eA=="}"#, "choose one"),
            (r#"{"payload_base64":"*"}"#, "base64"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
