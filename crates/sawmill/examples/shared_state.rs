//! Shared state: settings, a connection that is opened before the first message and closed after the last,
//! and a worker that does not start because opening fails.
//!
//! `cargo run -p sawmill --features sqlite --example shared_state`

use std::error::Error;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use sawmill::{ErrorKind, State};

/// The path of the journal.
struct Settings {
    journal: PathBuf,
}

/// Stands in for a connection pool.
struct Journal(Mutex<File>);

impl Journal {
    async fn open(settings: State<Settings>) -> io::Result<Journal> {
        let file = File::create(&settings.journal)?;
        println!("opened");
        Ok(Journal(Mutex::new(file)))
    }

    fn write(&self, line: &str) -> io::Result<()> {
        writeln!(self.0.lock().unwrap_or_else(PoisonError::into_inner), "{line}")
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("orders").await?;
    mill.push_many("orders", ["order 1", "order 2", "order 3"]).await?;

    let path = folder.path().join("journal.txt");
    let worker = mill.worker("orders").on_start(Journal::open).on_stop(close);
    let handler = |order: String, journal: State<Journal>| async move { journal.write(&order) };
    let running = worker.clone().state(Settings { journal: path.clone() }).start(handler).await?;
    running.drained().await;
    running.stop().await;

    let written = std::fs::read_to_string(&path)?;
    let mut lines: Vec<&str> = written.lines().collect();
    assert_eq!(lines.pop(), Some("closed"), "closed after the last order");
    lines.sort_unstable();
    assert_eq!(lines, ["order 1", "order 2", "order 3"]);

    // A worker never joins its group if its start hook fails, or if its handler asks for a state that is not
    // provided.
    let nowhere = Settings { journal: folder.path().join("no such folder").join("journal.txt") };
    let error = worker.state(nowhere).start(handler).await.err().ok_or("it started all the same")?;
    println!("{error}");
    assert_eq!(error.kind(), ErrorKind::Hook);
    Ok(())
}

async fn close(journal: State<Journal>) {
    match journal.write("closed") {
        Ok(()) => println!("closed"),
        Err(error) => eprintln!("the journal is not complete: {error}"),
    }
}
