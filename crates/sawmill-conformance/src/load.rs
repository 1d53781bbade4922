//! How much a store asks of its database: at full load for each message, and each second when there is nothing to do.
//!
//! It is counted by the database, not by the engine. What a count is, is the engine's to say: statements, or commits.

use std::time::Duration;

use sawmill::env::Env;
use sawmill::{Context, Sawmill};

/// How many messages are pushed and worked through, so many at a time.
const MESSAGES: usize = 20_000;
const BATCH: usize = 1_000;
/// How long a worker has nothing to do.
const SHORT: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(6);

/// What a store asks of its database.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// For each message that is pushed, in batches of 1,000, and worked through by one worker.
    pub per_message: f64,
    /// For each second that this took. Some of it is asked at intervals, however much is worked through meanwhile: so a machine that is
    /// busy with other things has more asked for each message, and no more for each second.
    pub busy_per_second: f64,
    /// For each second in which one worker has nothing to do.
    pub idle_per_second: f64,
}

/// Measures it. `open` opens the store anew; `asked` says how much was asked of the database in all, and is called only when
/// no store is open.
pub async fn load(open: impl AsyncFn() -> Sawmill, asked: impl AsyncFn() -> u64) -> Load {
    open().await.create_topic("load").await.expect("a topic");
    let measured = async |messages: usize, stay: Duration| {
        let before = asked().await;
        let took = work(&open().await, messages, stay).await;
        (asked().await - before, took)
    };
    let (busy, took) = measured(MESSAGES, Duration::ZERO).await;
    let (short, long) = (measured(0, SHORT).await, measured(0, LONG).await);
    // It may have taken longer than it was told to, and more was asked meanwhile.
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

/// Pushes so many, works through them, and stays for a while. Returns how long all of it took.
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
