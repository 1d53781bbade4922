//! Failures: retried at once, then later, then given up with the full history; an operator may resend the
//! message.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::admin::DeadLetterSelection;
use sawmill::{Delivery, ErrorKind, MessageId, OnFailure, Outcome, Push, RetryPolicy};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::gated_handler::GatedHandler;
use super::support::{LONG_TTL, POLL, Subject, eventually, group_is, topic};

pub async fn f7_an_error_is_tried_again_at_once_and_then_marked(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    topic(&mill, "orders", 1).await;
    let hour = Duration::from_secs(3600);
    let gated = GatedHandler::open();
    let builder = mill.worker("orders").concurrency(1).ttl(LONG_TTL).poll(POLL);
    let builder = builder.retry(RetryPolicy::retries(5).backoff(hour, hour));
    let worker = builder.start(gated.seat_that("one", |_| Outcome::retry("no"))).await.unwrap();
    mill.push("orders", "0").await.unwrap();
    group_is(&mill, "orders", "default", "it is marked", |status| status.retrying == 1).await;
    worker.drained().await;
    let attempts: Vec<u32> = gated.runs().iter().map(|run| run.context.attempt()).collect();
    assert_eq!(attempts, [1, 2], "one retry at once, and the next one not before its time");
    let tokens: Vec<_> = gated.runs().iter().map(|run| run.context.token()).collect();
    assert_eq!(tokens[0], tokens[1], "in place, under the same claim");
    let status = mill.admin().status("orders", "default").await.unwrap();
    assert_eq!((status.done, status.claimed, status.waiting, status.dead), (0, 0, 0, 0), "{status:?}");
    assert_eq!(worker.stop().await.failed, 2);
}

pub async fn f8_what_failed_is_tried_again_later(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    topic(&mill, "orders", 1).await;
    let (wait, gated) = (Duration::from_millis(400), GatedHandler::open());
    let builder = mill.worker("orders").concurrency(1).ttl(LONG_TTL).poll(POLL);
    let builder = builder.retry(RetryPolicy::retries(4).backoff(wait, wait));
    let says = |context: &sawmill::Context| match context.attempt() {
        1..=3 => Outcome::retry("not yet"),
        _ => Outcome::Done,
    };
    let worker = builder.start(gated.seat_that("one", says)).await.unwrap();
    let id = mill.push("orders", Push::new("0").key("k").header("lang", "en")).await.unwrap();
    gated.ended(4).await;
    let runs = gated.runs();
    for (pair, attempt) in runs.windows(2).zip(2..) {
        let (before, after) = (&pair[0], &pair[1]);
        assert_eq!((after.context.id(), after.context.attempt()), (id, attempt));
        assert_eq!(after.context.headers().text("lang"), Some("en"));
        if attempt > 2 {
            // Jitter shortens a wait by up to a quarter.
            assert!(after.at.since(before.at) >= wait * 3 / 4, "{:?} {:?}", before.at, after.at);
            assert!(after.at >= after.context.message().due.unwrap());
        }
    }
    group_is(&mill, "orders", "default", "it is done", |status| status.done == 1).await;
    assert_eq!(worker.stop().await.failed, 3);
    assert_eq!(gated.count(), 4);
}

pub async fn q13_a_failed_task_is_kept_with_its_origin_and_retried_on_demand(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    topic(&mill, "orders", 2).await;
    let gated = GatedHandler::open();
    let builder = mill.worker("orders").name("press").ttl(LONG_TTL).poll(POLL);
    let builder = builder.retry(RetryPolicy::retries(1));
    let says = |context: &sawmill::Context| Outcome::retry(format!("jam {}", context.attempt()));
    let worker = builder.start(gated.seat_that("one", says)).await.unwrap();
    let me = worker.state().id.unwrap();
    let id = mill.push("orders", Push::new("paper").key("k").header("lang", "en")).await.unwrap();
    let dead = mill.admin().dead_letters("orders", "default").await.unwrap();
    eventually("it is given up", async || dead.list(10).await.unwrap().len() == 1).await;
    let letter = dead.show(id).await.unwrap();
    assert_eq!(letter.id(), id);
    assert_eq!(letter.message.payload, "paper");
    assert_eq!(letter.message.key.as_deref(), Some(&b"k"[..]));
    assert_eq!(letter.message.own_headers().text("lang"), Some("en"));
    assert!(letter.reason().contains("jam 2"), "{}", letter.reason());
    let story: Vec<_> = letter.message.failures();
    let story: Vec<_> = story.iter().map(|f| (f.attempt, f.error.as_str(), f.worker.as_str())).collect();
    assert_eq!(story, [(1, "jam 1", me.as_str()), (2, "jam 2", me.as_str())]);
    assert_eq!(worker.stop().await.dead, 1);

    assert_eq!(dead.retry(DeadLetterSelection::All).await.unwrap(), 1);
    let repaired = GatedHandler::open();
    let worker = mill.worker("orders").ttl(LONG_TTL).start(repaired.seat("two")).await.unwrap();
    repaired.ended(1).await;
    let run = repaired.runs().remove(0);
    assert_eq!((run.context.id(), run.payload(), run.context.attempt()), (id, "paper".to_owned(), 1));
    worker.drained().await;
    worker.stop().await;
    let status = mill.admin().status("orders", "default").await.unwrap();
    assert_eq!((status.done, status.dead), (1, 0), "{status:?}");
}

/// Captures the error log of this thread.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

impl Subscriber for Errors {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::ERROR
    }
    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = write!(self.0, "{}={value:?} ", field.name());
    }
}

pub async fn q13_or_a_failed_task_is_only_logged(on: Subject) {
    let errors = Errors::default();
    let _guard = tracing::subscriber::set_default(errors.clone());
    let place = on.place();
    let mill = place.mill().await;
    topic(&mill, "orders", 1).await;
    let gated = GatedHandler::open();
    let builder = mill.worker("orders").ttl(LONG_TTL).poll(POLL).retry(RetryPolicy::none());
    let builder = builder.on_failure(OnFailure::Log);
    let worker = builder.start(gated.seat_that("one", |_| Outcome::retry("jam"))).await.unwrap();
    let id = mill.push("orders", "0").await.unwrap();
    group_is(&mill, "orders", "default", "it is given up", |status| status.dropped == 1).await;
    worker.stop().await;
    let status = mill.admin().status("orders", "default").await.unwrap();
    assert_eq!((status.dead, status.retrying, status.claimed), (0, 0, 0), "{status:?}");
    let lines = errors.0.lock().unwrap().clone();
    let told = |line: &String| line.contains("jam") && line.contains(&id.to_string());
    assert_eq!(lines.iter().filter(|line| told(line)).count(), 1, "{lines:?}");
}

pub async fn g11_a_person_can_queue_a_dead_message_again(on: Subject) {
    for delivery in [Delivery::AtLeastOnce, Delivery::AtMostOnce] {
        let place = on.place();
        let mill = place.mill().await;
        topic(&mill, "orders", 2).await;
        let gated = GatedHandler::open();
        let builder = mill.worker("orders").delivery(delivery).ttl(LONG_TTL).poll(POLL);
        let says = |context: &sawmill::Context| match &context.payload()[..] {
            b"good" => Outcome::Done,
            _ => Outcome::dead("bad"),
        };
        let worker = builder.start(gated.seat_that("one", says)).await.unwrap();
        let ids = mill.push_many("orders", ["good", "bad", "worse"]).await.unwrap();
        let dead = mill.admin().dead_letters("orders", "default").await.unwrap();
        eventually("two are dead", async || dead.list(10).await.unwrap().len() == 2).await;
        worker.stop().await;

        assert_eq!(dead.retry(DeadLetterSelection::Ids(vec![ids[1]])).await.unwrap(), 1);
        let unknown = dead.retry(DeadLetterSelection::Ids(vec![MessageId::from_u128(7)])).await.unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::NotFound);
        let again = GatedHandler::open();
        let builder = mill.worker("orders").delivery(delivery).ttl(LONG_TTL);
        let worker = builder.start(again.seat("two")).await.unwrap();
        again.ended(1).await;
        worker.drained().await;
        worker.stop().await;
        let run = again.runs().remove(0);
        assert_eq!((run.context.id(), run.context.attempt(), again.count()), (ids[1], 1, 1));
        let left: Vec<_> = dead.list(10).await.unwrap().iter().map(|letter| letter.id()).collect();
        assert_eq!(left, [ids[2]], "the other one stays where it was");
        let status = mill.admin().status("orders", "default").await.unwrap();
        assert_eq!((status.done, status.dead), (2, 1), "{status:?}");
    }
}

pub async fn q20_a_task_can_stop_the_worker_without_being_marked_done(on: Subject) {
    let place = on.place();
    let mill = place.mill().await;
    topic(&mill, "orders", 1).await;
    mill.push_many("orders", ["0", "1", "2"]).await.unwrap();
    let gated = GatedHandler::open();
    let builder = mill.worker("orders").concurrency(1).ttl(LONG_TTL).poll(POLL);
    let worker = builder.start(gated.seat_that("one", |_| Outcome::stop("no disk"))).await.unwrap();
    let counts = super::support::soon("the worker ends", worker.ended()).await;
    assert_eq!(counts.stopped_because.as_deref(), Some("no disk"));
    assert_eq!((counts.done, counts.failed, gated.count()), (0, 0, 1));
    let status = mill.admin().status("orders", "default").await.unwrap();
    assert_eq!((status.done, status.dead, status.retrying, status.waiting + status.claimed), (0, 0, 0, 3));

    let healthy = GatedHandler::open();
    let worker = mill.worker("orders").concurrency(1).ttl(LONG_TTL).start(healthy.seat("two")).await.unwrap();
    healthy.ended(3).await;
    assert_eq!(healthy.numbers(), [0, 1, 2]);
    assert!(healthy.runs().iter().all(|run| run.context.attempt() == 1), "no attempt was counted");
    worker.stop().await;
}
