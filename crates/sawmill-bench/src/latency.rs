//! Latency from the call of `push` to the start of the handler in the same process, at 50 pushes a second
//! with an idle worker in between. Such a message costs two consecutive commits, its own and that of the
//! claim, so the time of one commit of the engine alone is shown beside it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sawmill::Context;
use sawmill::engine::runtime::Env;

use crate::Failure;
use crate::percentile;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::subject::{Subject, commit_now_and_then};

const PER_SECOND: u64 = 50;

pub(crate) async fn measure(
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    progress(&format!("latency, {} s", settings.latency_seconds));
    let pause = Duration::from_millis(1000 / PER_SECOND);
    let count = (settings.latency_seconds * PER_SECOND) as usize;
    let mut raw = subject.raw().await?;
    // Half of them before and half after, in case the load of the machine changes meanwhile.
    let mut commits = commit_now_and_then(&mut *raw, count / 4, pause).await?;
    let mut starts = starts(subject, count, pause).await?;
    commits.extend(commit_now_and_then(&mut *raw, count / 4, pause).await?);
    raw.remove().await?;
    commits.sort_by(f64::total_cmp);
    starts.sort_by(f64::total_cmp);
    let goals = subject.goals();
    for (key, name, part, most) in
        [("latency_p50", "p50", 0.5, goals.p50_ms), ("latency_p99", "p99", 0.99, goals.p99_ms)]
    {
        let what = format!("push to start, {name}; base: one raw commit");
        let figure = Figure::new(key, what, "ms", percentile(&starts, part));
        report.add(figure.base(percentile(&commits, part)).wanted(Wanted::AtMost(most)));
    }
    Ok(())
}

/// Measures the milliseconds from push to start of each message.
async fn starts(subject: &dyn Subject, count: usize, pause: Duration) -> Result<Vec<f64>, Failure> {
    let (store, env) = (subject.store("latency"), Env::system());
    let opened = subject.open(&store, env.clone()).await?;
    let mill = opened.mill();
    mill.create_topic("bench").await?;
    let started = Arc::new(Mutex::new(Vec::new()));
    let (noted, clock) = (started.clone(), env.clone());
    let handler = move |context: Context| {
        let now = clock.now();
        let mut noted = noted.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        noted.push((context.payload().clone(), now));
        async {}
    };
    let worker = mill.worker("bench").start(handler).await?;
    worker.drained().await;
    let mut pushed = Vec::new();
    for nth in 0..count {
        env.sleep(pause).await;
        pushed.push(env.now());
        mill.push("bench", nth.to_string()).await?;
    }
    worker.drained().await;
    worker.stop().await;
    drop(worker);
    opened.close().await?;
    subject.remove(&store).await?;
    let started = started.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    assert_eq!(started.len(), count, "every message was started once");
    let mut took = Vec::new();
    for (payload, at) in started.iter() {
        let nth: usize = std::str::from_utf8(payload)?.parse()?;
        took.push(at.since(pushed[nth]).as_secs_f64() * 1e3);
    }
    Ok(took)
}
