//! The context of a handler: its message, and the calls a handler may make.

use std::sync::Arc;

use bytes::Bytes;
use sawmill_engine::model::{GroupName, Headers, Message, MessageId, Token, TopicName};
use sawmill_engine::runtime::{Moment, Timestamp};
use tokio_util::sync::CancellationToken;

use super::{Finishes, Notes, States};
use crate::store::Store;
use crate::store::cancel::{Cancellations, cancelled};

/// A handler argument: the message, its attempt, and signals such as cancellation.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) message: Arc<Message>,
    pub(crate) source: Arc<Origin>,
    pub(crate) attempt: u32,
    pub(crate) token: Token,
    pub(crate) began: Moment,
    pub(crate) cancelled: Arc<CancellationToken>,
}

/// The topic, group and worker of a context's message.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
    pub(crate) site: Arc<Site>,
}

/// The state that all contexts of a worker share.
pub(crate) struct Site {
    pub(crate) store: Arc<Store>,
    pub(crate) states: States,
    pub(crate) notes: Notes,
    pub(crate) finishes: Finishes,
    /// The cancelled messages that the worker knows of.
    pub(crate) cancellations: Cancellations,
    /// Cancelled when the worker is asked to stop.
    pub(crate) stopping: CancellationToken,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("states", &self.states).finish_non_exhaustive()
    }
}

impl Context {
    /// Returns the id that the push returned. It is the same at every attempt.
    pub fn id(&self) -> MessageId {
        self.message.origin()
    }

    /// Returns the payload.
    pub fn payload(&self) -> &Bytes {
        &self.message.payload
    }

    /// Returns the key, if the message has one.
    pub fn key(&self) -> Option<&Bytes> {
        self.message.key.as_ref()
    }

    /// Returns the headers that the message was pushed with.
    pub fn headers(&self) -> Headers {
        self.message.own_headers()
    }

    /// Returns the message as it is in the log: at a retry a copy, with its own id and headers.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// Returns the name of the topic that the message was pushed to.
    pub fn topic(&self) -> &str {
        self.source.topic.base()
    }

    /// Returns the group in which the message is handled.
    pub fn group(&self) -> &GroupName {
        &self.source.group
    }

    /// Returns the number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the fencing number of the claim. Pass it on to systems that can refuse an older one.
    pub fn token(&self) -> Token {
        self.token
    }

    /// Completes when the result is no longer wanted: the claim was lost, the time limit is over, the worker
    /// was aborted, or the message was [cancelled](crate::Sawmill::cancel).
    pub async fn cancelled(&self) {
        tokio::select! {
            biased;
            () = self.cancelled.cancelled() => {}
            () = cancelled(&self.source.site.cancellations, &self.message) => {}
        }
    }

    /// Returns true if the result is no longer wanted; see [`cancelled`](Context::cancelled).
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled() || self.source.site.cancellations.borrow().contains(&self.message)
    }

    /// Returns the time of the tick, if a [`Schedule`](crate::Schedule) pushed the message. The handler may
    /// run later than that, if there was no worker at the time.
    pub fn tick(&self) -> Option<Timestamp> {
        self.message.tick()
    }

    /// Completes when the worker is asked to stop. The worker waits for this handler, which may use this to
    /// end early.
    pub async fn stopping(&self) {
        self.source.site.stopping.cancelled().await;
    }

    /// Publishes a note on the handler's progress, for people.
    /// [`Admin::workers`](crate::admin::Admin::workers) shows it while the message runs. A new note replaces
    /// the last one.
    ///
    /// Other processes see a note within about a second. Notes are cut to 200 bytes, and a worker publishes
    /// those of at most 100 messages.
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
        site.notes.set(self, note.into(), site.store.env());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Makes the context of a message with this number, with a site of its own.
    pub(crate) fn context(number: u128) -> Context {
        let memory = Arc::new(sawmill_engine::storage::Memory::new());
        let site = Site {
            store: Arc::new(Store::new(
                memory.clone(),
                memory,
                sawmill_engine::runtime::Env::system(),
                Vec::new(),
            )),
            states: States::default(),
            notes: Notes::default(),
            finishes: Finishes::default(),
            cancellations: Cancellations::default(),
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
            source: Arc::new(Origin { topic, group, site: site.clone() }),
            attempt: 1,
            token: Token(1),
            began: site.store.env().now(),
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
