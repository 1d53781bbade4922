//! Handlers: their arguments, their middleware, their time limits, and their progress reports.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use sawmill::handler::FromContext;
use sawmill::handler::Next;
use sawmill::{Context, Json, Outcome, Proto, Push, RetryPolicy, Sawmill, WorkerBuilder};
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::engines::{dead_reasons, on_each};
use super::support::{LONG_TTL, POLL, Subject, eventually, soon};

/// Returns a worker without retries.
fn worker(mill: &Sawmill) -> WorkerBuilder {
    mill.worker("orders").concurrency(4).ttl(LONG_TTL).poll(POLL).retry(RetryPolicy::none())
}

/// Collects observations of handlers.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn put(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

#[derive(Serialize, Deserialize)]
struct Order {
    item: String,
    count: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Parcel {
    #[prost(string, tag = "1")]
    to: String,
    #[prost(uint32, tag = "2")]
    grams: u32,
}

pub async fn g18_payloads_are_read_as_json(on: Subject) {
    on_each(on, async |mill| {
        let order = Order { item: "plank".to_owned(), count: 3 };
        mill.push("orders", Push::json(&order).unwrap().key("k")).await.unwrap();
        mill.push("orders", r#"{"item":"beam","count":"many"}"#).await.unwrap();
        let seen = Seen::default();
        let sees = seen.clone();
        let handler = move |context: Context, Json(order): Json<Order>| {
            let sees = sees.clone();
            async move { sees.put(format!("{} {} {:?}", order.count, order.item, context.key())) }
        };
        let worker = worker(&mill).retry(RetryPolicy::retries(5)).start(handler).await.unwrap();
        worker.drained().await;
        let counts = worker.stop().await;
        assert_eq!(seen.all(), ["3 plank Some(b\"k\")"]);
        assert_eq!((counts.started, counts.done, counts.dead), (2, 1, 1), "what is broken stays broken");
        let [reason] = &dead_reasons(&mill).await[..] else { panic!("one is dead") };
        assert!(reason.contains("cannot be read as JSON") && reason.contains("Order"), "{reason}");
        assert!(reason.contains(r#"invalid type: string "many", expected u32 at line 1"#), "{reason}");
    })
    .await;
}

pub async fn g18_payloads_are_read_as_protocol_buffers(on: Subject) {
    on_each(on, async |mill| {
        let parcel = Parcel { to: "Alice".to_owned(), grams: 250 };
        mill.push("orders", Push::proto(&parcel)).await.unwrap();
        mill.push("orders", "\u{1}").await.unwrap();
        let seen = Seen::default();
        let sees = seen.clone();
        let handler = move |parcel: Proto<Parcel>| {
            sees.put(format!("{} g to {}", parcel.grams, parcel.to));
            async {}
        };
        let worker = worker(&mill).start(handler).await.unwrap();
        worker.drained().await;
        worker.stop().await;
        assert_eq!(seen.all(), ["250 g to Alice"]);
        let [reason] = &dead_reasons(&mill).await[..] else { panic!("one is dead") };
        assert!(reason.contains("cannot be read as a protocol buffer"), "{reason}");
    })
    .await;
}

pub async fn g18_payloads_are_read_as_text_and_as_bytes(on: Subject) {
    on_each(on, async |mill| {
        mill.push("orders", "naïve").await.unwrap();
        mill.push("orders", Push::new(&b"\xff\xfe"[..])).await.unwrap();
        let seen = Seen::default();
        let sees = seen.clone();
        // Arguments are extracted in order: the bytes succeed before the text fails.
        let handler = move |bytes: Bytes, text: String| {
            sees.put(format!("{} {text}", bytes.len()));
            async {}
        };
        let worker = worker(&mill).start(handler).await.unwrap();
        worker.drained().await;
        worker.stop().await;
        assert_eq!(seen.all(), ["6 naïve"]);
        let [reason] = &dead_reasons(&mill).await[..] else { panic!("one is dead") };
        assert!(reason.contains("cannot be read as UTF-8 text") && reason.contains("index 0"), "{reason}");
    })
    .await;
}

struct Lucky(usize);

impl FromContext for Lucky {
    fn from_context(context: &Context) -> Result<Self, Outcome> {
        match context.payload().len() {
            0 => Err(Outcome::dead("no luck")),
            length => Ok(Lucky(length)),
        }
    }
}

pub async fn an_argument_of_ones_own_decides_what_becomes_of_the_message(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", ["", "1234567"]).await.unwrap();
        let seen = Seen::default();
        let sees = seen.clone();
        let handler = move |lucky: Lucky, _: (Bytes, Context), _: Context, _: Context| {
            sees.put(lucky.0.to_string());
            async {}
        };
        let worker = worker(&mill).start(handler).await.unwrap();
        worker.drained().await;
        worker.stop().await;
        assert_eq!(seen.all(), ["7"]);
        assert_eq!(dead_reasons(&mill).await, ["no luck"]);
    })
    .await;
}

pub async fn layers_wrap_the_handler_the_first_outermost(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", ["good", "bad"]).await.unwrap();
        let seen = Seen::default();
        let layer = |name: &'static str| {
            let seen = seen.clone();
            move |context: Context, next: Next| {
                let seen = seen.clone();
                async move {
                    let payload = String::from_context(&context).unwrap();
                    seen.put(format!("{name} before {payload}"));
                    let outcome = next.run(context).await;
                    seen.put(format!("{name} after {payload}: {outcome:?}"));
                    outcome
                }
            }
        };
        let guard = |context: Context, next: Next| async move {
            match &context.payload()[..] {
                b"bad" => Outcome::dead("turned away"),
                _ => next.run(context).await,
            }
        };
        let sees = seen.clone();
        let handler = move |payload: String| {
            sees.put(format!("handler {payload}"));
            async { Outcome::Done }
        };
        let builder = worker(&mill).concurrency(1).layer(layer("outer")).layer(guard).layer(layer("inner"));
        let worker = builder.start(handler).await.unwrap();
        worker.drained().await;
        worker.stop().await;
        let of = |payload: &str| -> Vec<String> {
            seen.all().into_iter().filter(|line| line.contains(payload)).collect()
        };
        let good = [
            "outer before good",
            "inner before good",
            "handler good",
            "inner after good: Done",
            "outer after good: Done",
        ];
        assert_eq!(of("good"), good);
        assert_eq!(of("bad"), ["outer before bad", "outer after bad: Dead(\"turned away\")"]);
        assert_eq!(dead_reasons(&mill).await, ["turned away"]);
    })
    .await;
}

pub async fn q23_an_attempt_that_takes_too_long_is_dropped_and_fails(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", ["slow", "quick"]).await.unwrap();
        let dropped = Arc::new(Semaphore::new(0));
        struct NotifiesDrop(Arc<Semaphore>);
        impl Drop for NotifiesDrop {
            fn drop(&mut self) {
                self.0.add_permits(1);
            }
        }
        let told = dropped.clone();
        let handler = move |payload: String| {
            let tells = NotifiesDrop(told.clone());
            async move {
                if payload == "slow" {
                    std::future::pending::<()>().await;
                }
                std::mem::forget(tells);
            }
        };
        let worker = worker(&mill).timeout(Duration::from_millis(200)).start(handler).await.unwrap();
        soon("it is dropped", dropped.acquire()).await.unwrap().forget();
        soon("all is settled", worker.drained()).await;
        let counts = worker.stop().await;
        assert_eq!((counts.done, counts.failed, counts.dead), (1, 1, 1));
        let [reason] = &dead_reasons(&mill).await[..] else { panic!("one is dead") };
        assert!(reason.contains("it took longer than its timeout of 200ms"), "{reason}");
    })
    .await;
}

pub async fn blocking_handlers_do_not_hold_up_the_beat(on: Subject) {
    on_each(on, async |mill| {
        let ttl = Duration::from_millis(400);
        let (release, released) = mpsc::channel::<()>();
        let (released, seen) = (Mutex::new(released), Seen::default());
        let sees = seen.clone();
        let handler = move |Json(order): Json<Order>| {
            sees.put(format!("{} started", order.item));
            // On the runtime's only thread, a blocking handler could not be released.
            if order.item == "log" && released.lock().unwrap().recv_timeout(Duration::from_secs(60)).is_ok() {
                sees.put("log released");
            }
        };
        let worker = worker(&mill).ttl(ttl).start_blocking(handler).await.unwrap();
        mill.push("orders", r#"{"item":"log","count":1}"#).await.unwrap();
        eventually("it blocks", async || seen.all() == ["log started"]).await;
        let last_heartbeat =
            async || mill.admin().workers("default").await.unwrap()[0].last_heartbeat.unwrap();
        let blocked = last_heartbeat().await;
        eventually("it sends heartbeats for longer than its lease", async || {
            last_heartbeat().await > blocked + 3 * ttl
        })
        .await;
        // Only a worker whose lease was renewed meanwhile starts another message.
        mill.push("orders", r#"{"item":"plank","count":1}"#).await.unwrap();
        eventually("another starts", async || seen.all().last().unwrap() == "plank started").await;
        release.send(()).unwrap();
        soon("all is settled", worker.drained()).await;
        worker.stop().await;
        assert_eq!(seen.all().last().unwrap(), "log released");
    })
    .await;
}

pub async fn blocking_handlers_fail_by_errors_and_panics(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", ["error", "panic", "fine"]).await.unwrap();
        let handler = |payload: String| match payload.as_str() {
            "error" => Err("no disk"),
            "panic" => std::panic::resume_unwind(Box::new("jam")),
            _ => Ok(()),
        };
        let worker = worker(&mill).start_blocking(handler).await.unwrap();
        soon("all is settled", worker.drained()).await;
        let counts = worker.stop().await;
        assert_eq!((counts.done, counts.failed), (1, 2));
        let reasons = dead_reasons(&mill).await;
        assert!(reasons[0].ends_with("no disk"), "{reasons:?}");
        assert!(reasons[1].ends_with("the handler panicked: jam"), "{reasons:?}");
    })
    .await;
}

pub async fn a_blocking_handler_learns_that_its_time_is_over(on: Subject) {
    on_each(on, async |mill| {
        mill.push("orders", "x").await.unwrap();
        let (say, said) = mpsc::channel();
        let handler = move |context: Context| {
            while !context.is_cancelled() {
                std::thread::yield_now();
            }
            say.send(()).unwrap();
        };
        let builder = worker(&mill).timeout(Duration::from_millis(100));
        let worker = builder.start_blocking(handler).await.unwrap();
        eventually("it is told", async || said.try_recv().is_ok()).await;
        soon("all is settled", worker.drained()).await;
        assert_eq!(worker.stop().await.failed, 1);
    })
    .await;
}

pub async fn notes_are_shown_to_others_while_the_message_runs(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", ["loud", "quiet"]).await.unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let gates = gate.clone();
        let handler = move |context: Context, payload: String| {
            let gate = gates.clone();
            async move {
                if payload == "loud" {
                    context.note("1 of 2 rows");
                    gate.acquire().await.unwrap().forget();
                    context.note("é".repeat(150));
                }
                gate.acquire().await.unwrap().forget();
            }
        };
        // The next regular heartbeat is far away.
        let worker = worker(&mill).name("saw").start(handler).await.unwrap();
        let notes = async || -> Vec<String> {
            let [member] = &mill.admin().workers("default").await.unwrap()[..] else {
                panic!("there is one worker")
            };
            member.running.iter().map(|running| running.note.clone()).collect()
        };
        eventually("the first note is there", async || notes().await == ["1 of 2 rows"]).await;
        let [member] = &mill.admin().workers("default").await.unwrap()[..] else {
            panic!("there is one worker")
        };
        assert_eq!((member.concurrency, &member.topics[..]), (4, &["orders".to_owned()][..]));
        assert_eq!(Some(&member.id), worker.state().id.as_ref());
        assert_eq!(member.running[0].topic, "orders");
        assert!(member.running[0].since.as_millis() > 1_700_000_000_000);
        gate.add_permits(2);
        eventually("a long note is cut", async || notes().await == ["é".repeat(100)]).await;
        gate.add_permits(1);
        eventually("nothing is noted of what has ended", async || notes().await.is_empty()).await;
        worker.stop().await;
        assert_eq!(mill.admin().workers("default").await.unwrap(), []);
    })
    .await;
}
