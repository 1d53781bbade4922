//! Progress: a handler notes how far it is, and other processes can see the note while the message runs.
//!
//! `cargo run -p sawmill --features sqlite --example progress`

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use sawmill::{Context, State};
use sawmill_engine::runtime::{Clock, SystemClock};
use tokio::sync::Notify;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("imports").await?;
    let id = mill.push("imports", "customers.csv").await?;

    let go_on = Arc::new(Notify::new());
    let worker = mill.worker("imports").name("importer").state(go_on.clone()).start(import).await?;

    // What another process would do: list the workers and their notes.
    let seen = loop {
        let members = mill.admin().workers("default").await?;
        if let Some(running) = members.iter().flat_map(|member| &member.running).next() {
            println!("{}: {} since {}: {}", members[0].id, running.topic, running.since, running.note);
            break running.clone();
        }
        SystemClock.sleep(Duration::from_millis(20)).await;
    };
    assert_eq!((seen.id, seen.note.as_str()), (id, "412 of 1000 rows"));

    go_on.notify_one();
    worker.drained().await;
    assert_eq!(worker.stop().await.done, 1);
    assert!(mill.admin().workers("default").await?.is_empty(), "the worker has left its group");
    Ok(())
}

async fn import(file: Context, go_on: State<Arc<Notify>>) {
    for row in 1..=1000 {
        if row == 412 {
            file.note(format!("{row} of 1000 rows"));
            // Gives the main task time to read the note.
            go_on.notified().await;
        }
    }
}
