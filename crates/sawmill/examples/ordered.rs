//! Order by key: the steps of one account run in the order of pushing, on whichever worker, even when a step
//! fails and is retried. Other accounts continue meanwhile.
//!
//! `cargo run -p sawmill --features sqlite --example ordered`

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sawmill::{Context, Json, Outcome, Push, RetryPolicy, State};

/// The steps in the order in which they ran: account and step.
type Book = Arc<Mutex<Vec<(String, u32)>>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("accounts").await?;
    for step in 1..=5 {
        for account in ["alice", "bob", "carol"] {
            mill.push("accounts", Push::json(&step)?.key(account)).await?;
        }
    }

    let book = Book::default();
    let worker = mill
        .worker("accounts")
        .ordered()
        .concurrency(4)
        .retry(
            RetryPolicy::retries(3).immediate(0).backoff(Duration::from_millis(200), Duration::from_secs(1)),
        )
        .state(book.clone());
    let workers = [worker.clone().start(book_step).await?, worker.start(book_step).await?];
    while mill.admin().status("accounts", "default").await?.done < 15 {
        workers[0].drained().await;
        workers[1].drained().await;
    }
    for worker in &workers {
        worker.stop().await;
    }

    let book = book.lock().unwrap_or_else(PoisonError::into_inner);
    for account in ["alice", "bob", "carol"] {
        let steps: Vec<u32> = book.iter().filter(|(of, _)| of == account).map(|(_, step)| *step).collect();
        println!("{account}: {steps:?}");
        assert_eq!(steps, [1, 2, 3, 4, 5], "{account} in order");
    }
    Ok(())
}

async fn book_step(context: Context, Json(step): Json<u32>, book: State<Book>) -> Outcome {
    let account = String::from_utf8_lossy(context.key().map_or(&b""[..], |key| key)).into_owned();
    if (account.as_str(), step, context.attempt()) == ("alice", 2, 1) {
        println!("alice: step 2 fails at first, and her steps 3 to 5 wait for it");
        return Outcome::retry("the database is locked");
    }
    book.lock().unwrap_or_else(PoisonError::into_inner).push((account, step));
    Outcome::Done
}
