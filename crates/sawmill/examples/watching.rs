//! Watching: the stream of events in the process, a layer around the handler, and metrics. A recorder of
//! twenty lines counts the metrics here; real programs install the exporter of their choice.
//!
//! `cargo run -p sawmill --features sqlite --example watching`

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use sawmill::handler::Next;
use sawmill::telemetry::Event;
use sawmill::telemetry::metric;
use sawmill::{Context, Outcome};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Install the recorder before the first push and the first worker, when counters are registered.
    let meter = Meter::default();
    metrics::set_global_recorder(meter.clone())?;

    let folder = tempfile::tempdir()?;
    let mill = sawmill::Sawmill::open(&format!("sqlite:{}", folder.path().join("jobs.db").display())).await?;
    mill.create_topic("emails").await?;
    let mut events = mill.events();

    mill.push_many("emails", ["Hello Alice", "", "Hello Bob"]).await?;
    let worker = mill
        .worker("emails")
        .layer(|mail: Context, next: Next| async move {
            let (id, attempt) = (mail.id(), mail.attempt());
            let outcome = next.run(mail).await;
            println!("layer: {id}, attempt {attempt}: {outcome:?}");
            outcome
        })
        .start(|mail: Context| async move {
            if mail.payload().is_empty() { Outcome::dead("there is nothing to send") } else { Outcome::Done }
        })
        .await?;
    worker.drained().await;
    worker.stop().await;

    let (mut pushed, mut done, mut dead) = (0, 0, 0);
    while let Some(event) = events.try_next() {
        match event {
            Event::Pushed { count, .. } => pushed += count,
            Event::Done { .. } => done += 1,
            Event::Dead { reason, .. } => {
                println!("event: dead, because {reason}");
                dead += 1;
            }
            _ => {}
        }
    }
    assert_eq!((pushed, done, dead), (3, 2, 1));

    let counted = meter.counted();
    println!("metrics: {counted:?}");
    assert_eq!((counted[metric::PUSHED], counted[metric::STARTED], counted[metric::FINISHED]), (3, 3, 3));
    Ok(())
}

/// Counts by metric name, whatever the labels.
#[derive(Clone, Default)]
struct Meter(Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>);

impl Meter {
    fn counted(&self) -> BTreeMap<String, u64> {
        let counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counters.iter().map(|(name, count)| (name.clone(), count.load(Ordering::Relaxed))).collect()
    }
}

impl Recorder for Meter {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Counter::from_arc(counters.entry(key.name().to_owned()).or_default().clone())
    }
    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
