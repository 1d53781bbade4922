//! Handlers, and the context in which they run.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::claim::Token;
use crate::message::{Headers, Message, MessageId};
use crate::outcome::{IntoOutcome, Outcome};
use crate::topic::{GroupName, TopicName};

/// What runs for each message. Any `async` closure that takes a [`Context`] and returns something that
/// [stands for an outcome](IntoOutcome) is one.
pub trait Handler: Send + Sync + 'static {
    /// Handles one message.
    fn call(&self, context: Context) -> BoxFuture<'static, Outcome>;
}

impl<F, R> Handler for F
where
    F: Fn(Context) -> R + Send + Sync + 'static,
    R: Future<Output: IntoOutcome> + Send + 'static,
{
    fn call(&self, context: Context) -> BoxFuture<'static, Outcome> {
        self(context).map(IntoOutcome::into_outcome).boxed()
    }
}

/// One message, and what its handler may want to know.
#[derive(Debug, Clone)]
pub struct Context {
    pub(crate) message: Arc<Message>,
    pub(crate) source: Arc<Source>,
    pub(crate) attempt: u32,
    pub(crate) token: Token,
    // Shared, because cloning a token takes a lock.
    pub(crate) cancelled: Arc<CancellationToken>,
    pub(crate) stopping: Arc<CancellationToken>,
}

/// Where a context's message comes from.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) topic: TopicName,
    pub(crate) group: GroupName,
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

    /// Completes when the result will not be wanted any more: the claim was lost, or the worker is made to stop at once.
    pub async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// True if the result will not be wanted any more.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_cancelled()
    }

    /// Completes when the worker has been asked to stop. It waits for this handler, which may want to hurry.
    pub async fn stopping(&self) {
        self.stopping.cancelled().await;
    }
}
