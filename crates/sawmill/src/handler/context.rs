//! The context in which a handler runs.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::{Notes, States};
use crate::cancel::{self, Cancels};
use crate::claim::Token;
use crate::clock::Moment;
use crate::draft::Finishes;
use crate::message::{Headers, Message, MessageId};
use crate::mill::Sawmill;
use crate::topic::{GroupName, TopicName};

/// One message, and what its handler may want to know.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) message: Arc<Message>,
    pub(crate) source: Arc<Source>,
    pub(crate) attempt: u32,
    pub(crate) token: Token,
    pub(crate) began: Moment,
    pub(crate) cancelled: Arc<CancellationToken>,
}

/// Where a context's message comes from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) site: Arc<Site>,
}

/// What all handlers of a worker have in common.
pub(crate) struct Site {
    pub(crate) mill: Sawmill,
    pub(crate) states: States,
    pub(crate) notes: Notes,
    pub(crate) finishes: Finishes,
    /// The messages that were cancelled, as far as the worker knows.
    pub(crate) cancels: Cancels,
    /// The worker has been asked to stop.
    pub(crate) stopping: CancellationToken,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("states", &self.states).finish_non_exhaustive()
    }
}

impl Context {
    /// The id that the push returned, the same at every attempt.
    pub fn id(&self) -> MessageId {
        self.message.origin()
    }

    /// What the message says.
    pub fn payload(&self) -> &Bytes {
        &self.message.payload
    }

    /// Its key, if it has one.
    pub fn key(&self) -> Option<&Bytes> {
        self.message.key.as_ref()
    }

    /// The headers that the pusher gave it.
    pub fn headers(&self) -> Headers {
        self.message.own_headers()
    }

    /// The message as it lies in the log: at a retry a copy, with an id and headers of its own.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The name of the topic it was pushed to.
    pub fn topic(&self) -> &str {
        self.source.topic.base()
    }

    /// The group in which it is handled.
    pub fn group(&self) -> &GroupName {
        &self.source.group
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The fencing number of the claim: pass it on to systems that can refuse an older one.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Completes when the result will not be wanted any more: the claim was lost, the time limit is over, the worker is made
    /// to stop at once, or a person has [cancelled](crate::Sawmill::cancel) the message.
    pub async fn cancelled(&self) {
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => {}
            () = cancel::cancelled(&self.source.site.cancels, &self.message) => {}
        }
    }

    /// True if the result will not be wanted any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled() || self.source.site.cancels.borrow().contains(&self.message)
    }

    /// Completes when the worker has been asked to stop. It waits for this handler, which may want to hurry.
    pub async fn stopping(&self) {
        self.source.site.stopping.cancelled().await;
    }

    /// Says how far it is, for people: [`Sawmill::members`](crate::Sawmill::members) shows it while the message runs. A new
    /// note takes the place of the last one.
    ///
    /// Others see it within about a second. A note is cut to 200 bytes, and a worker shows those of 100 messages at most.
    ///
    /// ```
    /// use sawmill::{Context, Sawmill};
    ///
    /// async fn import(file: Context) {
    ///     for row in 0..1000 {
    ///         if row % 100 == 0 {
    ///             file.note(format!("{row} of 1000 rows"));
    ///         }
    ///     }
    /// }
    /// # let _ = import;
    /// ```
    pub fn note(&self, note: impl Into<String>) {
        let site = &self.source.site;
        site.notes.set(self, note.into(), site.mill.env());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The context of a message with this number, at a site of its own.
    pub(crate) fn context(number: u128) -> Context {
        let memory = Arc::new(crate::memory::Memory::new());
        let site = Site {
            mill: Sawmill::from_parts(memory.clone(), memory, crate::env::Env::system()),
            states: States::default(),
            notes: Notes::default(),
            finishes: Finishes::default(),
            cancels: Cancels::default(),
            stopping: CancellationToken::new(),
        };
        context_at(number, &Arc::new(site))
    }

    pub(crate) fn context_at(number: u128, site: &Arc<Site>) -> Context {
        let message = Message {
            id: MessageId::from_u128(number),
            key: None,
            payload: Bytes::from(number.to_string()),
            headers: Headers::default(),
            due: None,
            created: Default::default(),
        };
        let (topic, group) = ("orders".parse().unwrap(), "default".parse().unwrap());
        Context {
            message: Arc::new(message),
            source: Arc::new(Source { topic, group, site: site.clone() }),
            attempt: 1,
            token: Token(1),
            began: site.mill.env().now(),
            cancelled: Arc::default(),
        }
    }

    #[test]
    fn a_context_is_told_of_the_end() {
        let context = context(1);
        assert!(!context.is_cancelled());
        context.cancelled.cancel();
        assert!(context.clone().is_cancelled());
    }
}
