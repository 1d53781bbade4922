//! The spans around a push and around each run of a handler. Spans of `tracing` are for logs and always
//! present. Spans of OpenTelemetry need the feature `otel`; without it they cost nothing.

#[cfg(feature = "otel")]
use opentelemetry::trace::{FutureExt, SpanBuilder, SpanKind, Status, TraceContextExt};
#[cfg(feature = "otel")]
use opentelemetry::{Context, KeyValue, global};
use sawmill_engine::Result;
use sawmill_engine::model::{GroupName, Message, MessageId, TopicName};
use tracing::{Instrument, Span};

/// The span of a call that pushes.
pub(crate) struct PushSpan {
    #[cfg(feature = "otel")]
    context: Context,
}

#[cfg_attr(not(feature = "otel"), allow(unused_variables, clippy::unused_self, reason = "used with otel"))]
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

    /// Runs `work` within the span. Messages that it makes carry the span.
    pub(crate) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        #[cfg(feature = "otel")]
        let _current = self.context.clone().attach();
        work()
    }

    /// Ends the span with the result of the push.
    pub(crate) fn end(&self, pushed: Result<&[MessageId], &sawmill_engine::Error>) {
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

#[cfg_attr(not(feature = "otel"), allow(unused_variables, reason = "used with otel"))]
impl HandleSpan {
    /// Makes the spans. The one for logs is made within the other, so a bridge between the two sees them as
    /// parent and child.
    pub(crate) fn new(
        message: &Message,
        (topic, group): (&TopicName, &GroupName),
        attempt: u32,
        log: impl FnOnce() -> Span,
    ) -> Self {
        #[cfg(feature = "otel")]
        {
            let more = vec![
                KeyValue::new("messaging.operation.type", "process"),
                KeyValue::new("messaging.consumer.group.name", group.to_string()),
                KeyValue::new("messaging.message.id", message.origin().to_string()),
                KeyValue::new("sawmill.attempt", i64::from(attempt)),
            ];
            let parent = super::otel::context_of(&message.headers);
            let context = begin("handle", topic, SpanKind::Consumer, more, &parent);
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

    /// Ends the span with the outcome of the run, and its error if it failed.
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
