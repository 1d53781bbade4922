//! Priorities and limits: urgent messages start before others, and all workers share one limit of running
//! messages.
//!
//! `cargo run -p sawmill --features sqlite --example priority_and_limits`

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sawmill::{Context, Limit, State};
use sawmill_engine::runtime::{Clock, SystemClock};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    for topic in ["urgent", "bulk", "calls"] {
        mill.create_topic(topic).await?;
    }

    // The first topic has priority over the second, even over messages of the second that were fetched
    // earlier.
    mill.push_many("bulk", vec!["a newsletter"; 20]).await?;
    mill.push_many("urgent", vec!["a password"; 5]).await?;
    let started = Arc::new(Mutex::new(Vec::<String>::new()));
    let note = |mail: Context, started: State<Arc<Mutex<Vec<String>>>>| async move {
        started.lock().unwrap_or_else(PoisonError::into_inner).push(mail.topic().to_owned());
    };
    let worker =
        mill.worker_for(["urgent", "bulk"]).concurrency(1).state(started.clone()).start(note).await?;
    worker.drained().await;
    worker.stop().await;
    let started = started.lock().unwrap_or_else(PoisonError::into_inner).clone();
    println!("started {} messages, the urgent ones first", started.len());
    assert_eq!(started[..5], ["urgent"; 5]);
    assert_eq!(started[5..], ["bulk"; 20]);

    // Two workers with eight slots together, and a service that takes three calls at a time.
    mill.push_many("calls", vec!["a call"; 30]).await?;
    let service = Arc::new(Service::default());
    let worker = mill
        .worker("calls")
        .concurrency(4)
        .poll(Duration::from_millis(50))
        .limit(Limit::running(3))
        .state(service.clone());
    let workers = [worker.clone().start(call).await?, worker.start(call).await?];
    while mill.admin().status("calls", "default").await?.done < 30 {
        SystemClock.sleep(Duration::from_millis(20)).await;
    }
    for worker in &workers {
        println!("a worker made {} calls", worker.stop().await.done);
    }
    let most = service.most.load(Ordering::SeqCst);
    println!("at most {most} at a time");
    assert!((1..=3).contains(&most), "the limit holds for both together");
    Ok(())
}

/// A service that counts its present calls, and the most it had at once.
#[derive(Default)]
struct Service {
    now: AtomicUsize,
    most: AtomicUsize,
}

async fn call(_call: Context, service: State<Arc<Service>>) {
    service.most.fetch_max(service.now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    SystemClock.sleep(Duration::from_millis(10)).await;
    service.now.fetch_sub(1, Ordering::SeqCst);
}
