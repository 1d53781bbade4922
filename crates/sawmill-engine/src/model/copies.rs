//! Copies: the messages on the lanes of a group, and the record of the attempts before them.
//!
//! In an unordered group, a failed message is copied to the group's retry lane, with a delay. When its
//! attempts are used up, it is copied to the dead-letter lane. The id of a copy derives from the message that
//! was copied, so that a copy that is made twice changes nothing where the engine can tell. The headers of a
//! copy say where it comes from and what happened to it.

use serde::{Deserialize, Serialize};

use super::{Headers, Message, MessageId};
use crate::fault;
use crate::runtime::Timestamp;

const ORIGIN: &str = "sawmill-origin";
const ATTEMPTS: &str = "sawmill-attempts";
const HISTORY: &str = "sawmill-history";
const REASON: &str = "sawmill-reason";

/// A failed attempt, as it is recorded with the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The number of the attempt, from 1; 0 if it was not the handler that failed.
    pub attempt: u32,
    /// The time of the failure, by the worker's clock.
    pub at: Timestamp,
    /// The name of the worker.
    pub worker: String,
    /// The text of the error.
    pub error: String,
}

/// The number of failures that are kept with a message: the latest ones.
const KEPT_FAILURES: usize = 8;
/// The size to which the error text of the latest failure is cut, in bytes. 4 KiB of a program's output fit
/// into it.
const KEPT_LATEST_BYTES: usize = 4600;
/// The size to which the error texts of the earlier failures, and the reason of a dead letter, are cut, in
/// bytes.
const KEPT_ERROR_BYTES: usize = 1000;

impl Failure {
    /// Creates a failure whose text is cut to the size that is kept.
    pub fn new(attempt: u32, at: Timestamp, worker: &str, error: &str) -> Self {
        Self { attempt, at, worker: worker.to_owned(), error: cut(error, KEPT_LATEST_BYTES).to_owned() }
    }
}

/// Returns the longest part of a text, from its beginning, that has at most this many bytes and no partial
/// character.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// The purpose of a copy.
#[derive(Clone, Copy)]
enum Purpose {
    Retry,
    Dead,
    Resend,
}

impl Purpose {
    /// Returns the text from which the copy's id derives. It contains the pass over the shard: a message that
    /// is read again, and fails again, needs another copy.
    fn of(self, pass: u32) -> String {
        let name = match self {
            Purpose::Retry => "retry",
            Purpose::Dead => "dead",
            Purpose::Resend => "resend",
        };
        if pass == 0 || fault!(SameCopyAgain) { name.to_owned() } else { format!("{name} {pass}") }
    }
}

/// The ids of the copies that a group makes of a message, or of a copy of it, in one pass over its shard.
pub struct Copies {
    /// The copy on the dead-letter lane.
    pub dead: MessageId,
    /// The copy on the retry lane, made when the message failed.
    pub retry: MessageId,
    /// The copy on the retry lane, made when the dead letter was resent.
    pub resent: MessageId,
}

impl Copies {
    /// Returns the ids of the copies of the message with this id in this pass.
    pub fn of(id: MessageId, pass: u32) -> Self {
        let dead = id.derive(&Purpose::Dead.of(pass));
        let retry = id.derive(&Purpose::Retry.of(pass));
        Self { dead, retry, resent: dead.derive(&Purpose::Resend.of(0)) }
    }
}

/// The facts that only messages on lanes carry, and the making of copies.
impl Message {
    /// Returns the id with which the message was pushed. Copies on lanes have ids of their own, but the same
    /// origin.
    pub fn origin(&self) -> MessageId {
        self.headers.text(ORIGIN).and_then(|text| text.parse().ok()).unwrap_or(self.id)
    }

    /// Returns the number of attempts that had failed before this copy was made.
    pub fn failed_attempts(&self) -> u32 {
        self.headers.text(ATTEMPTS).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// Returns the latest failures, oldest first.
    pub fn failures(&self) -> Vec<Failure> {
        self.headers.get(HISTORY).and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
    }

    /// Returns the reason why the message is a dead letter.
    pub fn dead_reason(&self) -> Option<&str> {
        self.headers.text(REASON)
    }

    /// Returns the headers that the pusher gave the message.
    pub fn own_headers(&self) -> Headers {
        let own = |(name, _): &(&str, _)| !name.starts_with(super::headers::RESERVED_HEADER_PREFIX);
        self.headers.iter().filter(own).map(|(name, value)| (name, value.clone())).collect()
    }

    /// Makes the copy that waits on the retry lane until it is due. `failed` counts all attempts so far.
    pub fn retry_copy(&self, failed: u32, failures: &[Failure], pass: u32, due: Timestamp) -> Message {
        let mut copy = self.copy(&Purpose::Retry.of(pass), failures);
        copy.headers.set(ATTEMPTS, failed.to_string());
        copy.due = Some(due);
        copy
    }

    /// Makes the copy that goes to the dead-letter lane.
    pub fn dead_copy(&self, failed: u32, failures: &[Failure], pass: u32, reason: &str) -> Message {
        let mut copy = self.copy(&Purpose::Dead.of(pass), failures);
        copy.headers.set(ATTEMPTS, failed.to_string());
        copy.headers.set(REASON, cut(reason, KEPT_ERROR_BYTES).to_owned());
        copy.due = None;
        copy
    }

    /// Makes the copy that goes back to the group when a person resends a dead letter. It has all its
    /// attempts again.
    pub fn resent_copy(&self) -> Message {
        let mut copy = self.copy(&Purpose::Resend.of(0), &[]);
        if fault!(ResentSameCopy) {
            copy.id = self.origin().derive(&Purpose::Resend.of(0));
        }
        // The copy is no longer unique: its name was released when the message became a dead letter.
        let left = [REASON, ATTEMPTS, super::unique::HEADER];
        copy.headers.0.retain(|(name, _)| !left.contains(&name.as_str()));
        copy.due = None;
        copy
    }

    fn copy(&self, purpose: &str, failures: &[Failure]) -> Message {
        let mut copy = self.clone();
        copy.id = self.id.derive(purpose);
        copy.headers.set(ORIGIN, self.origin().to_string());
        if !failures.is_empty() {
            let mut history = self.failures();
            history.extend_from_slice(failures);
            history.drain(..history.len().saturating_sub(KEPT_FAILURES));
            if let Some((_, older)) = history.split_last_mut() {
                older
                    .iter_mut()
                    .for_each(|failure| failure.error = cut(&failure.error, KEPT_ERROR_BYTES).to_owned());
            }
            copy.headers.set(HISTORY, serde_json::to_vec(&history).unwrap_or_default());
        }
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_know_their_origin_and_their_history() {
        let message = Message {
            id: MessageId::from_u128(5),
            key: Some("k".into()),
            payload: "p".into(),
            headers: [("lang", "en")].into_iter().collect(),
            due: None,
            created: Timestamp::from_millis(1),
        };
        let failure =
            |attempt| Failure::new(attempt, Timestamp::from_millis(7), "w", "no\u{e9}".repeat(600).as_str());
        let first = message.retry_copy(2, &[failure(1), failure(2)], 0, Timestamp::from_millis(9));
        assert_eq!((first.origin(), first.failed_attempts()), (message.id, 2));
        assert_eq!(first.due, Some(Timestamp::from_millis(9)));
        assert_eq!(first, message.retry_copy(2, &[failure(1), failure(2)], 0, Timestamp::from_millis(9)));
        assert_ne!(first.id, message.retry_copy(2, &[], 1, Timestamp::from_millis(9)).id, "another pass");

        let second = first.retry_copy(3, &[failure(3)], 0, Timestamp::from_millis(99));
        assert_ne!(first.id, second.id);
        let dead = second.dead_copy(4, &[failure(4)], 0, "out of attempts");
        assert_eq!((dead.origin(), dead.dead_reason()), (message.id, Some("out of attempts")));
        assert_eq!(dead.failures().iter().map(|f| f.attempt).collect::<Vec<_>>(), [1, 2, 3, 4]);
        let lengths: Vec<_> = dead.failures().iter().map(|f| f.error.len()).collect();
        assert_eq!(lengths, [1000, 1000, 1000, 2400], "the latest is kept in full, the others are cut");
        assert_eq!(dead.own_headers(), message.headers);

        let resent = dead.resent_copy();
        assert_eq!((resent.origin(), resent.failed_attempts(), resent.dead_reason()), (message.id, 0, None));
        assert_eq!((&resent.payload, &resent.key), (&message.payload, &message.key));
        assert_eq!(resent.failures().len(), 4, "the history stays with it");

        // The ids of the copies on the lanes follow from an id and the pass.
        assert_eq!(Copies::of(message.id, 0).retry, first.id);
        assert_eq!(Copies::of(first.id, 0).retry, second.id);
        assert_eq!(Copies::of(second.id, 0).dead, dead.id);
        assert_eq!(Copies::of(second.id, 0).resent, resent.id);
    }
}
