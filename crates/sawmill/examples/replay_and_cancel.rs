//! Operator calls: cancel a message, pause and resume a group, read its status, retry a dead letter, and
//! replay the topic.
//!
//! `cargo run -p sawmill --features sqlite --example replay_and_cancel`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sawmill::admin::{DeadLetterSelection, ReplayFrom};
use sawmill::{Json, Outcome, Push, State};

#[derive(Default)]
struct Totals {
    sum: AtomicU64,
    /// True if orders of more than 100 can be booked.
    allowed: AtomicBool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("orders").await?;
    let orders = [10, 20, 30, 1000].map(|amount| Push::json(&amount)).into_iter();
    let ids = mill.push_many("orders", orders.collect::<sawmill::Result<Vec<Push>>>()?).await?;

    // The customer has changed her mind. From here on the message is never started.
    mill.cancel("orders", ids[2]).await?;

    // A group may be paused before its first worker.
    mill.admin().pause("orders", "totals").await?;
    let totals = Arc::new(Totals::default());
    let worker = mill.worker("orders").group("totals").state(totals.clone()).start(book).await?;
    worker.drained().await;
    let status = mill.admin().status("orders", "totals").await?;
    println!("paused: {}, waiting {}, done {}", status.paused, status.waiting, status.done);
    assert!(status.paused && status.done == 0);

    mill.admin().resume("orders", "totals").await?;
    while mill.admin().status("orders", "totals").await?.dead == 0 {
        worker.drained().await;
    }
    worker.drained().await;
    let status = mill.admin().status("orders", "totals").await?;
    println!("done {}, cancelled {}, dead {}", status.done, status.cancelled, status.dead);
    assert_eq!((status.done, status.cancelled, status.dead), (2, 1, 1));
    assert_eq!(totals.sum.load(Ordering::SeqCst), 30);

    // An operator looks at the dead letters, and retries them.
    let letters = mill.admin().dead_letters("orders", "totals").await?;
    println!("dead: {}", letters.show(ids[3]).await?.reason());
    totals.allowed.store(true, Ordering::SeqCst);
    assert_eq!(letters.retry(DeadLetterSelection::All).await?, 1);
    while totals.sum.load(Ordering::SeqCst) < 1030 {
        worker.drained().await;
    }

    // The totals were lost: compute them anew. The cancelled message stays cancelled.
    totals.sum.store(0, Ordering::SeqCst);
    mill.admin().replay("orders", "totals", ReplayFrom::Start).await?;
    while totals.sum.load(Ordering::SeqCst) < 1030 {
        worker.drained().await;
    }
    worker.stop().await;
    println!("computed anew: {}", totals.sum.load(Ordering::SeqCst));
    assert_eq!(totals.sum.load(Ordering::SeqCst), 1030);
    Ok(())
}

async fn book(Json(amount): Json<u64>, totals: State<Arc<Totals>>) -> Outcome {
    if amount > 100 && !totals.allowed.load(Ordering::SeqCst) {
        return Outcome::dead("more than 100: somebody has to allow it");
    }
    totals.sum.fetch_add(amount, Ordering::SeqCst);
    Outcome::Done
}
