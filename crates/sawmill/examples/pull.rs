//! Pulling: a program takes messages in its own loop, and answers each one later. Here three jobs are out at
//! once, and are answered in another order. One of them fails and comes again.
//!
//! `cargo run -p sawmill --features sqlite --example pull`

use std::error::Error;
use std::time::Duration;

use sawmill::Job;
use sawmill::handler::FromContext;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("reports").await?;
    mill.push_many("reports", ["January", "February", "March"]).await?;

    let puller = mill.worker("reports").concurrency(3).timeout(Duration::from_secs(30)).pull().await?;
    let mut out: Vec<Job> = Vec::new();
    while out.len() < 3 {
        let job = puller.pull().await.ok_or("the worker was stopped")?;
        println!("pulled {}", month(&job)?);
        out.push(job);
    }
    assert_eq!(puller.worker().state().busy, 3, "all three are out");

    // This job takes longer: it gets a minute from now, instead of 30 seconds from when it was pulled.
    out[0].extend(Duration::from_secs(60))?;
    let (mut first, rest) = (out.remove(0), out);
    for job in rest.into_iter().rev() {
        println!("done with {}", month(&job)?);
        job.done().await?;
    }
    let id = first.context().id();
    println!("{} failed", month(&first)?);
    first.failed("the printer is out of paper").await?;

    // The first retry comes at once.
    first = puller.pull().await.ok_or("the worker was stopped")?;
    println!("pulled {} again, attempt {}", month(&first)?, first.context().attempt());
    assert_eq!((first.context().id(), first.context().attempt()), (id, 2));
    first.done().await?;

    let counts = puller.worker().stop().await;
    assert_eq!((counts.done, counts.failed), (3, 1));
    assert!(puller.pull().await.is_none(), "a worker that was stopped gives nothing out");
    Ok(())
}

/// Returns the payload of a job as text. Every type that a handler can take can be made from a job's context.
fn month(job: &Job) -> Result<String, String> {
    String::from_context(job.context()).map_err(|outcome| format!("not text: {outcome:?}"))
}
