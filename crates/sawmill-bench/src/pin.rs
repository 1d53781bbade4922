//! A transaction that somebody holds open: nothing that it might still see can be cleaned up. Messages are pushed and
//! worked off all the while, and the rate must not decay.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sawmill::env::Env;
use sawmill::{Context, Push, Sawmill};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::subject::Subject;
use crate::{BATCH, Failure, PAYLOAD};

/// Messages that wait at most: so pushing and working go on at the same pace.
const WAITING: usize = 20 * BATCH;
/// The rate is told for each of so many parts of the time: minutes, if the time is as usual.
const PARTS: u32 = 5;

pub(crate) async fn measure(
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
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
    let worker = mill.worker("bench").start(handler).await?;
    let mut pushing = JoinSet::new();
    pushing.spawn(push(mill.clone(), room.clone()));
    let part = Duration::from_secs(settings.pin_seconds) / PARTS;
    let rate_of_part = async || {
        let (began, before) = (env.now(), handled.load(Ordering::Relaxed));
        env.sleep(part).await;
        let worked = handled.load(Ordering::Relaxed) - before;
        worked as f64 / env.now().since(began).as_secs_f64()
    };
    let mut rates = Vec::new();
    for nth in 1..=PARTS {
        let rate = rate_of_part().await;
        progress(&format!("with a transaction held open, part {nth} of {PARTS}: {rate:.0}/s"));
        rates.push(rate);
    }
    room.close();
    while let Some(ended) = pushing.join_next().await {
        ended??;
    }
    let dead = pin.dead(&store).await?;
    pin.release().await?;
    worker.drained().await;
    worker.stop().await;
    drop(worker);
    opened.close().await?;
    subject.remove(&store).await?;
    let (first, last) = (rates.first().copied().unwrap_or(0.0), rates.last().copied().unwrap_or(0.0));
    let what = format!("a transaction held open: the last {part:?}; base: the first");
    report.add(Figure::new("pin", what, "/s", last).base(first).wanted(Wanted::Times(0.9)));
    let rates: Vec<String> = rates.iter().map(|rate| format!("{rate:.0}")).collect();
    let rates = rates.join(", ");
    report.note(format!("pushed and worked off in each {part:?}: {rates}/s"));
    let dead: Vec<String> = dead.iter().map(|(what, count)| format!("{count} in {what}")).collect();
    let dead = if dead.is_empty() { "none".to_owned() } else { dead.join(", ") };
    report.note(format!("dead rows, while {} messages passed: {dead}", handled.load(Ordering::Relaxed)));
    Ok(())
}

/// Pushes whenever there is room, until that is closed.
async fn push(mill: Sawmill, room: Arc<Semaphore>) -> Result<(), Failure> {
    while let Ok(permits) = room.acquire_many(BATCH as u32).await {
        // Each is given back when its message is handled.
        permits.forget();
        mill.push_many("bench", (0..BATCH).map(|_| Push::new(&PAYLOAD[..]))).await?;
    }
    Ok(())
}
