//! The basics in one file: push, handle, fail, retry, keep order, wait for a due time.
//!
//! `cargo run --release -p sawmill --features sqlite --example quickstart`

use std::error::Error;
use std::time::Duration;

use sawmill::{Context, Outcome, Push, RetryPolicy};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("emails").await?;

    // Ten mails for each of three people, one that can never be sent, and one that is due a second later.
    let mails =
        (1..=10).flat_map(|nth| ["alice", "bob", "carol"].map(|to| Push::new(format!("mail {nth}")).key(to)));
    mill.push_many("emails", mails).await?;
    let broken = mill.push("emails", Push::new("").key("dave")).await?;
    mill.push("emails", Push::new("a reminder").key("erin").after(Duration::from_secs(1))).await?;

    let worker = mill
        .worker("emails")
        .concurrency(4)
        .ordered()
        .retry(RetryPolicy::retries(3).backoff(Duration::from_millis(100), Duration::from_secs(1)))
        .start(send)
        .await?;
    while mill.admin().status("emails", "default").await?.done < 31 {
        worker.drained().await;
    }
    let counts = worker.stop().await;
    println!("\ndone {}, failed attempts {}, dead letters {}", counts.done, counts.failed, counts.dead);

    let dead = mill.admin().dead_letters("emails", "default").await?;
    let letter = dead.show(broken).await?;
    println!("dead: {} because {:?}", letter.id(), letter.reason());
    assert_eq!((counts.done, counts.failed, counts.dead), (31, 4, 1));
    Ok(())
}

async fn send(mail: Context) -> Outcome {
    let to = String::from_utf8_lossy(mail.key().map(|key| &key[..]).unwrap_or_default()).into_owned();
    let text = String::from_utf8_lossy(mail.payload()).into_owned();
    match text.as_str() {
        "" => Outcome::dead("there is nothing to send"),
        "mail 7" if mail.attempt() == 1 => Outcome::retry("the server is busy"),
        _ => {
            println!("to {to:<6} {text:<11} attempt {} token {}", mail.attempt(), mail.token());
            Outcome::Done
        }
    }
}
