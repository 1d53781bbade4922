//! Pushes and works messages for minutes and checks that the rate does not decay, also while a transaction is
//! held open and so prevents cleaning up what it might still see.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sawmill::engine::runtime::Env;
use sawmill::{Context, Push, Sawmill};
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Failure;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::subject::Subject;
use crate::{BATCH, PAYLOAD};

/// The most messages that wait, so that pushing and working keep the same pace.
const WAITING: usize = 20 * BATCH;
/// The rate is reported for each of this many parts: minutes, with the default time.
const PARTS: u32 = 5;

pub(crate) async fn measure(
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    let part = Duration::from_secs(settings.pin_seconds) / PARTS;
    // First without the transaction: a disk that slows down within minutes is not the transaction's fault.
    for held in [false, true] {
        let (key, name) = match held {
            true => ("pin_held", "a transaction held open"),
            false => ("pin_free", "no transaction held open"),
        };
        let run = run(subject, part, held, name).await?;
        let (first, last) = (run.rates.first().copied(), run.rates.last().copied());
        let what = format!("{name}: the last {part:?}; base: the first");
        let figure = Figure::new(key, what, "/s", last.unwrap_or(0.0)).base(first.unwrap_or(0.0));
        let figure = if held { figure.wanted(Wanted::Times(0.9)) } else { figure };
        let figure = figure.with("rates", json!(run.rates)).with("messages", json!(run.handled));
        report.add(match &run.dead {
            Some(dead) => figure.with("dead_rows", counts(dead)),
            None => figure,
        });
        let rates: Vec<String> = run.rates.iter().map(|rate| format!("{rate:.0}")).collect();
        report.note(format!("{name}: pushed and worked off in each {part:?}: {}/s", rates.join(", ")));
        report.note(format!("{name}: {} messages passed", run.handled));
        let Some(dead) = run.dead else {
            // This engine has no transaction to hold open.
            break;
        };
        let dead: Vec<String> = dead.iter().map(|(what, count)| format!("{count} in {what}")).collect();
        let dead = if dead.is_empty() { "none".to_owned() } else { dead.join(", ") };
        report.note(format!("{name}: dead rows: {dead}"));
    }
    Ok(())
}

/// Dead rows by table, for the JSON.
fn counts(dead: &[(String, u64)]) -> Value {
    let counts: Map<String, Value> =
        dead.iter().map(|(table, count)| (table.clone(), json!(count))).collect();
    counts.into()
}

/// The result of one run.
struct Run {
    /// Messages per second, by part.
    rates: Vec<f64>,
    /// Dead rows by table, where the engine has them.
    dead: Option<Vec<(String, u64)>>,
    handled: u64,
}

async fn run(subject: &dyn Subject, part: Duration, held: bool, name: &str) -> Result<Run, Failure> {
    let (store, env) = (subject.store("pin"), Env::system());
    let opened = subject.open(&store, env.clone()).await?;
    let mill = opened.mill();
    mill.create_topic("bench").await?;
    let (handled, room) = (Arc::new(AtomicU64::new(0)), Arc::new(Semaphore::new(WAITING)));
    let (count, freed) = (handled.clone(), room.clone());
    let handler = move |_: Context| {
        count.fetch_add(1, Ordering::Relaxed);
        freed.add_permits(1);
        async {}
    };
    let mut pin = subject.pin().await?;
    if let Some(pin) = pin.as_mut().filter(|_| !held) {
        pin.release().await?;
    }
    let worker = mill.worker("bench").start(handler).await?;
    let mut pushing = JoinSet::new();
    pushing.spawn(push(mill.clone(), room.clone()));
    let rate_of_part = async || {
        let (began, before) = (env.now(), handled.load(Ordering::Relaxed));
        env.sleep(part).await;
        let worked = handled.load(Ordering::Relaxed) - before;
        worked as f64 / env.now().since(began).as_secs_f64()
    };
    let mut rates = Vec::new();
    for nth in 1..=PARTS {
        let rate = rate_of_part().await;
        progress(&format!("{name}, part {nth} of {PARTS}: {rate:.0}/s"));
        rates.push(rate);
    }
    room.close();
    while let Some(ended) = pushing.join_next().await {
        ended??;
    }
    let mut dead = None;
    if let Some(pin) = &mut pin {
        dead = Some(pin.dead(&store).await?);
        if held {
            pin.release().await?;
        }
    }
    worker.drained().await;
    worker.stop().await;
    drop(worker);
    opened.close().await?;
    subject.remove(&store).await?;
    Ok(Run { rates, dead, handled: handled.load(Ordering::Relaxed) })
}

/// Pushes whenever there is room, until the semaphore is closed.
async fn push(mill: Sawmill, room: Arc<Semaphore>) -> Result<(), Failure> {
    while let Ok(permits) = room.acquire_many(BATCH as u32).await {
        // Each permit is returned when its message is handled.
        permits.forget();
        mill.push_many("bench", (0..BATCH).map(|_| Push::new(&PAYLOAD[..]))).await?;
    }
    Ok(())
}
