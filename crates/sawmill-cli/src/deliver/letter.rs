//! What an e-mail says, made of a message. Nothing is sent here.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lettre::Address;
use lettre::address::Envelope;
use sawmill::Message;
use serde::Deserialize;

use super::mailbox::{Mailbox, encoded, mailboxes};
use crate::text;

/// What all letters have in common.
pub(super) struct Letters {
    pub(super) from: Mailbox,
    /// To whom all go, whatever a message says.
    pub(super) to: Option<Vec<Mailbox>>,
    /// For messages that have none.
    pub(super) subject: Option<String>,
    /// Payloads are JSON objects.
    pub(super) json: bool,
}

/// An e-mail: for whom, and all of its text. That is ASCII, in short lines, whatever it says: every server takes it as it is.
#[derive(Debug)]
pub(super) struct Letter {
    pub(super) envelope: Envelope,
    pub(super) text: String,
}

impl Letter {
    /// True if there are signs in its addresses that not every server takes.
    pub(super) fn has_foreign_addresses(&self) -> bool {
        self.envelope.to().iter().chain(self.envelope.from()).any(is_foreign)
    }
}

/// True if an address is not ASCII.
fn is_foreign(address: &Address) -> bool {
    !AsRef::<str>::as_ref(address).is_ascii()
}

/// A payload that says everything.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
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

impl Letters {
    /// True if what the operator has said for all of them has signs in its addresses that not every server takes.
    pub(super) fn have_foreign_addresses(&self) -> bool {
        self.to.iter().flatten().chain([&self.from]).any(|mailbox| is_foreign(&mailbox.address))
    }

    /// The letter that this message asks for, or why it can be none. It is the same at every attempt.
    pub(super) fn compose(&self, message: &Message) -> Result<Letter, String> {
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
        // By the time at which it was pushed, and by the id that the push returned, a repetition is the same letter.
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
        Ok(Letter { envelope, text })
    }

    fn read(&self, message: &Message) -> Result<Written, String> {
        match self.json {
            true => serde_json::from_slice(&message.payload).map_err(|error| {
                format!("its payload is no JSON object with to, subject, text and html: {error}")
            }),
            false => {
                let text = std::str::from_utf8(&message.payload);
                let text = text.map_err(|_| "its payload is no text (UTF-8)")?.to_owned();
                Ok(Written { text: Some(text), ..Written::default() })
            }
        }
    }
}

/// A text with the headers that say what it is. Its lines end as those of e-mails do.
fn part(kind: &str, text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\n', "\r\n");
    let mut lines =
        format!("Content-Type: text/{kind}; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\r\n");
    // 57 bytes are 76 letters, the longest line that there may be.
    for line in text.as_bytes().chunks(57) {
        lines += &BASE64_STANDARD.encode(line);
        lines += "\r\n";
    }
    lines
}

/// What ends a line in a header would begin another header.
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
    use sawmill::{Headers, MessageId};

    use super::*;

    fn letters() -> Letters {
        let from = "Mill <mill@example.org>".parse().unwrap();
        Letters { from, to: None, subject: None, json: false }
    }

    fn message(headers: &[(&'static str, &'static str)], payload: &'static str) -> Message {
        Message {
            id: MessageId::from_u128(77),
            key: None,
            payload: Bytes::from(payload),
            headers: headers.iter().copied().collect::<Headers>(),
            due: None,
            created: crate::text::time("2026-11-15T08:00:00Z").unwrap(),
        }
    }

    fn written(letters: &Letters, message: &Message) -> String {
        let text = letters.compose(message).unwrap().text;
        assert!(text.is_ascii() && text.lines().all(|line| line.len() < 998), "{text}");
        text
    }

    #[test]
    fn g19_a_letter_is_the_same_however_often_it_is_made() {
        let message =
            message(&[("to", "a@example.org, Bea <b@example.org>"), ("subject", "Grüße")], "Hällo\n");
        let text = written(&letters(), &message);
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
        assert_eq!(written(&letters(), &message), text);
    }

    #[test]
    fn g19_a_payload_may_say_everything() {
        let json = Letters { json: true, subject: Some("none".to_owned()), ..letters() };
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
        let fixed = Letters { to: Some(mailboxes("ops@example.org").unwrap()), ..letters() };
        let text = written(&fixed, &message(&[("to", "victim@example.com"), ("subject", "s")], "t"));
        assert!(text.contains("To: ops@example.org\r\n") && !text.contains("victim"), "{text}");
    }

    #[test]
    fn g19_no_header_can_be_smuggled_in() {
        let refused = |letters: &Letters, message: &Message| letters.compose(message).unwrap_err();
        let (letters, json) = (letters(), Letters { json: true, ..letters() });
        for subject in ["a\r\nBcc: x@example.com", "a\nb", "a\rb", "a\0b"] {
            let message = message(&[("to", "a@example.org"), ("subject", subject)], "t");
            assert!(refused(&letters, &message).contains("the subject"), "{subject:?}");
        }
        for to in ["a@example.org\r\nBcc: x@example.com", "a@example.org\n", "A\r\nB <a@example.org>"] {
            let message = message(&[("to", to), ("subject", "s")], "t");
            assert!(refused(&letters, &message).contains("the address"), "{to:?}");
        }
        let message =
            message(&[], r#"{"to":["a@b.org","c@d.org\r\nBcc: x@y.org"],"subject":"S","text":"T"}"#);
        assert!(refused(&json, &message).contains("the address"));
        // What is in the body stays there.
        let text = written(&letters, &message_with_body("x\r\n\r\nBcc: x@example.com\r\n"));
        let (head, _) = text.split_once("\r\n\r\n").unwrap();
        assert!(!head.contains("Bcc"), "{text}");
    }

    fn message_with_body(body: &'static str) -> Message {
        message(&[("to", "a@example.org"), ("subject", "s")], body)
    }

    #[test]
    fn g19_what_is_no_letter_is_refused() {
        let (letters, json) = (letters(), Letters { json: true, ..letters() });
        for (letters, headers, payload, said) in [
            (&letters, &[("subject", "s")][..], "t", "to whom"),
            (&letters, &[("to", "a@b.org")], "t", "no subject"),
            (&letters, &[("to", "nobody"), ("subject", "s")], "t", "no address"),
            (&letters, &[("to", ""), ("subject", "s")], "t", "address"),
            (&json, &[("to", "a@b.org"), ("subject", "s")], "t", "no JSON object"),
            (&json, &[("to", "a@b.org"), ("subject", "s")], "{}", "says nothing"),
            (&json, &[("to", "a@b.org"), ("subject", "s")], r#"{"text":"t","bcc":"x@y.org"}"#, "bcc"),
        ] {
            let refused = letters.compose(&message(headers, payload)).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        let mut binary = message_with_body("");
        binary.payload = Bytes::from_static(b"\xff");
        assert!(letters.compose(&binary).unwrap_err().contains("no text"));
    }
}
