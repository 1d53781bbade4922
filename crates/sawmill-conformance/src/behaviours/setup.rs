//! State shared by handlers, and the hooks around a worker's life.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::handler::Next;
use sawmill::{Batch, Context, ErrorKind, Json, Sawmill, State, WorkerBuilder};

use super::engines::on_each;
use super::support::{LONG_TTL, POLL, Subject};

fn worker(mill: &Sawmill) -> WorkerBuilder {
    mill.worker("orders").concurrency(2).ttl(LONG_TTL).poll(POLL)
}

/// The events, in order.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn record(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

struct Pool {
    url: String,
    events: EventLog,
}

struct Url(String);

/// Returns a worker with a pool that is opened when it starts and closed when it ends.
fn with_pool(mill: &Sawmill, events: &EventLog) -> WorkerBuilder {
    let tells = events.clone();
    worker(mill)
        .state(Url("db://orders".to_owned()))
        .on_start(move |url: State<Url>| {
            let events = tells.clone();
            async move {
                events.record("open");
                Ok::<_, String>(Pool { url: url.0.0.clone(), events })
            }
        })
        .on_stop(|pool: State<Pool>| async move { pool.events.record(format!("close {}", pool.url)) })
}

pub async fn q12_hooks_run_once_before_the_first_message_and_after_the_last(on: Subject) {
    on_each(on, async |mill| {
        mill.push_many("orders", ["x", "x", "x"]).await.unwrap();
        let events = EventLog::default();
        let handler = |_: Context, pool: State<Pool>| async move { pool.events.record("run") };
        let worker = with_pool(&mill, &events).start(handler).await.unwrap();
        worker.drained().await;
        worker.stop().await;
        assert_eq!(events.all(), ["open", "run", "run", "run", "close db://orders"]);
        assert_eq!(mill.admin().workers("default").await.unwrap(), []);
    })
    .await;
}

pub async fn q12_the_stop_hook_waits_for_handlers_and_runs_after_an_abort(on: Subject) {
    on_each(on, async |mill| {
        mill.push("orders", "x").await.unwrap();
        let events = EventLog::default();
        let started = Arc::new(tokio::sync::Notify::new());
        let starts = started.clone();
        struct RecordsDrop(EventLog);
        impl Drop for RecordsDrop {
            fn drop(&mut self) {
                self.0.record("dropped");
            }
        }
        let handler = move |_: Context, pool: State<Pool>| {
            starts.notify_one();
            let tells = RecordsDrop(pool.events.clone());
            async move {
                std::future::pending::<()>().await;
                drop(tells);
            }
        };
        let worker = with_pool(&mill, &events).start(handler).await.unwrap();
        started.notified().await;
        worker.abort().await;
        worker.ended().await;
        assert_eq!(events.all(), ["open", "dropped", "close db://orders"]);
        assert_eq!(
            mill.admin().status("orders", "default").await.unwrap().claimed,
            1,
            "it is left to others"
        );
    })
    .await;
}

pub async fn q12_a_worker_whose_start_hook_fails_never_joins(on: Subject) {
    on_each(on, async |mill| {
        mill.push("orders", "x").await.unwrap();
        let events = EventLog::default();
        let tells = events.clone();
        let start = with_pool(&mill, &events)
            .on_start(|| async { Err::<u8, _>("the key is not there") })
            .on_start(move || {
                tells.record("never");
                async { Ok::<_, String>(1_u16) }
            })
            .on_stop(|_: State<u16>| async { panic!("this was never opened") })
            .start(|_: Context| async {})
            .await;
        let error = start.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Hook);
        assert!(error.to_string().contains("start hook failed: the key is not there"), "{error}");
        assert_eq!(events.all(), ["open", "close db://orders"], "what was opened is closed");
        assert_eq!(mill.admin().workers("default").await.unwrap(), []);
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().waiting, 1);
    })
    .await;
}

pub async fn q12_a_state_that_nobody_provides_is_found_out_at_the_start(on: Subject) {
    on_each(on, async |mill| {
        mill.push("orders", "1").await.unwrap();
        let refused = |start: sawmill::Result<sawmill::Worker>, name: &str| {
            let error = start.err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(&format!("State<{name}> is asked for")), "{error}");
        };
        let events = EventLog::default();
        let start = with_pool(&mill, &events).start(|_: Context, _: State<u64>| async {}).await;
        refused(start, "u64");
        assert_eq!(events.all(), ["open", "close db://orders"]);
        let in_tuple = |_: (Context, State<u64>)| async {};
        refused(worker(&mill).state(1_u32).start(in_tuple).await, "u64");
        refused(worker(&mill).start_blocking(|_: Context, _: State<u64>| {}).await, "u64");
        let batch = |_: Vec<Json<u8>>, _: State<u32>, _: State<u64>| async {};
        refused(worker(&mill).state(1_u32).start_batch(Batch::of(2), batch).await, "u64");
        refused(worker(&mill).start_batch(Batch::of(2), |_: Vec<State<u64>>| async {}).await, "u64");
        let layer = |context: Context, next: Next| next.run(context);
        refused(worker(&mill).layer(layer).start(|_: State<u64>| async {}).await, "u64");
        let hook = |_: State<u64>| async { Ok::<_, String>(1_u8) };
        refused(worker(&mill).on_start(hook).start(|_: Context| async {}).await, "u64");
        assert_eq!(mill.admin().status("orders", "default").await.unwrap().waiting, 1, "nothing was taken");
        assert_eq!(mill.admin().workers("default").await.unwrap(), []);
    })
    .await;
}

pub async fn settings_that_make_no_sense_are_refused(on: Subject) {
    on_each(on, async |mill| {
        let layer = |context: Context, next: Next| next.run(context);
        let said = |error: Option<sawmill::Error>, part: &str| {
            let error = error.unwrap();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(part), "{error}");
        };
        let nothing = |_: Context| async {};
        let each = |_: Vec<Context>| async {};
        said(worker(&mill).timeout(Duration::ZERO).start(nothing).await.err(), "timeout");
        said(worker(&mill).start_batch(Batch::of(0), each).await.err(), "batch of no messages");
        said(worker(&mill).layer(layer).start_batch(Batch::of(2), each).await.err(), "layers");
        said(worker(&mill).layer(layer).pull().await.err(), "layers");
    })
    .await;
}
