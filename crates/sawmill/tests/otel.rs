//! Tests of OpenTelemetry: traces from a push to its handlers, and metrics, collected by its in-memory
//! exporters.

#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry::trace::{SpanKind, Status, TraceContextExt, Tracer};
use opentelemetry::{Context as Trace, global};
use opentelemetry_sdk::metrics::data::{AggregatedMetrics, MetricData};
use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use sawmill::{Batch, Context, Outcome, Push, RetryPolicy, Sawmill};

/// The attribute of a span, as text.
fn attribute(span: &SpanData, name: &str) -> Option<String> {
    span.attributes.iter().find(|pair| pair.key.as_str() == name).map(|pair| pair.value.to_string())
}

// A single test, because providers are global to the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trace_goes_from_the_push_to_every_attempt_and_what_happens_is_counted() {
    let plain = Sawmill::open("memory:").await.unwrap();
    plain.create_topic("t").await.unwrap();
    plain.push("t", "x").await.unwrap();
    assert!(
        plain.admin().peek("t", "default", 1).await.unwrap()[0].headers.is_empty(),
        "without a provider nothing is added"
    );

    let spans = InMemorySpanExporter::default();
    let tracers = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
    global::set_tracer_provider(tracers.clone());
    let numbers = InMemoryMetricExporter::default();
    let meters =
        SdkMeterProvider::builder().with_reader(PeriodicReader::builder(numbers.clone()).build()).build();
    global::set_meter_provider(meters.clone());
    sawmill::telemetry::otel::Recorder::new(global::meter("sawmill")).install().unwrap();
    let again = sawmill::telemetry::otel::Recorder::new(global::meter("sawmill")).install().unwrap_err();
    assert!(again.to_string().contains("already"), "{again}");

    let mill = Sawmill::open("memory:").await.unwrap();
    for topic in ["orders", "bills", "rest"] {
        mill.create_topic(topic).await.unwrap();
    }
    let tracer = global::tracer("test");
    let request = Trace::current_with_span(tracer.start("request"));
    let id = {
        use opentelemetry::trace::FutureExt;
        mill.push("orders", "3 planks").with_context(request.clone()).await.unwrap()
    };
    request.span().end();

    let retry = RetryPolicy::retries(1).backoff(Duration::from_millis(1), Duration::from_millis(1));
    let current = Arc::new(Mutex::new(Vec::new()));
    let (seen, next) = (current.clone(), mill.clone());
    let worker = mill
        .worker("orders")
        .retry(retry)
        .start(move |order: Context| {
            let (seen, next) = (seen.clone(), next.clone());
            async move {
                tokio::task::yield_now().await;
                seen.lock().unwrap().push(Trace::current().span().span_context().span_id());
                if order.attempt() == 1 {
                    return Outcome::retry("no saw");
                }
                next.push("bills", Push::new("for 3 planks")).await.unwrap();
                Outcome::Done
            }
        })
        .await
        .unwrap();
    worker.drained().await;
    worker.stop().await;
    let worker = mill.worker("bills").start_batch(Batch::of(10), |_: Vec<Context>| async {}).await.unwrap();
    worker.drained().await;
    worker.stop().await;
    mill.producer("rest").await.unwrap().push("x").await.unwrap();
    mill.push_many("rest", ["a", "b"]).await.unwrap();
    mill.push("nowhere", "x").await.unwrap_err();

    tracers.force_flush().unwrap();
    let spans = spans.get_finished_spans().unwrap();
    let named = |name: &str| -> Vec<&SpanData> { spans.iter().filter(|span| span.name == name).collect() };
    let (request, pushed) = (named("request")[0], named("push orders")[0]);
    assert_eq!(
        (pushed.parent_span_id, &pushed.span_kind),
        (request.span_context.span_id(), &SpanKind::Producer)
    );
    assert_eq!(attribute(pushed, "messaging.message.id"), Some(id.to_string()));
    let handled = named("handle orders");
    assert_eq!(handled.len(), 2, "{handled:?}");
    for (handled, (attempt, outcome)) in handled.iter().zip([("1", "retried"), ("2", "done")]) {
        assert_eq!(handled.parent_span_id, pushed.span_context.span_id());
        assert_eq!(handled.span_context.trace_id(), request.span_context.trace_id(), "one trace");
        assert!(handled.parent_span_is_remote && handled.span_kind == SpanKind::Consumer, "{handled:?}");
        for (name, value) in [
            ("messaging.system", "sawmill"),
            ("messaging.destination.name", "orders"),
            ("messaging.operation.type", "process"),
            ("messaging.consumer.group.name", "default"),
            ("messaging.message.id", &id.to_string()),
            ("sawmill.attempt", attempt),
            ("sawmill.outcome", outcome),
        ] {
            assert_eq!(attribute(handled, name).as_deref(), Some(value), "{name}");
        }
    }
    assert_eq!((&handled[0].status, &handled[1].status), (&Status::error("no saw"), &Status::Unset));
    let in_handlers: Vec<_> = handled.iter().map(|handled| handled.span_context.span_id()).collect();
    assert_eq!(*current.lock().unwrap(), in_handlers, "the span is current while the handler runs");
    let (second, billed) = (named("push bills")[0], named("handle bills")[0]);
    assert_eq!(second.parent_span_id, handled[1].span_context.span_id(), "the trace goes on");
    assert_eq!(billed.parent_span_id, second.span_context.span_id(), "in a batch, too");
    let rest = named("push rest");
    assert_eq!(rest.len(), 2);
    assert_eq!(attribute(rest[1], "messaging.batch.message_count").as_deref(), Some("2"));
    assert!(matches!(named("push nowhere")[0].status, Status::Error { .. }));
    // The headers hold the span in the W3C format, which other programs read.
    let waiting = mill.admin().peek("rest", "default", 10).await.unwrap();
    let parents: Vec<&str> =
        waiting.iter().map(|message| message.headers.text("traceparent").unwrap()).collect();
    let expected = format!("00-{}-{}-01", rest[1].span_context.trace_id(), rest[1].span_context.span_id());
    assert_eq!(parents.iter().filter(|parent| **parent == expected).count(), 2, "{parents:?}");

    meters.force_flush().unwrap();
    let numbers = numbers.get_finished_metrics().unwrap();
    let metrics: Vec<_> = numbers.last().unwrap().scope_metrics().flat_map(|scope| scope.metrics()).collect();
    let find = |name: &str| {
        metrics.iter().find(|metric| metric.name() == name).unwrap_or_else(|| panic!("no {name}"))
    };
    let AggregatedMetrics::U64(MetricData::Sum(finished)) = find("sawmill_finished_total").data() else {
        panic!("a counter is a sum");
    };
    let count = |topic: &str, outcome: &str| -> u64 {
        let fits = finished.data_points().filter(|point| {
            let has = |name: &str, value: &str| {
                point.attributes().any(|pair| pair.key.as_str() == name && pair.value.as_str() == value)
            };
            has("topic", topic) && has("outcome", outcome)
        });
        fits.map(|point| point.value()).sum()
    };
    assert_eq!((count("orders", "done"), count("orders", "retried"), count("bills", "done")), (1, 1, 1));
    let AggregatedMetrics::F64(MetricData::Histogram(took)) = find("sawmill_handler_seconds").data() else {
        panic!("a histogram is one");
    };
    assert_eq!(took.data_points().map(|point| point.count()).sum::<u64>(), 3);
    assert_eq!(find("sawmill_handler_seconds").unit(), "s");
    let AggregatedMetrics::F64(MetricData::Gauge(busy)) = find("sawmill_busy").data() else {
        panic!("a gauge is one");
    };
    assert!(busy.data_points().all(|point| point.value() == 0.0), "nobody is busy any more");
}
