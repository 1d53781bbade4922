//! Measures how much a store asks of its database: per message at full load, and per second when idle.
//!
//! The database does the counting, not the engine. Each engine chooses the unit: statements or commits.

use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill::{Context, Sawmill};

/// The number of messages that are pushed and handled, and the size of a batch.
const MESSAGES: usize = 20_000;
const BATCH: usize = 1_000;
/// How long a worker is idle.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(6);

/// The load of a store on its database.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Per message that is pushed, in batches of 1,000, and handled by one worker.
    pub per_message: f64,
    /// Per second of that run. Some requests are made at intervals, independent of throughput: on a busy
    /// machine the count per message rises, but not the count per second.
    pub busy_per_second: f64,
    /// Per second with one idle worker.
    pub idle_per_second: f64,
}

/// Measures the load. `open` opens the store anew; `asked` returns the database's total count, and is called
/// only while no store is open.
pub async fn load(open: impl AsyncFn() -> Sawmill, asked: impl AsyncFn() -> u64) -> Load {
    open().await.create_topic("load").await.expect("a topic");
    let measured = async |messages: usize, stay: Duration| {
        let before = asked().await;
        let took = work(&open().await, messages, stay).await;
        (asked().await - before, took)
    };
    let (busy, took) = measured(MESSAGES, Duration::ZERO).await;
    let (short, long) = (measured(0, SHORT).await, measured(0, LONG).await);
    // The run may have taken longer than requested, with more requests meanwhile.
    let longer = long.1.saturating_sub(short.1);
    assert!(
        longer >= (LONG - SHORT) / 2,
        "test timed out: a short time and a long one; {longer:?} between them"
    );
    Load {
        per_message: busy as f64 / MESSAGES as f64,
        busy_per_second: busy as f64 / took.as_secs_f64(),
        idle_per_second: (long.0 as f64 - short.0 as f64) / longer.as_secs_f64(),
    }
}

/// Pushes this many messages, handles them, and idles for a while. Returns the time for all of it.
async fn work(mill: &Sawmill, messages: usize, stay: Duration) -> Duration {
    let (env, began) = (Env::system(), Env::system().now());
    let payload = "x".repeat(100);
    for _ in 0..messages / BATCH {
        mill.push_many("load", vec![payload.clone(); BATCH]).await.expect("a push");
    }
    let worker = mill.worker("load").start(|_: Context| async {}).await.expect("a worker");
    worker.drained().await;
    env.sleep(stay).await;
    let done = worker.stop().await.done;
    assert_eq!(done, messages as u64, "each message once");
    env.now().since(began)
}
