//! The spans around a push and around a run of a handler. Those of `tracing` are for logs and always there; those of
//! OpenTelemetry are there with the feature `otel`, and without it cost nothing.

use tracing::{Instrument, Span};

#[cfg(feature = "otel")]
use opentelemetry::trace::{FutureExt, SpanBuilder, SpanKind, Status, TraceContextExt};
#[cfg(feature = "otel")]
use opentelemetry::{Context, KeyValue, global};

use crate::error::Result;
use crate::handler::Source;
use crate::message::{Message, MessageId};
use crate::topic::TopicName;

/// The span of a call that pushes.
pub(crate) struct PushSpan {
    #[cfg(feature = "otel")]
    context: Context,
}

#[cfg_attr(not(feature = "otel"), allow(unused_variables, clippy::unused_self, reason = "nobody is told"))]
impl PushSpan {
    pub(crate) fn new(topic: &TopicName, count: usize) -> Self {
        #[cfg(feature = "otel")]
        {
            let mut more = vec![KeyValue::new("messaging.operation.type", "send")];
            if count != 1 {
                more.push(KeyValue::new("messaging.batch.message_count", count as i64));
            }
            Self { context: begin("push", topic, SpanKind::Producer, more, &Context::current()) }
        }
        #[cfg(not(feature = "otel"))]
        Self {}
    }

    /// Does this within the span: messages that are made here carry it.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        #[cfg(feature = "otel")]
        let _current = self.context.clone().attach();
        work()
    }

    /// What came of it.
    pub(crate) fn end(&self, pushed: Result<&[MessageId], &crate::Error>) {
        #[cfg(feature = "otel")]
        {
            let span = self.context.span();
            match pushed {
                Ok([id]) => span.set_attribute(KeyValue::new("messaging.message.id", id.to_string())),
                Ok(_) => {}
                Err(error) => span.set_status(Status::error(error.to_string())),
            }
            span.end();
        }
    }
}

/// The span of one run of a handler.
pub(crate) struct HandleSpan {
    log: Span,
    #[cfg(feature = "otel")]
    context: Context,
}

#[cfg_attr(not(feature = "otel"), allow(unused_variables, reason = "nobody else is told"))]
impl HandleSpan {
    /// The span for logs is made within the other one, so that what bridges the two knows them as parent and child.
    pub(crate) fn new(message: &Message, source: &Source, attempt: u32, log: impl FnOnce() -> Span) -> Self {
        #[cfg(feature = "otel")]
        {
            let more = vec![
                KeyValue::new("messaging.operation.type", "process"),
                KeyValue::new("messaging.consumer.group.name", source.group.to_string()),
                KeyValue::new("messaging.message.id", message.origin().to_string()),
                KeyValue::new("sawmill.attempt", i64::from(attempt)),
            ];
            let parent = crate::otel::context_of(&message.headers);
            let context = begin("handle", &source.topic, SpanKind::Consumer, more, &parent);
            let current = context.clone().attach();
            let log = log();
            drop(current);
            Self { log, context }
        }
        #[cfg(not(feature = "otel"))]
        Self { log: log() }
    }

    /// Runs the handler within the span.
    pub(crate) async fn around<T>(&self, run: impl Future<Output = T>) -> T {
        let run = run.instrument(self.log.clone());
        #[cfg(feature = "otel")]
        let run = run.with_context(self.context.clone());
        run.await
    }

    pub(crate) fn in_scope<T>(&self, work: impl FnOnce() -> T) -> T {
        self.log.in_scope(work)
    }

    /// What came of it, and what was wrong if it failed.
    pub(crate) fn end(&self, outcome: &'static str, error: Option<&str>) {
        self.log.record("outcome", outcome);
        #[cfg(feature = "otel")]
        {
            let span = self.context.span();
            span.set_attribute(KeyValue::new("sawmill.outcome", outcome));
            if let Some(error) = error {
                span.set_status(Status::error(error.to_owned()));
            }
            span.end();
        }
    }
}

#[cfg(feature = "otel")]
fn begin(
    operation: &str,
    topic: &TopicName,
    kind: SpanKind,
    more: Vec<KeyValue>,
    parent: &Context,
) -> Context {
    let mut attributes = vec![
        KeyValue::new("messaging.system", "sawmill"),
        KeyValue::new("messaging.destination.name", topic.base().to_owned()),
    ];
    attributes.extend(more);
    let builder = SpanBuilder::from_name(format!("{operation} {}", topic.base()));
    let builder = builder.with_kind(kind).with_attributes(attributes);
    parent.with_span(builder.start_with_context(&global::tracer("sawmill"), parent))
}
