//! Batches: one call stores up to a hundred readings. A message that cannot be read does not affect the rest
//! of its batch, and each message can have its own outcome.
//!
//! `cargo run -p sawmill --features sqlite --example batch`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sawmill::{Batch, Context, Json, Outcome, Push, State};

/// Counts what was stored, and in how many calls.
#[derive(Default)]
struct Database {
    sum: AtomicU64,
    calls: AtomicUsize,
    largest: AtomicUsize,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("readings").await?;
    let readings: sawmill::Result<Vec<Push>> = (1..=1000_u64).map(|reading| Push::json(&reading)).collect();
    mill.push_many("readings", readings?).await?;
    let broken = mill.push("readings", "not a number").await?;

    let database = Arc::new(Database::default());
    let batch = Batch::of(100).linger(Duration::from_millis(20));
    let worker =
        mill.worker("readings").concurrency(2).state(database.clone()).start_batch(batch, store).await?;
    worker.drained().await;
    let counts = worker.stop().await;

    let [calls, largest] = [&database.calls, &database.largest].map(|count| count.load(Ordering::Relaxed));
    println!("{} readings in {calls} calls, at most {largest} at once", counts.done);
    assert_eq!(database.sum.load(Ordering::Relaxed), 500_500, "each reading was stored once");
    assert!(counts.done == 1000 && counts.dead == 1 && (2..=100).contains(&largest), "{counts:?}");
    let letters = mill.admin().dead_letters("readings", "default").await?;
    println!("dead: {}", letters.show(broken).await?.reason());
    Ok(())
}

async fn store(readings: Vec<(Context, Json<u64>)>, database: State<Arc<Database>>) -> Vec<Outcome> {
    database.calls.fetch_add(1, Ordering::Relaxed);
    database.largest.fetch_max(readings.len(), Ordering::Relaxed);
    let outcome = |(context, Json(reading)): &(Context, Json<u64>)| match (reading, context.attempt()) {
        (500, 1) => Outcome::retry("this one is locked"),
        (reading, _) => {
            database.sum.fetch_add(*reading, Ordering::Relaxed);
            Outcome::Done
        }
    };
    readings.iter().map(outcome).collect()
}
