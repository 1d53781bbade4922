//! End to end: pushes in batches, then one worker whose handler does nothing, until everything is
//! acknowledged. The engine alone inserts in transactions of one batch each and reads everything back. Where
//! it makes sense, also the queue usually built on such an engine: jobs that are locked, marked as running
//! and marked as completed, a batch at a time.

use futures_util::{TryStreamExt, stream};
use sawmill::engine::runtime::Env;
use sawmill::worker::Counts;
use sawmill::{Context, Push, Sawmill};

use crate::Failure;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::subject::{Subject, Tally, seconds};
use crate::{BATCH, PAYLOAD};

/// The usual queue is slow, so it gets fewer jobs; only the rate counts.
const FEWER_JOBS: usize = 5;

pub(crate) async fn measure(
    subject: &dyn Subject,
    settings: &Settings,
    report: &mut Report,
) -> Result<(), Failure> {
    let messages = settings.messages;
    let rate = |seconds: f64| messages as f64 / seconds;
    let mut best = Best::default();
    let (mut last, mut raw_bytes, mut jobs) = (None, 0.0, None);
    for round in 1..=settings.rounds {
        let (inserted, read, bytes) = alone(subject, messages).await?;
        raw_bytes = bytes;
        let ours = sawmill(subject, &format!("throughput{round}"), messages).await?;
        best.note([inserted, read, inserted + read, ours.pushed, ours.worked, ours.pushed + ours.worked]);
        let (raw, all) = (rate(inserted + read), rate(ours.pushed + ours.worked));
        last = Some(ours);
        let mut said = format!(
            "throughput, round {round} of {}: {} alone {raw:.0}/s, Sawmill {all:.0}/s, ratio {:.2}",
            settings.rounds,
            subject.name(),
            all / raw
        );
        if let Some(rate) = row_queue(subject, messages.div_ceil(FEWER_JOBS)).await? {
            jobs = Some(rate.max(jobs.unwrap_or(0.0)));
            said += &format!("; jobs that are locked {rate:.0}/s");
        }
        progress(&said);
    }
    let goals = subject.goals();
    let [inserted, read, raw, pushed, worked, ours] = best.0.map(rate);
    report.add(Figure::new("push", "push against insert, in batches of 1,000", "/s", pushed).base(inserted));
    report.add(Figure::new("work", "work against read", "/s", worked).base(read));
    let figure = Figure::new("end_to_end", "end to end", "/s", ours).base(raw);
    report.add(figure.wanted(Wanted::Times(goals.end_to_end)));
    if let Some(jobs) = jobs {
        let what = "end to end; base: jobs that are locked, 1,000 at a time";
        let mut figure = Figure::new("row_queue", what, "/s", ours).base(jobs);
        figure.wanted = goals.row_queue.map(Wanted::Times);
        report.add(figure);
    }
    if let Some(ours) = last {
        costs(&ours, messages, raw_bytes, report);
    }
    Ok(())
}

/// Reports the cost per message.
fn costs(ours: &Ours, messages: usize, raw_bytes: f64, report: &mut Report) {
    let per_thousand = |count: u64| count as f64 * 1000.0 / messages as f64;
    if ours.total.log_bytes > 0 {
        let each = ours.total.log_bytes as f64 / messages as f64;
        let what = "bytes of the engine's log per message";
        report.add(Figure::new("log_bytes", what, "bytes", each).base(raw_bytes));
    }
    // An engine without counters reports 0.
    for (name, total) in [("queries", ours.total.queries), ("commits", ours.total.commits)] {
        if total > 0 {
            let what = format!("{name} per 1,000 messages, pushed and worked off");
            report.add(Figure::new(name, what, "", per_thousand(total)));
        }
    }
    report.note(format!(
        "{messages} messages of {} bytes; working them cost {:.2} ledger commits and {:.2} log reads per 1,000",
        PAYLOAD.len(),
        per_thousand(ours.counts.commits),
        per_thousand(ours.counts.reads)
    ));
}

/// The shortest seconds of each phase in any round.
struct Best([f64; 6]);

impl Default for Best {
    fn default() -> Self {
        Self([f64::INFINITY; 6])
    }
}

impl Best {
    fn note(&mut self, seconds: [f64; 6]) {
        for (best, seconds) in self.0.iter_mut().zip(seconds) {
            *best = best.min(seconds);
        }
    }
}

/// Returns the seconds to insert and to read, and the bytes of the engine's log per row.
async fn alone(subject: &dyn Subject, rows: usize) -> Result<(f64, f64, f64), Failure> {
    let mut raw = subject.raw().await?;
    let before = raw.log_bytes().await?;
    let inserting = async {
        for done in (0..rows).step_by(BATCH) {
            raw.insert(BATCH.min(rows - done)).await?;
        }
        raw.settle().await
    };
    let (inserted, ()) = seconds(inserting).await?;
    let (read, bytes) = seconds(raw.read_all()).await?;
    assert_eq!(bytes, rows * PAYLOAD.len(), "everything is read back");
    let logged = raw.log_bytes().await?.saturating_sub(before);
    raw.remove().await?;
    Ok((inserted, read, logged as f64 / rows as f64))
}

/// Returns the jobs per second, pushed and worked.
async fn row_queue(subject: &dyn Subject, jobs: usize) -> Result<Option<f64>, Failure> {
    let Some(mut queue) = subject.row_queue().await? else { return Ok(None) };
    let working = async {
        for done in (0..jobs).step_by(BATCH) {
            queue.push(BATCH.min(jobs - done)).await?;
        }
        let mut worked = 0;
        while worked < jobs {
            let some = queue.work(BATCH).await?;
            assert!(some > 0, "{worked} of {jobs} jobs were there");
            worked += some;
        }
        Ok::<(), Failure>(())
    };
    let (seconds, ()) = seconds(working).await?;
    queue.remove().await?;
    Ok(Some(jobs as f64 / seconds))
}

/// Pushes this many messages in sequential batches.
pub(crate) async fn push(mill: &Sawmill, topic: &str, messages: usize) -> Result<(), Failure> {
    push_at_once(mill, topic, messages, 1).await
}

/// Pushes this many messages in batches, `at_once` of them concurrently.
async fn push_at_once(mill: &Sawmill, topic: &str, messages: usize, at_once: usize) -> Result<(), Failure> {
    let batches = (0..messages).step_by(BATCH).map(|done| {
        let count = BATCH.min(messages - done);
        Ok(mill.push_many(topic, (0..count).map(|_| Push::new(&PAYLOAD[..]))))
    });
    let pushed = stream::iter(batches).try_buffer_unordered(at_once);
    pushed.try_for_each(|_| async { Ok(()) }).await.map_err(Failure::from)
}

/// The result of one round of Sawmill.
struct Ours {
    /// Seconds to push, and to work.
    pushed: f64,
    worked: f64,
    counts: Counts,
    /// The engine's counters for all of it.
    total: Tally,
}

async fn sawmill(subject: &dyn Subject, name: &str, messages: usize) -> Result<Ours, Failure> {
    let store = subject.store(name);
    let opened = subject.open(&store, Env::system()).await?;
    opened.mill().create_topic("bench").await?;
    let before = opened.tally().await?;
    let (pushed, ()) = {
        let at_once = subject.pushes_at_once();
        seconds(push_at_once(opened.mill(), "bench", messages, at_once)).await?
    };
    let mill = opened.mill();
    let working = async {
        let worker = mill.worker("bench").start(|_: Context| async {}).await?;
        worker.drained().await;
        Ok::<_, Failure>(worker)
    };
    let (worked, worker) = seconds(working).await?;
    let counts = worker.stop().await;
    drop(worker);
    assert_eq!(
        mill.admin().status("bench", "default").await?.done,
        messages as u64,
        "everything is acknowledged: {counts:?}"
    );
    let total = opened.close().await?.since(before);
    subject.remove(&store).await?;
    Ok(Ours { pushed, worked, counts, total })
}
