//! OpenTelemetry: traces that go from a push to the handlers of the message, and metrics. With the feature `otel`.
//!
//! Nothing is to be called for traces. Whoever installs a tracer provider
//! ([`set_tracer_provider`](opentelemetry::global::set_tracer_provider)) gets these spans, from the tracer `sawmill`:
//!
//! | span | kind | parent | around |
//! |---|---|---|---|
//! | `push TOPIC` | producer | the span that is current where it is pushed | a call that pushes, until the messages are durable |
//! | `handle TOPIC` | consumer | the span `push TOPIC` of the message | each run of a handler; current while a handler of single messages runs |
//!
//! | attribute | of | what |
//! |---|---|---|
//! | `messaging.system` | both | `sawmill` |
//! | `messaging.destination.name` | both | the topic |
//! | `messaging.operation.type` | both | `send` or `process` |
//! | `messaging.batch.message_count` | push | how many messages, if they are several |
//! | `messaging.message.id` | both | the id that the push returned; for several messages left out |
//! | `messaging.consumer.group.name` | handle | the group |
//! | `sawmill.attempt` | handle | which attempt, from 1 |
//! | `sawmill.outcome` | handle | as the field [`outcome`](crate::observe) of the span for logs |
//!
//! The status of a span is an error, with the words, if the push failed, or if the attempt did.
//!
//! The context travels in the headers `traceparent` and `tracestate` of the message, as the W3C writes them, across stores and
//! processes, and to programs in other languages. A message that has a `traceparent` keeps it. Where there is no provider,
//! nothing is added. A [draft](crate::Sawmill::draft) carries the context in which it is made, and has no span of its own.
//!
//! [`Recorder`] hands the [metrics](crate::observe#metrics) on.

mod recorder;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};

use crate::message::Headers;
pub use recorder::Recorder;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// The context that a message carries, empty if it carries none: for batches, and for messages that are
/// [pulled](crate::Puller), whose span cannot be current by itself.
pub fn context_of(headers: &Headers) -> Context {
    let carried = headers.text(PARENT).and_then(|parent| read(parent, headers.text(STATE)));
    carried.map_or_else(Context::new, |carried| Context::new().with_remote_span_context(carried))
}

/// Lets a message carry the current context, if there is one, and it does not carry another.
pub(crate) fn carry(headers: &mut Headers) {
    if headers.get(PARENT).is_some() {
        return;
    }
    Context::map_current(|current| {
        let span = current.span();
        let span = span.span_context();
        if span.is_valid() {
            let flags = span.trace_flags() & TraceFlags::SAMPLED;
            headers.set(PARENT, format!("00-{}-{}-{flags:02x}", span.trace_id(), span.span_id()));
            let state = span.trace_state().header();
            if !state.is_empty() {
                headers.set(STATE, state);
            }
        }
    });
}

/// The span that these headers name. Later versions may say more, after what the first one says.
fn read(parent: &str, state: Option<&str>) -> Option<SpanContext> {
    let mut parts = parent.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_hex = |text: &str, digits: usize| {
        text.len() == digits && text.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_known = version != "ff" && (version != "00" || parts.next().is_none());
    if !is_known || !is_hex(version, 2) || !is_hex(trace, 32) || !is_hex(span, 16) || !is_hex(flags, 2) {
        return None;
    }
    let flags = TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED;
    // A state that cannot be read is no reason to lose the trace.
    let state: TraceState = state.and_then(|state| state.parse().ok()).unwrap_or_default();
    let trace = TraceId::from_hex(trace).ok()?;
    let read = SpanContext::new(trace, SpanId::from_hex(span).ok()?, flags, true, state);
    read.is_valid().then_some(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT_TEXT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_context_is_read_back_from_the_headers() {
        let sent: Headers = [(PARENT, PARENT_TEXT), (STATE, "a=1,b=2")].into_iter().collect();
        let _current = context_of(&sent).attach();
        let mut headers = Headers::default();
        carry(&mut headers);
        assert_eq!(headers, sent);
        carry(&mut headers);
        assert_eq!(headers, sent, "what it carries stays");
    }

    #[test]
    fn what_is_no_context_is_none() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333é-01",
        ] {
            assert!(read(text, None).is_none(), "{text}");
        }
        let later = format!("{}-more", PARENT_TEXT.replacen("00", "cc", 1));
        assert!(read(&later, Some("=")).is_some_and(|read| read.is_sampled() && read.is_remote()));
    }

    #[test]
    fn nothing_is_carried_where_there_is_no_trace() {
        let mut headers = Headers::default();
        carry(&mut headers);
        assert!(headers.is_empty());
    }
}
