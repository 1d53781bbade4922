//! The test kit: tests a handler that is retried after a minute and given up after an hour of retries. It
//! runs in milliseconds, in memory, with a clock that the test moves.
//!
//! `cargo run -p sawmill --features sqlite --example testing`

use std::time::Duration;

use sawmill::testing::TestMill;
use sawmill::{Context, Json, Outcome, Push, Result, RetryPolicy, Sawmill};
use sawmill_engine::runtime::{Clock, SystemClock};

const MINUTE: Duration = Duration::from_secs(60);

/// The code under test: it pushes.
async fn welcome(mill: &Sawmill, name: &str) -> Result<()> {
    mill.push("emails", Push::json(name)?.key(name.to_owned()).after(10 * MINUTE)).await?;
    Ok(())
}

/// The handler under test.
async fn send(context: Context, Json(name): Json<String>) -> Outcome {
    match (name.as_str(), context.attempt()) {
        ("nobody", _) => Outcome::retry_after("there is no such person", MINUTE),
        (_, 1) => Outcome::retry_after("the server is busy", MINUTE),
        _ => Outcome::Done,
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let began = SystemClock.now();
    let kit = TestMill::new();
    kit.topic("emails").await;
    welcome(&kit, "alice").await?;
    kit.assert_pushed("emails", |mail| mail.key.as_deref() == Some(b"alice") && mail.due.is_some()).await;

    // The mail is due in ten minutes.
    assert_eq!(kit.drain("emails", send).await.started, 0);
    kit.advance(10 * MINUTE).await;
    let counts = kit.drain("emails", send).await;
    assert_eq!((counts.started, counts.failed, counts.done), (1, 1, 0));
    println!("ten minutes later the server is busy");

    // The next attempt is due in a minute.
    kit.advance(MINUTE).await;
    assert_eq!(kit.drain("emails", send).await.done, 1);
    println!("a minute later it is sent");

    // A mail that can never be sent: after 61 attempts it is a dead letter.
    kit.push("emails", Push::json("nobody")?).await;
    let worker = || kit.worker("emails").concurrency(1).retry(RetryPolicy::retries(60));
    for _ in 0..61 {
        kit.drain_with(worker(), send).await;
        kit.advance(MINUTE).await;
    }
    let dead = kit.dead("emails").await;
    assert_eq!((dead.len(), dead[0].reason()), (1, "out of attempts after 61: there is no such person"));
    println!("an hour later the other one is given up: {}", dead[0].reason());
    println!("all of this took {:?}", SystemClock.now().since(began));
    Ok(())
}
