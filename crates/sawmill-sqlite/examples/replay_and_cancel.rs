//! A person at the controls: cancel a message, pause and resume a group, ask where it stands, resend what was given up, and
//! have it all done again.
//!
//! `cargo run -p sawmill-sqlite --example replay_and_cancel`

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use sawmill::{Json, Outcome, Push, Since, State, Which};

#[derive(Default)]
struct Totals {
    sum: AtomicU64,
    /// Orders of more than 100 cannot be booked until somebody allows it.
    allowed: AtomicBool,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill_sqlite::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("orders").await?;
    let orders = [10, 20, 30, 1000].map(|amount| Push::json(&amount)).into_iter();
    let ids = mill.push_many("orders", orders.collect::<sawmill::Result<Vec<Push>>>()?).await?;

    // The customer has changed her mind: after this the message is never started.
    mill.cancel("orders", ids[2]).await?;

    // A group may be paused before its first worker.
    mill.pause("orders", "totals").await?;
    let totals = Arc::new(Totals::default());
    let worker = mill.worker("orders").group("totals").state(totals.clone()).start(book).await?;
    worker.drained().await;
    let status = mill.status("orders", "totals").await?;
    println!("paused: {}, waiting {}, done {}", status.paused, status.waiting, status.done);
    assert!(status.paused && status.done == 0);

    mill.resume("orders", "totals").await?;
    while mill.status("orders", "totals").await?.dead == 0 {
        worker.drained().await;
    }
    worker.drained().await;
    let status = mill.status("orders", "totals").await?;
    println!("done {}, cancelled {}, dead {}", status.done, status.cancelled, status.dead);
    assert_eq!((status.done, status.cancelled, status.dead), (2, 1, 1));
    assert_eq!(totals.sum.load(Ordering::SeqCst), 30);

    // Somebody looks at what was given up, and resends it.
    let letters = mill.dead_letters("orders", "totals").await?;
    println!("dead: {}", letters.show(ids[3]).await?.reason());
    totals.allowed.store(true, Ordering::SeqCst);
    assert_eq!(letters.resend(Which::All).await?, 1);
    while totals.sum.load(Ordering::SeqCst) < 1030 {
        worker.drained().await;
    }

    // The totals were lost: compute them anew. What was cancelled stays so.
    totals.sum.store(0, Ordering::SeqCst);
    mill.seek("orders", "totals", Since::Start).await?;
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
