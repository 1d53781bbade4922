//! The environment variables that describe a message to its command.

use sawmill::Context;
use sawmill::engine::model::Headers;

/// Returns the variables of one message.
///
/// Environment values are text without NUL. A key that is not such text is passed in hexadecimal under
/// another name, and such a header is left out.
pub(crate) fn variables(context: &Context) -> Vec<(String, String)> {
    let mut variables = vec![
        ("SAWMILL_ID".to_owned(), context.id().to_string()),
        ("SAWMILL_TOPIC".to_owned(), context.topic().to_owned()),
        ("SAWMILL_GROUP".to_owned(), context.group().to_string()),
        ("SAWMILL_ATTEMPT".to_owned(), context.attempt().to_string()),
        ("SAWMILL_TOKEN".to_owned(), context.token().to_string()),
    ];
    variables.extend(context.key().map(|key| of_key(key)));
    variables.extend(of_headers(&context.headers()));
    variables
}

/// True for variables that describe a message. They are removed from the worker's own environment, as the
/// worker may run inside a command of another worker.
pub(crate) fn is_of_message(name: &str) -> bool {
    let rest = name.strip_prefix("SAWMILL_");
    rest.is_some_and(|rest| OF_MESSAGES.contains(&rest) || rest.starts_with("HEADER_"))
}

const OF_MESSAGES: &[&str] = &["ID", "TOPIC", "GROUP", "ATTEMPT", "TOKEN", "KEY", "KEY_HEX"];

fn of_key(key: &[u8]) -> (String, String) {
    match as_text(key) {
        Some(text) => ("SAWMILL_KEY".to_owned(), text.to_owned()),
        None => ("SAWMILL_KEY_HEX".to_owned(), key.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

fn of_headers(headers: &Headers) -> Vec<(String, String)> {
    let variable = |(name, value): (&str, &[u8])| {
        let name: String = name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        as_text(value).map(|text| (format!("SAWMILL_HEADER_{name}"), text.to_owned()))
    };
    headers.iter().filter_map(|(name, value)| variable((name, value))).collect()
}

fn as_text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_headers_become_variables() {
        assert_eq!(of_key(b"alice"), ("SAWMILL_KEY".into(), "alice".into()));
        assert_eq!(of_key(b"a\0b"), ("SAWMILL_KEY_HEX".into(), "610062".into()));
        assert_eq!(of_key(&[0xff, 0x0a]), ("SAWMILL_KEY_HEX".into(), "ff0a".into()));
        let headers: Headers =
            [("content-type", "text/plain"), ("x.é", "ä"), ("nul", "a\0")].into_iter().collect();
        let expected = [("SAWMILL_HEADER_CONTENT_TYPE", "text/plain"), ("SAWMILL_HEADER_X__", "ä")];
        let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        assert_eq!(of_headers(&headers), expected);
        assert!(
            is_of_message("SAWMILL_ID")
                && is_of_message("SAWMILL_HEADER_X")
                && !is_of_message("SAWMILL_STORE")
        );
    }
}
