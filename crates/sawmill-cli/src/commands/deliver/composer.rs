//! Composes e-mails from messages. Nothing is sent here.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lettre::Address;
use lettre::address::Envelope;
use sawmill::Message;
use serde::Deserialize;

use super::mailbox::{Mailbox, encoded, mailboxes};
use crate::terminal::text;

/// The settings that all e-mails share.
pub(super) struct Composer {
    pub(super) from: Mailbox,
    /// The recipients of all e-mails; messages cannot change them.
    pub(super) to: Option<Vec<Mailbox>>,
    /// The subject of messages without one.
    pub(super) subject: Option<String>,
    /// Payloads are JSON objects.
    pub(super) json: bool,
}

/// An e-mail: its envelope and its text. The text is ASCII in short lines whatever its content, so that every
/// server accepts it.
#[derive(Debug)]
pub(super) struct OutgoingMail {
    pub(super) envelope: Envelope,
    pub(super) text: String,
}

impl OutgoingMail {
    /// True if its addresses need SMTPUTF8, which not every server supports.
    pub(super) fn needs_smtputf8(&self) -> bool {
        self.envelope.to().iter().chain(self.envelope.from()).any(is_not_ascii)
    }
}

/// True if an address is not ASCII.
fn is_not_ascii(address: &Address) -> bool {
    !AsRef::<str>::as_ref(address).is_ascii()
}

/// A payload in JSON.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct JsonMail {
    to: Option<To>,
    subject: Option<String>,
    text: Option<String>,
    html: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum To {
    One(String),
    Several(Vec<String>),
}

impl Composer {
    /// True if addresses that the operator has set need SMTPUTF8.
    pub(super) fn needs_smtputf8(&self) -> bool {
        self.to.iter().flatten().chain([&self.from]).any(|mailbox| is_not_ascii(&mailbox.address))
    }

    /// Composes the e-mail of a message, or returns why that is impossible. The result is the same at every
    /// attempt.
    pub(super) fn compose(&self, message: &Message) -> Result<OutgoingMail, String> {
        let written = self.read(message)?;
        let headers = message.own_headers();
        let header = |name: &str| headers.text(name).map(str::to_owned);
        let to = match (&self.to, written.to) {
            (Some(fixed), _) => fixed.clone(),
            (None, Some(To::One(one))) => mailboxes(&one)?,
            (None, Some(To::Several(several))) => mailboxes(&several.join(", "))?,
            (None, None) => {
                let to = header("to")
                    .ok_or("it does not say to whom it goes: its header `to` is missing, or no text")?;
                mailboxes(&to)?
            }
        };
        let subject = written.subject.or_else(|| header("subject")).or_else(|| self.subject.clone());
        let subject =
            subject.ok_or("it has no subject: its header `subject` is missing, and there is no --subject")?;
        check_line("the subject", &subject)?;

        let id = message.origin();
        let body = match (written.text, written.html) {
            (Some(text), None) => part("plain", &text),
            (None, Some(page)) => part("html", &page),
            (Some(text), Some(page)) => {
                let (text, page) = (part("plain", &text), part("html", &page));
                format!(
                    "Content-Type: multipart/alternative; boundary=\"sawmill-{id}\"\r\n\r\n\
                     --sawmill-{id}\r\n{text}--sawmill-{id}\r\n{page}--sawmill-{id}--\r\n"
                )
            }
            (None, None) => return Err("it says nothing: its `text` and its `html` are missing".to_owned()),
        };
        // The push time and the id of the message make a repeated e-mail identical to the first.
        let (date, domain) = (text::rfc2822(message.created), self.from.address.domain());
        let shown: Vec<String> = to.iter().map(Mailbox::written).collect();
        let text = format!(
            "From: {}\r\nTo: {}\r\nSubject: {}\r\nDate: {date}\r\nMessage-ID: <{id}@{domain}>\r\nMIME-Version: 1.0\r\n{body}",
            self.from.written(),
            shown.join(",\r\n "),
            encoded(&subject)
        );
        let to = to.into_iter().map(|mailbox| mailbox.address).collect();
        let envelope = Envelope::new(Some(self.from.address.clone()), to)
            .map_err(|error| format!("no e-mail can be made of it: {error}"))?;
        Ok(OutgoingMail { envelope, text })
    }

    fn read(&self, message: &Message) -> Result<JsonMail, String> {
        match self.json {
            true => serde_json::from_slice(&message.payload).map_err(|error| {
                format!("its payload is no JSON object with to, subject, text and html: {error}")
            }),
            false => {
                let text = std::str::from_utf8(&message.payload);
                let text = text.map_err(|_| "its payload is no text (UTF-8)")?.to_owned();
                Ok(JsonMail { text: Some(text), ..JsonMail::default() })
            }
        }
    }
}

/// Formats a body part with its headers and CRLF line ends.
fn part(kind: &str, text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\n', "\r\n");
    let mut lines =
        format!("Content-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n");
    // 57 bytes become 76 characters, the longest line allowed.
    for line in text.as_bytes().chunks(57) {
        lines += &BASE64_STANDARD.encode(line);
        lines += "\r\n";
    }
    lines
}

/// Refuses control characters: a line break in a header would begin another header.
pub(super) fn check_line(what: &str, text: &str) -> Result<(), String> {
    match text.chars().any(char::is_control) {
        true => {
            Err(format!("{what} {text:?} has a line break or another sign in it that no header may have"))
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sawmill::MessageId;
    use sawmill::engine::model::Headers;

    use super::*;

    fn composer() -> Composer {
        let from = "Mill <mill@example.org>".parse().unwrap();
        Composer { from, to: None, subject: None, json: false }
    }

    fn message(headers: &[(&'static str, &'static str)], payload: &'static str) -> Message {
        Message {
            id: MessageId::from_u128(77),
            key: None,
            payload: Bytes::from(payload),
            headers: headers.iter().copied().collect::<Headers>(),
            due: None,
            created: crate::terminal::text::time("2026-11-15T08:00:00Z").unwrap(),
        }
    }

    fn written(composer: &Composer, message: &Message) -> String {
        let text = composer.compose(message).unwrap().text;
        assert!(text.is_ascii() && text.lines().all(|line| line.len() < 998), "{text}");
        text
    }

    #[test]
    fn g19_a_letter_is_the_same_however_often_it_is_made() {
        let message =
            message(&[("to", "a@example.org, Bea <b@example.org>"), ("subject", "Grüße")], "Hällo\n");
        let text = written(&composer(), &message);
        for line in [
            "From: Mill <mill@example.org>\r\n",
            "To: a@example.org,\r\n Bea <b@example.org>\r\n",
            "Subject: =?utf-8?B?R3LDvMOfZQ==?=\r\n",
            "Message-ID: <0000000000000000000000002D@example.org>\r\n",
            "Date: Sun, 15 Nov 2026 08:00:00 +0000\r\n",
            "Content-Type: text/plain; charset=utf-8\r\n",
        ] {
            assert!(text.contains(line), "{line:?} is not in\n{text}");
        }
        assert_eq!(written(&composer(), &message), text);
    }

    #[test]
    fn g19_a_payload_may_say_everything() {
        let json = Composer { json: true, subject: Some("none".to_owned()), ..composer() };
        let text = written(
            &json,
            &message(&[], r#"{"to":["a@b.org","c@d.org"],"subject":"S","text":"T","html":"<p>"}"#),
        );
        for part in [
            "To: a@b.org,\r\n c@d.org\r\n",
            "Subject: S\r\n",
            "multipart/alternative",
            "\r\nVA==\r\n",
            "PHA+",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert_eq!(
            text,
            written(
                &json,
                &message(&[], r#"{"to":["a@b.org","c@d.org"],"subject":"S","text":"T","html":"<p>"}"#)
            )
        );
        let text = written(&json, &message(&[("to", "e@f.org")], r#"{"html":"<p>"}"#));
        assert!(text.contains("Subject: none\r\n") && text.contains("text/html"), "{text}");
    }

    #[test]
    fn g19_with_fixed_addresses_no_message_says_where_it_goes() {
        let fixed = Composer { to: Some(mailboxes("ops@example.org").unwrap()), ..composer() };
        let text = written(&fixed, &message(&[("to", "victim@example.com"), ("subject", "s")], "t"));
        assert!(text.contains("To: ops@example.org\r\n") && !text.contains("victim"), "{text}");
    }

    #[test]
    fn g19_no_header_can_be_smuggled_in() {
        let refused = |composer: &Composer, message: &Message| composer.compose(message).unwrap_err();
        let (composer, json) = (composer(), Composer { json: true, ..composer() });
        for subject in ["a\r\nBcc: x@example.com", "a\nb", "a\rb", "a\0b"] {
            let message = message(&[("to", "a@example.org"), ("subject", subject)], "t");
            assert!(refused(&composer, &message).contains("the subject"), "{subject:?}");
        }
        for to in ["a@example.org\r\nBcc: x@example.com", "a@example.org\n", "A\r\nB <a@example.org>"] {
            let message = message(&[("to", to), ("subject", "s")], "t");
            assert!(refused(&composer, &message).contains("the address"), "{to:?}");
        }
        let message =
            message(&[], r#"{"to":["a@b.org","c@d.org\r\nBcc: x@y.org"],"subject":"S","text":"T"}"#);
        assert!(refused(&json, &message).contains("the address"));
        // Header-like text in the body stays in the body.
        let text = written(&composer, &message_with_body("x\r\n\r\nBcc: x@example.com\r\n"));
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        assert!(!head.contains("Bcc"), "{text}");
    }

    fn message_with_body(body: &'static str) -> Message {
        message(&[("to", "a@example.org"), ("subject", "s")], body)
    }

    #[test]
    fn g19_what_is_no_letter_is_refused() {
        let (composer, json) = (composer(), Composer { json: true, ..composer() });
        for (composer, headers, payload, said) in [
            (&composer, &[("subject", "s")][..], "t", "to whom"),
            (&composer, &[("to", "a@b.org")], "t", "no subject"),
            (&composer, &[("to", "nobody"), ("subject", "s")], "t", "no address"),
            (&composer, &[("to", ""), ("subject", "s")], "t", "address"),
            (&json, &[("to", "a@b.org"), ("subject", "s")], "t", "no JSON object"),
            (&json, &[("to", "a@b.org"), ("subject", "s")], "{}", "says nothing"),
            (&json, &[("to", "a@b.org"), ("subject", "s")], r#"{"text":"t","bcc":"x@y.org"}"#, "bcc"),
        ] {
            let refused = composer.compose(&message(headers, payload)).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        let mut binary = message_with_body("");
        binary.payload = Bytes::from_static(b"\xff");
        assert!(composer.compose(&binary).unwrap_err().contains("no text"));
    }
}
