//! Observability: metrics that agree with the ledger, spans and log lines with stable names, and events in
//! the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use sawmill::telemetry::Event;
use sawmill::{Context, OnFailure, Outcome, Push, RetryPolicy, Sawmill, Worker, WorkerBuilder};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};

use super::gated_handler::GatedHandler;
use super::support::{
    LONG_TTL, POLL, Peek, Place, SHORT_TTL, Subject, counted, eventually, group_is, numbered, orders_done,
    soon, topic,
};

// ── metrics ──

/// Records metrics by name and labels.
#[derive(Clone, Default)]
struct Meter {
    numbers: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
    samples: Arc<Mutex<BTreeMap<String, Arc<Samples>>>>,
    described: Arc<Mutex<BTreeSet<String>>>,
}

#[derive(Default)]
struct Samples(Mutex<Vec<f64>>);

impl HistogramFn for Samples {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

fn name_of(key: &Key) -> String {
    let labels: Vec<String> =
        key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
    format!("{}{{{}}}", key.name(), labels.join(","))
}

impl Meter {
    fn number(&self, key: &Key) -> Arc<AtomicU64> {
        self.numbers.lock().unwrap().entry(name_of(key)).or_default().clone()
    }

    fn count(&self, name: &str) -> u64 {
        let numbers = self.numbers.lock().unwrap();
        let number = numbers.get(name).unwrap_or_else(|| panic!("{name} is not among {:?}", numbers.keys()));
        number.load(Ordering::SeqCst)
    }

    fn gauge(&self, name: &str) -> f64 {
        f64::from_bits(self.count(name))
    }

    fn samples(&self, name: &str) -> Vec<f64> {
        self.samples.lock().unwrap()[name].0.lock().unwrap().clone()
    }
}

impl Recorder for Meter {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(name.as_str().to_owned());
    }
    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(name.as_str().to_owned());
    }
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.described.lock().unwrap().insert(name.as_str().to_owned());
    }
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.number(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.samples.lock().unwrap().entry(name_of(key)).or_default().clone())
    }
}

/// Opens both engines, each with the place that must outlive it.
async fn mills(on: Subject) -> [(Option<Place>, Sawmill); 2] {
    let place = on.place();
    let mill = place.mill().await;
    [(None, Sawmill::open("memory:").await.unwrap()), (Some(place), mill)]
}

/// Good messages are done, lazy ones snooze once, weak ones fail twice first, bad ones always fail.
fn says(context: &Context) -> Outcome {
    match (&context.payload()[..], context.attempt()) {
        (b"lazy", _) if context.message().due.is_none() => Outcome::Snooze(Duration::from_millis(20)),
        (b"weak", 1 | 2) | (b"bad", _) => Outcome::retry("no"),
        (b"hopeless", _) => Outcome::dead("never"),
        _ => Outcome::Done,
    }
}

async fn push_some(mill: &Sawmill, name: &str) {
    let words = ["good"; 50].iter().chain(["lazy"; 3].iter()).chain(["weak"; 4].iter());
    let words = words.chain(["bad"; 5].iter()).chain(["hopeless"; 6].iter());
    mill.push_many(name, words.map(|word| Push::new(*word))).await.unwrap();
}

async fn start(builder: WorkerBuilder, gated: &GatedHandler) -> Worker {
    let wait = Duration::from_millis(20);
    let builder = builder.ttl(LONG_TTL).poll(POLL).concurrency(3);
    let builder = builder.retry(RetryPolicy::retries(2).backoff(wait, wait));
    builder.start(gated.seat_that("one", says)).await.unwrap()
}

pub async fn q16_the_counters_agree_with_the_ledger(on: Subject) {
    for (_place, mill) in mills(on).await {
        let meter = Meter::default();
        let _guard = metrics::set_default_local_recorder(&meter);
        topic(&mill, "orders", 2).await;
        push_some(&mill, "orders").await;
        let gated = GatedHandler::open();
        let worker = start(mill.worker("orders"), &gated).await;
        counted("settled", 68, async || {
            let status = mill.admin().status("orders", "default").await.unwrap();
            if status.claimed > 0 { 0 } else { (status.done + status.dead) as usize }
        })
        .await;
        assert_eq!(meter.gauge("sawmill_slots{group=default}"), 3.0);
        let counts = worker.stop().await;

        let status = mill.admin().status("orders", "default").await.unwrap();
        let finished = |outcome: &str| {
            meter.count(&format!("sawmill_finished_total{{topic=orders,group=default,outcome={outcome}}}"))
        };
        assert_eq!(meter.count("sawmill_pushed_total{topic=orders}"), 68);
        assert_eq!((finished("done"), finished("dead"), finished("dropped")), (status.done, status.dead, 0));
        assert_eq!((status.done, status.dead), (57, 11));
        assert_eq!((finished("retried"), finished("snoozed")), (2 * 4 + 2 * 5, 3));
        let started = meter.count("sawmill_started_total{topic=orders,group=default}");
        assert_eq!((started, started), (counts.started, gated.count() as u64));
        let ended = ["done", "dead", "dropped", "retried", "snoozed"].map(finished).iter().sum::<u64>();
        assert_eq!(started, ended, "every start has its end");
        for (name, count) in [
            ("adopted", counts.adopted),
            ("conflicts", counts.conflicts),
            ("rebalances", counts.rebalances),
            ("commits", counts.commits),
            ("reads", counts.reads),
        ] {
            assert_eq!(meter.count(&format!("sawmill_{name}_total{{group=default}}")), count, "{name}");
        }
        assert!(counts.reads > 0 && counts.commits > 0);
        let handlers = meter.samples("sawmill_handler_seconds{topic=orders,group=default}");
        assert_eq!(handlers.len() as u64, started);
        let waits = meter.samples("sawmill_wait_seconds{topic=orders,group=default}");
        assert_eq!(waits.len() as u64, started - 9, "a retry at once has not waited");
        assert!(waits.iter().all(|wait| (0.0..60.0).contains(wait)), "{waits:?}");
        for gauge in ["slots", "busy"] {
            assert_eq!(meter.gauge(&format!("sawmill_{gauge}{{group=default}}")), 0.0, "{gauge}");
        }
        let used = meter.numbers.lock().unwrap().keys().cloned().collect::<Vec<_>>();
        let used: BTreeSet<String> =
            used.iter().map(|name| name.split('{').next().unwrap().to_owned()).collect();
        assert!(used.is_subset(&meter.described.lock().unwrap()), "{used:?}");
    }
}

pub async fn q16_what_runs_twice_is_done_once_for_the_counters_too(on: Subject) {
    let place = on.place();
    let meter = Meter::default();
    let _guard = metrics::set_default_local_recorder(&meter);
    let mill = place.mill().await;
    let orders = topic(&mill, "orders", 1).await;
    mill.push_many("orders", numbered(0..3)).await.unwrap();
    let first = GatedHandler::closed();
    let builder = || mill.worker("orders").concurrency(3).ttl(SHORT_TTL).poll(POLL);
    let slow = builder().start(first.seat("slow")).await.unwrap();
    first.started(3).await;
    // A worker that never works takes over its claim, is declared dead, and the slow one gets it back.
    let peek = Peek::new(&place, &orders, "default");
    let thief = peek.join_silently("thief").await;
    for shard in 0..orders.shards {
        if !peek.shard(shard).await.1.claims.is_empty() {
            peek.take_over(shard, &thief, Default::default()).await;
        }
    }
    first.release_all();
    orders_done(&mill, 3).await;
    slow.stop().await;
    assert!(first.count() > 3, "some ran twice");
    assert_eq!(meter.count("sawmill_finished_total{topic=orders,group=default,outcome=done}"), 3);
    assert_eq!(meter.count("sawmill_started_total{topic=orders,group=default}"), first.count() as u64);
    assert!(meter.count("sawmill_adopted_total{group=default}") >= 1);
}

pub async fn q16_the_busy_slots_are_shown(on: Subject) {
    for (_place, mill) in mills(on).await {
        let meter = Meter::default();
        let _guard = metrics::set_default_local_recorder(&meter);
        topic(&mill, "orders", 1).await;
        let gated = GatedHandler::closed();
        let worker = start(mill.worker("orders"), &gated).await;
        mill.push_many("orders", numbered(0..2)).await.unwrap();
        eventually("two are busy", async || meter.gauge("sawmill_busy{group=default}") == 2.0).await;
        gated.release_all();
        eventually("none is busy", async || meter.gauge("sawmill_busy{group=default}") == 0.0).await;
        worker.stop().await;
    }
}

// ── traces and logs ──

/// Records spans and events with their fields.
#[derive(Clone, Default)]
struct TraceRecorder {
    spans: Arc<Mutex<Vec<Fields>>>,
    events: Arc<Mutex<Vec<(&'static str, Fields)>>>,
    inside: Arc<Mutex<Vec<u64>>>,
}

#[derive(Clone, Default, Debug)]
struct Fields(BTreeMap<&'static str, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl Subscriber for TraceRecorder {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "sawmill" || metadata.target() == "test"
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        assert_eq!(span.metadata().name(), "sawmill.handle");
        let mut fields = Fields::default();
        span.record(&mut fields);
        let mut spans = self.spans.lock().unwrap();
        spans.push(fields);
        Id::from_u64(spans.len() as u64)
    }
    fn record(&self, span: &Id, values: &Record<'_>) {
        values.record(&mut self.spans.lock().unwrap()[span.into_u64() as usize - 1]);
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if event.metadata().target() == "test" {
            let inside = self.inside.lock().unwrap().last().copied();
            fields.0.insert("inside", inside.map(|id| id.to_string()).unwrap_or_default());
        }
        self.events.lock().unwrap().push((event.metadata().name(), fields));
    }
    fn enter(&self, span: &Id) {
        self.inside.lock().unwrap().push(span.into_u64());
    }
    fn exit(&self, _: &Id) {
        self.inside.lock().unwrap().pop();
    }
}

impl TraceRecorder {
    fn named(&self, name: &str) -> Vec<BTreeMap<&'static str, String>> {
        let events = self.events.lock().unwrap();
        events.iter().filter(|(told, _)| *told == name).map(|(_, fields)| fields.0.clone()).collect()
    }
}

pub async fn q16_each_run_has_a_span_and_each_step_a_line(on: Subject) {
    for (_place, mill) in mills(on).await {
        let book = TraceRecorder::default();
        let _guard = tracing::subscriber::set_default(book.clone());
        topic(&mill, "orders", 1).await;
        let handler = |context: Context| async move {
            tracing::info!(target: "test", payload = ?context.payload(), "in the handler");
            says(&context)
        };
        let builder = mill.worker("orders").concurrency(1).name("press").ttl(LONG_TTL).poll(POLL);
        let builder = builder.retry(RetryPolicy::retries(1)).on_failure(OnFailure::Dead);
        let worker = builder.start(handler).await.unwrap();
        let me = worker.state().id.unwrap().to_string();
        let good = mill.push("orders", "good").await.unwrap().to_string();
        let bad = mill.push("orders", "bad").await.unwrap().to_string();
        group_is(&mill, "orders", "default", "it is given up", |status| status.dead == 1).await;
        worker.drained().await;
        worker.stop().await;

        let spans: Vec<_> = book.spans.lock().unwrap().iter().map(|fields| fields.0.clone()).collect();
        let of = |span: &BTreeMap<&str, String>| {
            (span["id"].clone(), span["attempt"].clone(), span["outcome"].clone())
        };
        let mut seen: Vec<_> = spans.iter().map(of).collect();
        seen.sort();
        let mut wanted = vec![
            (good.clone(), "1".to_owned(), "done".to_owned()),
            (bad.clone(), "1".to_owned(), "retried".to_owned()),
            (bad.clone(), "2".to_owned(), "dead".to_owned()),
        ];
        wanted.sort();
        assert_eq!(seen, wanted);
        for span in &spans {
            assert_eq!((&*span["topic"], &*span["group"], &span["worker"]), ("orders", "default", &me));
            assert!(span["token"].parse::<u64>().unwrap() > 0);
        }
        let lines: Vec<_> = book.events.lock().unwrap().clone();
        let inside: Vec<_> = lines.iter().filter_map(|(_, fields)| fields.0.get("inside")).cloned().collect();
        assert_eq!(inside, ["1", "2", "3"], "what a handler logs is inside its span");

        let push = book.named("sawmill.push");
        assert_eq!((push.len(), &push[0]["id"], &*push[0]["count"]), (2, &good, "1"));
        let retry = book.named("sawmill.retry");
        assert_eq!(
            (retry.len(), &retry[0]["id"], &*retry[0]["error"], &*retry[0]["next_ms"]),
            (1, &bad, "no", "0")
        );
        let dead = book.named("sawmill.dead");
        assert_eq!((dead.len(), &dead[0]["id"], &dead[0]["worker"]), (1, &bad, &me));
        assert!(dead[0]["reason"].contains("out of attempts"), "{dead:?}");
        let claimed = book.named("sawmill.claim");
        assert_eq!(claimed.iter().map(|claim| claim["count"].parse::<u64>().unwrap()).sum::<u64>(), 2);
        for name in ["sawmill.join", "sawmill.leave", "sawmill.rebalance"] {
            let told = book.named(name);
            assert_eq!((told.len(), &told[0]["worker"], &*told[0]["group"]), (1, &me, "default"), "{name}");
        }
    }
}

pub async fn q14_trouble_with_the_store_is_told_when_it_begins_and_when_it_is_over(on: Subject) {
    let book = TraceRecorder::default();
    let _guard = tracing::subscriber::set_default(book.clone());
    let place = on.place();
    let faulty = place.faulty();
    topic(&place.mill().await, "orders", 1).await;
    let gated = GatedHandler::open();
    let worker =
        faulty.mill().worker("orders").ttl(SHORT_TTL).poll(POLL).start(gated.seat("one")).await.unwrap();
    eventually("it has joined", async || worker.state().id.is_some()).await;
    assert_eq!(book.named("sawmill.trouble").len(), 0);

    faulty.is_down(true);
    eventually("the coordinator and the heartbeat report it", async || {
        book.named("sawmill.trouble").len() == 2
    })
    .await;
    let refused = faulty.refused();
    eventually("it keeps trying", async || faulty.refused() > refused + 20).await;
    let trouble = book.named("sawmill.trouble");
    assert_eq!(trouble.len(), 2, "each of many tries is not told: {trouble:?}");
    assert!(
        trouble.iter().all(|told| told["group"] == "default" && !told["error"].is_empty()),
        "{trouble:?}"
    );
    assert_eq!(book.named("sawmill.recovered").len(), 0);

    faulty.is_down(false);
    eventually("both tell that it is over", async || book.named("sawmill.recovered").len() == 2).await;
    worker.stop().await;
}

// ── events ──

pub async fn q16_events_tell_a_messages_story(on: Subject) {
    for (_place, mill) in mills(on).await {
        topic(&mill, "orders", 1).await;
        let mut events = mill.events();
        let builder =
            mill.worker("orders").concurrency(1).ttl(LONG_TTL).poll(POLL).retry(RetryPolicy::retries(1));
        let worker = builder.start(|context: Context| async move { says(&context) }).await.unwrap();
        let me = worker.state().id.unwrap();
        let bad = mill.push("orders", "bad").await.unwrap();
        let mut story = Vec::new();
        soon("it is given up", async {
            while !matches!(story.last(), Some(Event::Dead { .. })) {
                story.push(events.next().await.unwrap());
            }
        })
        .await;
        let good = mill.push("orders", "good").await.unwrap();
        soon("it is done", async {
            while !matches!(story.last(), Some(Event::Done { .. })) {
                story.push(events.next().await.unwrap());
            }
        })
        .await;
        worker.stop().await;
        drop((worker, mill));
        // The worker's tasks may hold the store for a moment longer.
        soon("the stream ends", async {
            while let Some(event) = events.next().await {
                story.push(event);
            }
        })
        .await;

        let (topic, group): (sawmill::engine::model::TopicName, sawmill::engine::model::GroupName) =
            ("orders".parse().unwrap(), "default".parse().unwrap());
        story.retain(|event| !matches!(event, Event::Rebalanced { workers: 1, .. }));
        // The pushed event may come after a worker has already received the message.
        let (pushed, story): (Vec<_>, Vec<_>) =
            story.into_iter().partition(|event| matches!(event, Event::Pushed { .. }));
        let push = |id| Event::Pushed { topic: topic.clone(), id, count: 1 };
        assert_eq!(pushed, [push(bad), push(good)]);
        let started = |id, attempt| Event::Started {
            topic: topic.clone(),
            group: group.clone(),
            id,
            worker: me.clone(),
            attempt,
        };
        let failed = |attempt, next| Event::Failed {
            topic: topic.clone(),
            group: group.clone(),
            id: bad,
            worker: me.clone(),
            attempt,
            error: "no".to_owned(),
            next,
        };
        let reason = "out of attempts after 2: no".to_owned();
        assert_eq!(
            story,
            [
                Event::Joined { group: group.clone(), worker: me.clone() },
                started(bad, 1),
                failed(1, Some(Duration::ZERO)),
                started(bad, 2),
                failed(2, None),
                Event::Dead {
                    topic: topic.clone(),
                    group: group.clone(),
                    id: bad,
                    worker: me.clone(),
                    reason
                },
                started(good, 1),
                Event::Done {
                    topic: topic.clone(),
                    group: group.clone(),
                    id: good,
                    worker: me.clone(),
                    attempt: 1
                },
                Event::Left { group: group.clone(), worker: me.clone() },
            ]
        );
    }
}

pub async fn q16_a_listener_that_sleeps_slows_nobody_and_is_told_what_it_missed(on: Subject) {
    for (_place, mill) in mills(on).await {
        topic(&mill, "orders", 4).await;
        let mut asleep = mill.events();
        mill.push_many("orders", numbered(0..5000)).await.unwrap();
        let worker = mill.worker("orders").ttl(LONG_TTL).start(|_: Context| async {}).await.unwrap();
        soon("all is worked", worker.drained()).await;
        assert_eq!(worker.stop().await.done, 5000);
        let (mut heard, mut missed) = (0, 0);
        while let Some(event) = asleep.try_next() {
            match event {
                Event::Missed(count) => missed += count,
                Event::Started { .. } | Event::Done { .. } => heard += 1,
                _ => {}
            }
        }
        assert!((1000..=1024).contains(&heard), "{heard}");
        assert!(heard + missed >= 10_000 && missed < 10_000, "{heard} {missed}");
    }
}
