//! E-mail addresses, as people write them and as e-mail headers contain them.

use std::str::FromStr;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lettre::Address;

use super::composer::check_line;

/// An address with the name of its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mailbox {
    name: String,
    pub(super) address: Address,
}

impl FromStr for Mailbox {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        check_line("the address", text)?;
        let advice = || format!("{text:?} is no address: write it like a@example.org or Bea <b@example.org>");
        let (name, address) = match text.trim().strip_suffix('>') {
            Some(rest) => rest.rsplit_once('<').ok_or_else(advice)?,
            None => ("", text.trim()),
        };
        let name = name.trim();
        let name = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')).unwrap_or(name);
        let address = address.parse().map_err(|_| advice())?;
        Ok(Self { name: name.to_owned(), address })
    }
}

impl Mailbox {
    /// Formats the mailbox for a header.
    pub(super) fn written(&self) -> String {
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || " -_'".contains(letter);
        match self.name.as_str() {
            "" => self.address.to_string(),
            name if name.chars().all(is_plain) && name.len() <= PLAIN => format!("{name} <{}>", self.address),
            name => format!("{} <{}>", encoded_words(name), self.address),
        }
    }
}

/// Parses a list of addresses: `a@example.org, Bea <b@example.org>`. Commas within quotes belong to a name.
pub(super) fn mailboxes(text: &str) -> Result<Vec<Mailbox>, String> {
    let mut quoted = false;
    let is_between = |letter: char| {
        quoted ^= letter == '"';
        letter == ',' && !quoted
    };
    text.split(is_between).map(str::parse).collect()
}

/// The longest text that a header contains unencoded.
const PLAIN: usize = 200;

/// Encodes a text for a header, if needed.
pub(super) fn encoded(text: &str) -> String {
    let is_plain =
        text.len() <= PLAIN && !text.contains("=?") && text.chars().all(|letter| matches!(letter, ' '..='~'));
    if is_plain { text.to_owned() } else { encoded_words(text) }
}

/// Encodes a text as base64 words by RFC 2047. Each word is short enough and has whole characters.
fn encoded_words(text: &str) -> String {
    let mut words = vec![String::new()];
    for letter in text.chars() {
        match words.last_mut() {
            Some(word) if word.len() + letter.len_utf8() <= 42 => word.push(letter),
            _ => words.push(letter.to_string()),
        }
    }
    let words: Vec<String> =
        words.iter().map(|word| format!("=?utf-8?B?{}?=", BASE64_STANDARD.encode(word))).collect();
    words.join("\r\n ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn g19_addresses_are_read_and_written() {
        let written =
            |text: &str| -> Vec<String> { mailboxes(text).unwrap().iter().map(Mailbox::written).collect() };
        assert_eq!(written("a@b.org"), ["a@b.org"]);
        assert_eq!(written(" <a@b.org>,Bea Bell <b@b.org> "), ["a@b.org", "Bea Bell <b@b.org>"]);
        assert_eq!(written("\"Bell, Bea\" <b@b.org>"), ["=?utf-8?B?QmVsbCwgQmVh?= <b@b.org>"]);
        assert_eq!(written("J\u{f6}rg <j@b.org>"), ["=?utf-8?B?SsO2cmc=?= <j@b.org>"]);
        for wrong in [
            "",
            "nobody",
            "a@b.org,",
            "a@b.org b@b.org",
            "A <a@b.org",
            "a@b.org>",
            "a@b.org\n",
            "<>",
            "a@b@c",
        ] {
            assert!(mailboxes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn g19_long_and_foreign_texts_are_put_into_short_words() {
        assert_eq!(encoded("Hello: you"), "Hello: you");
        assert_eq!(encoded("=?utf-8?B?eA==?="), "=?utf-8?B?PT91dGYtOD9CP2VBPT0/PQ==?=");
        let long = encoded(&"\u{e4}".repeat(100));
        assert!(long.lines().all(|line| line.len() <= 76) && long.lines().count() == 5, "{long}");
    }
}
