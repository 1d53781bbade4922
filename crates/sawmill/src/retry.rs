//! Failure: when a message is tried again, and the copies of it that travel the lanes.
//!
//! In an unordered group a failed message goes back as a delayed copy on the group's retry lane, and out of attempts as a
//! copy on its dead-letter lane. A copy's id derives from what it was copied from, so that making it twice changes nothing
//! where the engine can tell. Its headers say where it comes from and what happened to it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::dice::Dice;
use crate::message::{Headers, Message, MessageId};
use crate::planted::{self, Bug};

/// When a failed message is tried again, and how often.
///
/// ```
/// use std::time::Duration;
/// use sawmill::RetryPolicy;
///
/// // Up to 8 retries: the first at once, then after about 2 s, 4 s, 8 s … at most a minute.
/// let policy = RetryPolicy::retries(8).backoff(Duration::from_secs(2), Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryPolicy {
    retries: u32,
    immediate: u32,
    first: Duration,
    most: Duration,
}

impl Default for RetryPolicy {
    /// Five retries: one at once, then with backoff from one second to one hour.
    fn default() -> Self {
        Self::retries(5)
    }
}

impl RetryPolicy {
    /// At most this many retries after the first attempt: one at once, the others with backoff.
    pub fn retries(retries: u32) -> Self {
        Self { retries, immediate: 1, first: Duration::from_secs(1), most: Duration::from_secs(3600) }
    }

    /// No retry: the first failure is final.
    pub fn none() -> Self {
        Self::retries(0)
    }

    /// How many of the retries are made at once, before the backoff begins.
    #[must_use]
    pub fn immediate(mut self, immediate: u32) -> Self {
        self.immediate = immediate;
        self
    }

    /// How long to wait before a retry: `first`, doubled each time, at most `most`, with jitter.
    #[must_use]
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        (self.first, self.most) = (first, most.max(first));
        self
    }

    /// What follows when the attempt with this number (from 1) has failed.
    pub(crate) fn after(&self, attempt: u32, dice: &dyn Dice) -> Next {
        if attempt > self.retries {
            Next::GiveUp
        } else if attempt <= self.immediate {
            Next::AtOnce
        } else {
            let doublings = (attempt - self.immediate - 1).min(30);
            Next::After(dice.jitter(self.first.saturating_mul(1 << doublings).min(self.most)))
        }
    }
}

/// What follows a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    AtOnce,
    After(Duration),
    GiveUp,
}

const ORIGIN: &str = "sawmill-origin";
const ATTEMPTS: &str = "sawmill-attempts";
const HISTORY: &str = "sawmill-history";
const REASON: &str = "sawmill-reason";

/// One failed attempt, as it is kept with the message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Which attempt, from 1; 0 if it was not the handler that failed.
    pub attempt: u32,
    /// When, by the worker's clock.
    pub at: Timestamp,
    /// Which worker.
    pub worker: String,
    /// What went wrong.
    pub error: String,
}

/// How many failures are kept with a message: the latest.
const KEPT_FAILURES: usize = 8;
/// How much of an error's text is kept with a message: of the latest, for which 4 KiB of what a program said fit in, and of those
/// before it.
const KEPT_LATEST_BYTES: usize = 4600;
const KEPT_ERROR_BYTES: usize = 1000;

impl Failure {
    /// A failure, its text cut to what is kept.
    pub(crate) fn new(attempt: u32, at: Timestamp, worker: &str, error: &str) -> Self {
        Self { attempt, at, worker: worker.to_owned(), error: cut(error, KEPT_LATEST_BYTES).to_owned() }
    }
}

/// So much of a text, and no half of a letter.
fn cut(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What a copy is made for.
#[derive(Clone, Copy)]
enum Purpose {
    Retry,
    Dead,
    Resend,
}

impl Purpose {
    /// The purpose in this reading of the shard: a message that is read again, and fails again, needs another copy.
    fn of(self, pass: u32) -> String {
        let name = match self {
            Purpose::Retry => "retry",
            Purpose::Dead => "dead",
            Purpose::Resend => "resend",
        };
        if pass == 0 || planted::is(Bug::SameCopyAgain) { name.to_owned() } else { format!("{name} {pass}") }
    }
}

/// The ids of the copies that a group makes of a message, or of a copy of it, in one reading of its shard.
pub(crate) struct Copies {
    /// On the dead-letter lane.
    pub(crate) dead: MessageId,
    /// On the retry lane, when it failed.
    pub(crate) retry: MessageId,
    /// On the retry lane, when the dead letter was resent.
    pub(crate) resent: MessageId,
}

impl Copies {
    pub(crate) fn of(id: MessageId, pass: u32) -> Self {
        let dead = id.derive(&Purpose::Dead.of(pass));
        let retry = id.derive(&Purpose::Retry.of(pass));
        Self { dead, retry, resent: dead.derive(&Purpose::Resend.of(0)) }
    }
}

/// What a message on a lane says of itself, beyond what every message says.
impl Message {
    /// The id it had when it was pushed. Copies on lanes have ids of their own; this stays.
    pub fn origin(&self) -> MessageId {
        self.headers.text(ORIGIN).and_then(|text| text.parse().ok()).unwrap_or(self.id)
    }

    /// How many attempts at it have failed before this copy was made.
    pub fn failed_attempts(&self) -> u32 {
        self.headers.text(ATTEMPTS).and_then(|text| text.parse().ok()).unwrap_or(0)
    }

    /// The latest failures, oldest first.
    pub fn failures(&self) -> Vec<Failure> {
        self.headers.get(HISTORY).and_then(|json| serde_json::from_slice(json).ok()).unwrap_or_default()
    }

    /// Why it is a dead letter.
    pub fn dead_reason(&self) -> Option<&str> {
        self.headers.text(REASON)
    }

    /// The headers that the pusher gave it.
    pub fn own_headers(&self) -> Headers {
        let own = |(name, _): &(&str, _)| !name.starts_with(crate::message::RESERVED_HEADER_PREFIX);
        self.headers.iter().filter(own).map(|(name, value)| (name, value.clone())).collect()
    }

    /// The copy that waits on the retry lane until it is due. `failed` counts all attempts so far.
    pub(crate) fn retry_copy(&self, failed: u32, failures: &[Failure], pass: u32, due: Timestamp) -> Message {
        let mut copy = self.copy(&Purpose::Retry.of(pass), failures);
        copy.headers.set(ATTEMPTS, failed.to_string());
        copy.due = Some(due);
        copy
    }

    /// The copy that goes to the dead-letter lane.
    pub(crate) fn dead_copy(&self, failed: u32, failures: &[Failure], pass: u32, reason: &str) -> Message {
        let mut copy = self.copy(&Purpose::Dead.of(pass), failures);
        copy.headers.set(ATTEMPTS, failed.to_string());
        copy.headers.set(REASON, cut(reason, KEPT_ERROR_BYTES).to_owned());
        copy.due = None;
        copy
    }

    /// The copy that a person sends back to the group: with all its attempts before it.
    pub(crate) fn resent_copy(&self) -> Message {
        let mut copy = self.copy(&Purpose::Resend.of(0), &[]);
        if planted::is(Bug::ResentSameCopy) {
            copy.id = self.origin().derive(&Purpose::Resend.of(0));
        }
        // It is not unique any more: its name was free from when it died.
        let left = [REASON, ATTEMPTS, crate::unique::HEADER];
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
    use crate::dice::SystemDice;

    #[test]
    fn f7_one_retry_at_once_then_later_ones_with_backoff_then_no_more() {
        let policy = RetryPolicy::retries(4).backoff(Duration::from_secs(1), Duration::from_secs(3));
        assert_eq!(policy.after(1, &SystemDice), Next::AtOnce);
        for (attempt, seconds) in [(2, 1.0), (3, 2.0), (4, 3.0)] {
            let Next::After(wait) = policy.after(attempt, &SystemDice) else { panic!("attempt {attempt}") };
            assert!((0.75 * seconds..=1.25 * seconds).contains(&wait.as_secs_f64()), "{attempt}: {wait:?}");
        }
        assert_eq!(policy.after(5, &SystemDice), Next::GiveUp);
        assert_eq!(RetryPolicy::none().after(1, &SystemDice), Next::GiveUp);
    }

    #[test]
    fn backoff_does_not_overflow() {
        let policy = RetryPolicy::retries(u32::MAX).backoff(Duration::MAX, Duration::MAX);
        assert!(matches!(policy.after(100, &SystemDice), Next::After(_)));
    }

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

        // Who knows an id and the pass knows what to look for on the lanes.
        assert_eq!(Copies::of(message.id, 0).retry, first.id);
        assert_eq!(Copies::of(first.id, 0).retry, second.id);
        assert_eq!(Copies::of(second.id, 0).dead, dead.id);
        assert_eq!(Copies::of(second.id, 0).resent, resent.id);
    }
}
