//! End to end: pushes in batches, then one worker whose handler does nothing, until everything is acknowledged. Raw SQLite:
//! inserts in transactions of a batch each, then reading all of it back.

use std::path::Path;

use sawmill::env::Env;
use sawmill::{Context, Counts, Push, Sawmill};

use crate::raw::Raw;
use crate::report::{Figure, Report, Wanted, progress};
use crate::settings::Settings;
use crate::{BATCH, Failure, PAYLOAD, url};

pub(crate) fn measure(
    runtime: &tokio::runtime::Runtime,
    settings: &Settings,
    folder: &Path,
    report: &mut Report,
) -> Result<(), Failure> {
    let messages = settings.messages;
    let rate = |seconds: f64| messages as f64 / seconds;
    let mut best = Best::default();
    let mut counts = Counts::default();
    for round in 1..=settings.rounds {
        let mut raw = Raw::create(&folder.join(format!("raw-{round}.db")))?;
        let inserted = raw.insert_batches(messages)?;
        let read = raw.read_all()?;
        drop(raw);
        let (pushed, worked, counted) =
            runtime.block_on(sawmill(&folder.join(format!("sawmill-{round}.db")), messages))?;
        counts = counted;
        best.note([inserted, read, inserted + read, pushed, worked, pushed + worked]);
        let (raw, ours) = (rate(inserted + read), rate(pushed + worked));
        progress(&format!(
            "throughput, round {round} of {}: raw {raw:.0}/s, Sawmill {ours:.0}/s, ratio {:.2}",
            settings.rounds,
            ours / raw
        ));
    }
    let [inserted, read, raw, pushed, worked, ours] = best.0.map(rate);
    report.add(Figure::new("push", "push against insert, in batches of 1,000", "/s", pushed).base(inserted));
    report.add(Figure::new("work", "work against read", "/s", worked).base(read));
    report.add(Figure::new("end_to_end", "end to end", "/s", ours).base(raw).wanted(Wanted::Times(0.4)));
    let per_thousand = |count: u64| count as f64 * 1000.0 / messages as f64;
    report.note(format!(
        "{messages} messages of {} bytes; working them cost {:.2} ledger commits and {:.2} log reads per 1,000",
        PAYLOAD.len(),
        per_thousand(counts.commits),
        per_thousand(counts.reads)
    ));
    Ok(())
}

/// The fewest seconds that each phase took in any round.
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

/// Pushes this many messages, in batches.
pub(crate) async fn push(mill: &Sawmill, topic: &str, messages: usize) -> Result<(), Failure> {
    for done in (0..messages).step_by(BATCH) {
        let count = BATCH.min(messages - done);
        mill.push_many(topic, (0..count).map(|_| Push::new(&PAYLOAD[..]))).await?;
    }
    Ok(())
}

/// Seconds to push, and to work off.
async fn sawmill(path: &Path, messages: usize) -> Result<(f64, f64, Counts), Failure> {
    let env = Env::system();
    let mill = sawmill_sqlite::open(&url(path)).await?;
    mill.create_topic("bench").await?;
    let began = env.now();
    push(&mill, "bench", messages).await?;
    let pushed = env.now();
    let worker = mill.worker("bench").start(|_: Context| async {}).await?;
    worker.drained().await;
    let worked = env.now();
    let counts = worker.stop().await;
    assert_eq!(mill.status("bench", "default").await?.done, messages as u64, "everything is acknowledged");
    Ok((pushed.since(began).as_secs_f64(), worked.since(pushed).as_secs_f64(), counts))
}
