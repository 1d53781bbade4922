//! OpenTelemetry: traces from a push to the handlers of the message, and metrics. Needs the feature `otel`.
//!
//! Traces need no call: install a tracer provider
//! ([`set_tracer_provider`](opentelemetry::global::set_tracer_provider)) to get these spans, from the tracer
//! `sawmill`:
//!
//! | span | kind | parent | around |
//! |---|---|---|---|
//! | `push TOPIC` | producer | the span that is current at the push | a call that pushes, until the messages are durable |
//! | `handle TOPIC` | consumer | the span `push TOPIC` of the message | each run of a handler; current while a handler of single messages runs |
//!
//! | attribute | of | what |
//! |---|---|---|
//! | `messaging.system` | both | `sawmill` |
//! | `messaging.destination.name` | both | the topic |
//! | `messaging.operation.type` | both | `send` or `process` |
//! | `messaging.batch.message_count` | push | the number of messages, unless it is one |
//! | `messaging.message.id` | both | the id that the push returned; left out for several messages |
//! | `messaging.consumer.group.name` | handle | the group |
//! | `sawmill.attempt` | handle | the number of the attempt, from 1 |
//! | `sawmill.outcome` | handle | the field [`outcome`](crate::telemetry) of the span for logs |
//!
//! If the push or the attempt failed, the status of the span is an error with its text.
//!
//! The context travels in the message's headers `traceparent` and `tracestate`, in the W3C format: across
//! stores and processes, and to programs in other languages. A message that already has a `traceparent` keeps
//! it. Without a provider nothing is added. A [draft](crate::Sawmill::draft) carries the context in which it
//! was made, and has no span of its own.
//!
//! [`Recorder`] forwards the [metrics](crate::telemetry#metrics).

mod recorder;

use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState};
use sawmill_engine::model::Headers;

pub use recorder::Recorder;

const PARENT: &str = "traceparent";
const STATE: &str = "tracestate";

/// Returns the context that a message carries; an empty one if it carries none. Batch handlers and programs
/// that [pull](crate::Puller) need it, because no span is current there.
pub fn context_of(headers: &Headers) -> Context {
    let carried = headers.text(PARENT).and_then(|parent| read(parent, headers.text(STATE)));
    carried.map_or_else(Context::new, |carried| Context::new().with_remote_span_context(carried))
}

/// Adds the current context, if there is one, to the headers of a message that does not carry one yet.
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

/// Parses the span context of these headers. Later versions of the format may append more fields.
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
    // An invalid `tracestate` must not lose the trace.
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
        assert_eq!(headers, sent, "a carried context stays");
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
